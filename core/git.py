"""Calls of git that leave the operator's repository as it is.

Every call names git directory, worktree and index itself, so no ``.git`` file that an agent
may have written decides what is read; hooks, file monitors, signing and external diff
programs of a repository's configuration never run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from core.errors import PilotageError

SAFE = (
    "-c", f"core.hooksPath={os.devnull}",
    "-c", "core.fsmonitor=false",
    "-c", "commit.gpgsign=false",
    "-c", "core.quotePath=false",
    "-c", "core.safecrlf=false",
    "-c", "core.untrackedCache=false",
    "-c", "gc.auto=0",
    "-c", "advice.detachedHead=false",
    "-c", "protocol.file.allow=never",
    "-c", "submodule.recurse=false",
    "-c", "diff.external=",
)  # fmt: skip
"""Settings that win over every configuration file."""

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "pilotage"), ("EMAIL", "pilotage@localhost"))
}

_INHERITED = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS",
    "GIT_LITERAL_PATHSPECS", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip


class GitError(PilotageError):
    """git ended with an error; the sentence has what it said."""


class Git:
    """git with a given directory, worktree, index and exclude file; call it with arguments."""

    def __init__(
        self, worktree: Path, git_dir: Path, index: Path, exclude: Path, private: bool
    ) -> None:
        self._worktree = worktree
        self._git_dir = git_dir
        self._index = index
        self._exclude = exclude
        self._private = private

    def __call__(self, *args: str, input: bytes | None = None, ok: Collection[int] = (0,)) -> str:
        """Output of git on worktree and private index, non-UTF-8 bytes kept as surrogates."""
        return self.raw(*args, input=input, ok=ok).decode("utf-8", "surrogateescape")

    def raw(self, *args: str, input: bytes | None = None, ok: Collection[int] = (0,)) -> bytes:
        """Output of git on worktree and private index, as bytes."""
        env = {
            "GIT_DIR": str(self._git_dir),
            "GIT_WORK_TREE": str(self._worktree),
            "GIT_INDEX_FILE": str(self._index),
        }
        excludes = ("-c", f"core.excludesFile={self._exclude}")
        return self._run(self._worktree, env, [*excludes, *args], input, ok)

    def bare(self, *args: str) -> str:
        """Output of git on the repository alone, for what concerns no worktree of ours."""
        env = {"GIT_DIR": str(self._git_dir)}
        return self._run(self._exclude.parent, env, args, None, (0,)).decode("utf-8", "replace")

    def status_of(self, place: Path) -> list[str]:
        """Paths with uncommitted changes in the operator's own checkout at ``place``."""
        out = self._run(
            place, {}, ["status", "--porcelain", "-z", "--no-renames", "."], None, (0,)
        ).decode("utf-8", "replace")
        return [entry[3:] for entry in out.split("\0") if entry]

    def changes_of(self, checkout: Path, commit: str) -> list[str]:
        """Tracked paths of a checkout of ours that differ from ``commit``, whatever its index says."""
        with tempfile.TemporaryDirectory(dir=self._exclude.parent) as place:
            env = {
                "GIT_DIR": str(self._git_dir),
                "GIT_WORK_TREE": str(checkout),
                "GIT_INDEX_FILE": f"{place}/index",
            }
            self._run(checkout, env, ["read-tree", commit], None, (0,))
            self._run(checkout, env, ["update-index", "-q", "--refresh"], None, (0, 1))
            out = self._run(checkout, env, ["diff-files", "--name-only", "-z"], None, (0,))
        return [p for p in out.decode("utf-8", "replace").split("\0") if p]

    def restore(self, checkout: Path, commit: str, paths: Collection[str]) -> None:
        """Make these paths of a checkout of ours what they are in ``commit``."""
        with tempfile.TemporaryDirectory(dir=self._exclude.parent) as place:
            env = {
                "GIT_DIR": str(self._git_dir),
                "GIT_WORK_TREE": str(checkout),
                "GIT_INDEX_FILE": f"{place}/index",
            }
            self._run(checkout, env, ["read-tree", commit], None, (0,))
            names = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
            self._run(checkout, env, ["checkout-index", "-f", "-z", "--stdin"], names, (0,))

    def user_excludes(self) -> str:
        """What the operator's own global exclude file says (ours takes its place)."""
        out = self._run(
            self._exclude.parent,
            {"GIT_DIR": str(self._git_dir)},
            ["config", "--type=path", "--get", "core.excludesFile"],
            None,
            (0, 1),
        ).decode()
        config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        file = Path(out.strip() or f"{config}/git/ignore").expanduser()
        try:
            return file.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""

    def _run(
        self,
        cwd: Path,
        env: dict[str, str],
        args: Any,
        input: bytes | None,
        ok: Collection[int],
    ) -> bytes:
        return run_git(cwd, env, args, input, ok, isolated=self._private)


def run_git(
    cwd: Path,
    env: dict[str, str],
    args: Any,
    input: bytes | None = None,
    ok: Collection[int] = (0,),
    isolated: bool = False,
) -> bytes:
    """Run git through GitPython; ``isolated`` also leaves out global and system configuration."""
    import git

    full = {
        **{k: v for k, v in os.environ.items() if k not in _INHERITED},
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
        **_IDENTITY,
        **env,
    }
    if isolated:
        full |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    with tempfile.TemporaryFile() as stdin:
        stdin.write(input or b"")
        stdin.seek(0)
        try:
            status, out, err = git.Git(cwd).execute(
                ["git", *SAFE, *args],
                istream=stdin,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                env=full,
            )
        except git.GitCommandNotFound as error:
            raise GitError("git is not installed here (or not on PATH); install it.") from error
        except OSError as error:
            raise GitError(f"git could not be started: {error}.") from error
    if status not in ok:
        said = (err if isinstance(err, str) else bytes(err).decode("utf-8", "replace")).strip()
        command = next((a for a in args if a != "-c" and not a.startswith("core.")), "")
        raise GitError(f"`git {command}` said: {said or f'exit code {status}'}")
    assert isinstance(out, bytes)
    return out


def locate(project: Path) -> tuple[Path, str] | None:
    """Git directory and prefix of a project that lies in a repository with a commit, or None.

    Raises :class:`GitError` for a repository that git refuses to read since it is another user's.
    """
    try:
        lines = (
            run_git(project, {}, ["rev-parse", "--git-common-dir", "--show-prefix"])
            .decode("utf-8", "surrogateescape")
            .split("\n")
        )
        run_git(project, {}, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
        # A directory that git ignores, or has no file of, is in a repository only by accident.
        if lines[1] and not run_git(project, {}, ["ls-files", "--", "."]):
            return None
    except GitError as err:
        if "dubious ownership" in str(err):
            raise
        return None
    return (project / lines[0]).resolve(), lines[1].rstrip("/")
