"""The worktree of a migration: its baseline, its snapshots, its diffs, edits in it.

The agent works in a git worktree of our own in the session's directory. It starts at the
*baseline*, the tree of the project's HEAD: uncommitted changes of the operator's checkout are
not part of it, and :attr:`Workspace.note` says so where there are any. A directory that is no
git repository, or that is not ours to write refs to (``project.copy``), is first copied into
a private repository in the session's directory.

Snapshots go through an index of our own to refs ``refs/pilotage/<session>/<n>``: HEAD, index,
branches and files of the operator's repository are never touched. Hooks never run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from core.events import TreeSnapshotted
from core.git import Git, GitError, locate
from core.patches import ChangedFile, blob_texts, changed_files, file_list, patch_between
from core.workspace_files import Files, within
from core.workspace_files import WorkspaceError as WorkspaceError

CACHES = (
    "__pycache__/", "*.py[co]", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".ipynb_checkpoints/",
    "*.egg-info/", ".venv/", "venv/", "node_modules/", "*.pilotage",
)  # fmt: skip
"""Gitignore patterns of what is made anew at need: never part of a baseline or a snapshot."""

OUTPUTS = (
    "runs/", "outputs/", "output/", "logs/", "checkpoints/", "wandb/", "mlruns/", "lightning_logs/",
    "*.pt", "*.pth", "*.ckpt", "*.safetensors", "*.npy", "*.npz", "*.pkl", "*.log", "events.out.tfevents*",
)  # fmt: skip
"""What runs write: no part of a snapshot unless the baseline has it."""

LINK_MB = 50
"""A private copy links files larger than this (data, weights) instead of copying them."""

SOURCE_SUFFIXES = (".py", ".pyi", ".sh", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".cu", ".cpp")
"""A new file with one of these is source, whoever made it and whenever; see ``note_outputs``."""


class Workspace(Files):
    """The worktree of one session. Not safe for threads: one call at a time."""

    def __init__(self, project: Path, session_dir: Path, git_dir: Path, private: bool) -> None:
        self.project = project
        self.session_dir = session_dir
        self.root = session_dir / "worktree"
        self.reference_root = session_dir / "reference"
        self.git_dir = git_dir
        self.private = private
        self.note = ""
        self._session = session_dir.name
        self._exclude = session_dir / "exclude"
        self._git = Git(self.root, git_dir, session_dir / "index", self._exclude, private)
        self._wrote: set[str] = set()
        self.prefix = _prefix_file(session_dir)
        self.baseline, self.baseline_commit = "", ""
        self._tree, self._commit, self._number = "", "", 0

    # --- making and finding ----------------------------------------------------------------

    @classmethod
    def create(
        cls,
        project: Path,
        session_dir: Path,
        *,
        copy: bool = False,
        outputs: Sequence[str] = (),
        link: Sequence[str] = (),
    ) -> Workspace:
        """Make worktree and reference checkout, both at the baseline.

        Raises :class:`WorkspaceError` where git refuses, with what it said.
        """
        session_dir = session_dir.absolute()
        project = project.resolve()
        try:
            found = None if copy else locate(project)
        except GitError as err:
            raise WorkspaceError(f"The repository of {project} can't be used: {err}") from err
        git_dir = found[0] if found else session_dir / "origin"
        prefix = found[1] if found else ""
        (session_dir / "prefix").write_text(prefix)
        self = cls(project, session_dir, git_dir, private=found is None)
        try:
            self._write_exclude([*CACHES, *OUTPUTS, *outputs] if found else CACHES)
            if found is None:
                large = _large_files(project)
                self._copy_project(large)
                self._write_exclude([*CACHES, *OUTPUTS, *outputs])
                link = [*link, *large]
                self.note = self._copy_note(copy, large)
            else:
                self.note = self._dirty_note()
            head = self._base("rev-parse", "--verify", "HEAD^{commit}").strip()
            for place in (self.root, self.reference_root):
                if place.exists():
                    shutil.rmtree(place)
                # --detach: no branch is made or moved. --force: git may still know the path
                # from a creation that was cut off; `worktree prune` would touch others' too.
                self._base("worktree", "add", "--force", "--detach", "--quiet", str(place), head)
                self._link(place, link)
            self._set_baseline(head)
            self._git("read-tree", self.baseline)
            self.note = f"{self.note} {self._nested_note()}".strip()
            self._git("update-ref", f"refs/pilotage/{self._session}/0", head)
            (session_dir / "baseline").write_text(head + "\n")
        except GitError as err:
            raise WorkspaceError(
                f"No worktree of {project} could be made in {session_dir}: {err}"
            ) from err
        self._tree, self._commit = self.baseline, head
        return self

    @classmethod
    def reopen(
        cls, project: Path, session_dir: Path, last: TreeSnapshotted | None = None
    ) -> Workspace:
        """The workspace that :meth:`create` made, after a restart; snapshots go on counting.

        ``last`` is the last snapshot that is on record: what is in the worktree beyond it, also
        where a crash came between shadow ref and log, is in the next one.
        """
        session_dir = session_dir.absolute()
        private = (session_dir / "origin").is_dir()
        found = None if private else locate(project.resolve())
        if not private and found is None:
            raise WorkspaceError(
                f"The git repository of {project} is gone, and with it the history of this session. "
                "Put it back, or replay the session as it is."
            )
        git_dir = found[0] if found else session_dir / "origin"
        self = cls(project.resolve(), session_dir, git_dir, private)
        try:
            head = (session_dir / "baseline").read_text().strip()
            self._set_baseline(head)
            refs = self._git(
                "for-each-ref",
                "--format=%(refname) %(objectname)",
                f"refs/pilotage/{self._session}/",
            )
            names = [line.split() for line in refs.splitlines()]
            numbered = [(int(name.rsplit("/", 1)[1]), commit) for name, commit in names]
            self._number, self._commit = max(numbered)
            if last is not None:
                self._commit = last.commit
            self._tree = self._git("rev-parse", f"{self._commit}^{{tree}}").strip()
            if not self.root.is_dir():
                raise WorkspaceError(
                    f"The worktree {self.root} is gone. The snapshots are safe in {git_dir}."
                )
            # A git that was killed leaves the lock of its index behind.
            Path(f"{session_dir / 'index'}.lock").unlink(missing_ok=True)
            self._git("read-tree", self._tree)
        except (OSError, ValueError, GitError) as err:
            raise WorkspaceError(f"The worktree in {session_dir} can't be used: {err}") from err
        return self

    def dispose(self) -> None:
        """Take the session's checkouts and refs out of the operator's repository again.

        For a session that nobody will come back to; its directory can then be deleted. What git
        refuses stays: it is of no use and does no harm.
        """
        if self.private:
            return
        for place in (self.root, self.reference_root):
            with contextlib.suppress(GitError):
                self._base("worktree", "remove", "--force", "--force", str(place))
        with contextlib.suppress(GitError):
            names = self._base(
                "for-each-ref", "--format=%(refname)", f"refs/pilotage/{self._session}/"
            )
            for name in names.split():
                self._base("update-ref", "-d", name)

    def _set_baseline(self, commit: str) -> None:
        self.baseline_commit = commit
        self.baseline = self._base("rev-parse", f"{commit}^{{tree}}").strip()

    def _base(self, *args: str) -> str:
        """Run git on the repository itself, without our index and worktree."""
        return self._git.bare(*args)

    def _copy_project(self, leave_out: Sequence[str]) -> None:
        self._base("init", "--quiet", "--bare", str(self.git_dir))
        copier = Git(self.project, self.git_dir, self.session_dir / "index", self._exclude, True)
        self._add_excludes(leave_out)
        copier("add", "-A", ".")
        tree = copier("write-tree").strip()
        commit = copier("commit-tree", tree, "-m", "Baseline").strip()
        copier("update-ref", "HEAD", commit)

    def _copy_note(self, asked: bool, linked: Sequence[str]) -> str:
        note = ""
        if not asked:
            note = (
                f"{self.project} is no git repository with a commit, so the session works on a "
                "private copy of it."
            )
        if linked:
            many = "s" * (len(linked) > 1)
            note += f" {len(linked)} file{many} of more than {LINK_MB} MB are linked, not copied."
        return note.strip()

    def _dirty_note(self) -> str:
        changed = self._git.status_of(self.project)
        if not changed:
            return ""
        some = ", ".join(changed[:5]) + (" ..." if len(changed) > 5 else "")
        return (
            f"The baseline is HEAD of {self.project}: uncommitted changes of {len(changed)} "
            f"file{'s' * (len(changed) > 1)} there are not part of it ({some})."
        )

    def _nested_note(self) -> str:
        nested = self.nested()
        if not nested:
            return ""
        some = ", ".join(nested[:5]) + (" ..." if len(nested) > 5 else "")
        return (
            f"The project has git repositories within its own ({some}), submodules or clones: "
            "their files are missing in the worktree, so what needs them will not run."
        )

    def _write_exclude(self, patterns: Sequence[str]) -> None:
        own = "" if self.private else self._git.user_excludes()
        self._exclude.write_text(
            "\n".join([own, *patterns]) + "\n", encoding="utf-8", errors="surrogateescape"
        )

    def _link(self, checkout: Path, link: Sequence[str]) -> None:
        for name in link:
            source, at = self.project / name, checkout / self.prefix / name
            if ".." in Path(name).parts or Path(name).is_absolute():
                raise WorkspaceError(f"link {name!r} has to be a path inside the project.")
            if not source.exists():
                raise WorkspaceError(f"link {name!r}: there is no {source}.")
            if at.exists() or at.is_symlink():
                continue
            at.parent.mkdir(parents=True, exist_ok=True)
            at.symlink_to(source)
            self._add_excludes([str(at.relative_to(checkout))])

    # --- places ------------------------------------------------------------------------------

    @property
    def reference_cwd(self) -> Path:
        """The same place in the reference checkout."""
        return self.reference_root / self.prefix

    @property
    def tree(self) -> str:
        """The tree of the last snapshot."""
        return self._tree

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot(self, cause: str, call_id: str = "") -> TreeSnapshotted | None:
        """Write the worktree to the shadow ref; None when nothing changed since the last one.

        Raises :class:`WorkspaceError`.
        """
        if not self.root.is_dir():
            raise WorkspaceError(
                f"The worktree {self.root} is gone: something deleted or moved it, a run perhaps. "
                "Put it back and start the recorder again, or start a new session."
            )
        try:
            self._git("add", "-A", "--", ".")
            self._add_written()
            tree = self._git("write-tree").strip()
            if tree == self._tree:
                return None
            before = self._tree
            commit = self._git(
                "commit-tree", tree, "-p", self._commit, "-m", f"pilotage: {cause}"
            ).strip()
            self._number += 1
            self._git("update-ref", f"refs/pilotage/{self._session}/{self._number}", commit)
            self._tree, self._commit = tree, commit
            patch, note = patch_between(self._git, self.baseline, tree)
            step_patch, step_note = patch_between(self._git, before, tree)
            return TreeSnapshotted(
                tree=tree,
                commit=commit,
                parent=before,
                cause=cause,
                call_id=call_id,
                files=file_list(self._git, self.baseline, tree),
                patch=patch,
                step_patch=step_patch,
                patch_note=" ".join(n for n in (note, step_note and f"Step: {step_note}") if n),
            )
        except GitError as err:
            raise WorkspaceError(f"The worktree could not be written down: {err}") from err

    def changed_files(self, tree: str) -> list[ChangedFile]:
        """The regular files in which ``tree`` differs from the baseline; safe at any time."""
        return changed_files(self._git, self.baseline, tree)

    def texts(self, blobs: Iterable[str], limit: int) -> dict[str, str | None]:
        """The texts of blobs; None for one that is binary or larger than ``limit`` bytes."""
        return blob_texts(self._git, blobs, limit)

    def baseline_snapshot(self) -> TreeSnapshotted:
        """The first event of the worktree: the baseline itself."""
        return TreeSnapshotted(
            tree=self.baseline, commit=self.baseline_commit, cause="baseline", patch_note=self.note
        )

    def _add_written(self) -> None:
        """What the agent wrote on purpose counts, though a pattern calls it output."""
        there = [p for p in sorted(self._wrote) if os.path.lexists(self.root / p)]
        if there:
            # Where a repository was made meanwhile, git would refuse, and with it every snapshot.
            inside = within(there, self.nested())
            there = [p for p in there if p not in inside]
        if there:
            self._git("add", "-f", "--", *there)

    def note_outputs(self) -> list[str]:
        """After a run: take the new files it left for outputs, not for changes of the source.

        Files with a suffix of :data:`SOURCE_SUFFIXES` stay source, so that code that somebody
        slips in during a run is still seen. Returns the paths that count as output from now on.
        """
        new = self._git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
        outputs = [p for p in new if p and not p.endswith(SOURCE_SUFFIXES)]
        self._add_excludes(outputs)
        return outputs

    def _add_excludes(self, paths: Iterable[str]) -> None:
        lines = []
        for path in paths:
            if "\n" in path:  # can't be written in an exclude file; git's own limit
                continue
            escaped = "".join("\\" + c if c in "\\*?[ !#" else c for c in path)
            lines.append(f"/{escaped}\n")
        with open(self._exclude, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(lines)

    def rollback(self, tree: str) -> None:
        """Make the worktree's source equal to an earlier snapshot; outputs of runs stay.

        The present state has to be in a snapshot already, and is: call :meth:`snapshot` first.
        """
        try:
            self._git("read-tree", "--reset", "-u", tree)
        except GitError as err:
            raise WorkspaceError(f"The worktree could not go back to {tree[:10]}: {err}") from err

    def reference_changes(self) -> list[str]:
        """Files of the reference checkout that differ from the baseline; there must be none.

        A file that runs write (``OUTPUTS``) and that the baseline has is put back first: the run
        before has written it anew, and the next one has to begin where that one did.
        """
        changed = self._git.changes_of(self.reference_root, self.baseline_commit)
        written = [path for path in changed if _is_output(path)]
        if written:
            self._git.restore(self.reference_root, self.baseline_commit, written)
            changed = self._git.changes_of(self.reference_root, self.baseline_commit)
        return changed


def _is_output(path: str) -> bool:
    """Whether a path is one of ``OUTPUTS``."""
    *places, name = path.split("/")
    if name.endswith(SOURCE_SUFFIXES):
        return False
    return any(f"{place}/" in OUTPUTS for place in places) or any(
        fnmatchcase(name, pattern) for pattern in OUTPUTS if not pattern.endswith("/")
    )


def _prefix_file(session_dir: Path) -> str:
    try:
        return (session_dir / "prefix").read_text()
    except OSError:
        return ""


def _large_files(project: Path) -> list[str]:
    """Files of a project that a private copy should not hold, relative to it."""
    found = []
    for place, directories, names in os.walk(project):
        directories[:] = [d for d in directories if f"{d}/" not in CACHES and d != ".git"]
        for name in names:
            file = Path(place, name)
            with contextlib.suppress(OSError):  # gone meanwhile
                if not file.is_symlink() and file.stat().st_size > LINK_MB * 1_000_000:
                    found.append(str(file.relative_to(project)))
    return found
