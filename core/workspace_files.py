"""What an agent may do to files: read, search and change them, inside the worktree only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from core.errors import PilotageError
from core.git import Git, GitError

READ_LIMIT = 200_000
"""Bytes of a file that ``read`` gives; an agent that needs more reads in parts."""


class WorkspaceError(PilotageError):
    """Something can't be done in the worktree; the sentence is meant for the agent too."""


class Files:
    """The files of a worktree at ``root``; paths are relative to ``prefix`` in it."""

    root: Path
    prefix: str
    _git: Git
    _wrote: set[str]

    @property
    def cwd(self) -> Path:
        """Where runs and relative paths start: the project's directory in the worktree."""
        return self.root / self.prefix

    def resolve(self, path: str) -> Path:
        """The file that a path of the agent's means: inside the worktree, symlinks resolved.

        Raises :class:`WorkspaceError` for absolute paths, ``..`` or links that lead out, and
        anything in a ``.git``.
        """
        if not path or "\0" in path:
            raise WorkspaceError("A path is needed, relative to the project.")
        if Path(path).is_absolute() or path.startswith("~"):
            raise WorkspaceError(f"{path} is an absolute path; give it relative to the project.")
        try:
            root = self.root.resolve(strict=True)
            full = (self.cwd / path).resolve()
        except (OSError, RuntimeError) as err:  # RuntimeError: a loop of links (before 3.13)
            raise WorkspaceError(f"{path} can't be resolved: {err}.") from err
        if not full.is_relative_to(root):
            raise WorkspaceError(f"{path} leads out of the worktree; only files inside it count.")
        parts = full.relative_to(root).parts
        if any(part.lower() == ".git" for part in parts):
            raise WorkspaceError(f"{path} is part of git's own files, which are not to be touched.")
        return full

    def read(self, path: str) -> str:
        """Text of a file, at most :data:`READ_LIMIT` bytes, and then says so."""
        full = self._file(path)
        with open(full, "rb") as file:
            data = file.read(READ_LIMIT + 1)
        if b"\0" in data[:8000]:
            raise WorkspaceError(f"{path} is not a text file.")
        text = data[:READ_LIMIT].decode("utf-8", "replace")
        if len(data) > READ_LIMIT:
            text += f"\n(only the first {READ_LIMIT} bytes of {full.stat().st_size})\n"
        return text

    def search(self, pattern: str, limit: int = 200) -> list[str]:
        """``path:line:text`` of lines that match a POSIX extended regular expression."""
        try:
            out = self._git("grep", "-nIE", "--no-color", "-e", pattern, "--", ".", ok=(0, 1))
        except GitError as err:
            raise WorkspaceError(f"The search for {pattern!r} failed: {err}") from err
        lines = out.splitlines()
        if len(lines) > limit:
            return [*lines[:limit], f"({len(lines) - limit} more lines)"]
        return lines

    def edit(self, path: str, search: str, replace: str) -> None:
        """Replace the one place where ``search`` stands in a file.

        Raises :class:`WorkspaceError` where it stands nowhere, or more than once.
        """
        full = self._file(path)
        data = full.read_bytes()
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as err:
            raise WorkspaceError(f"{path} is not UTF-8 text, so it can't be edited.") from err
        if "\r\n" in text and "\r\n" not in search:
            search, replace = search.replace("\n", "\r\n"), replace.replace("\n", "\r\n")
        if not search:
            raise WorkspaceError("An edit needs the text to search for; `write` makes a file anew.")
        count = text.count(search)
        if count != 1:
            how = "does not occur" if not count else f"occurs {count} times"
            first = next((line for line in search.splitlines() if line.strip()), search)
            raise WorkspaceError(
                f"The text to replace (it begins {first.strip()[:60]!r}) {how} in {path}; it has "
                "to occur exactly once. Nothing was changed."
            )
        self._write_bytes(full, text.replace(search, replace).encode("utf-8"))

    def write(self, path: str, content: str) -> None:
        """Write a file, new or not, making its directories."""
        full = self.resolve(path)
        if full.is_dir():
            raise WorkspaceError(f"{path} is a directory.")
        self._write_bytes(full, content.encode("utf-8", "replace"))

    def apply_patch(self, patch: str) -> list[str]:
        """Apply a unified diff, all of it or nothing; returns the paths it changed."""
        if not patch.endswith("\n"):
            patch += "\n"
        data = patch.encode("utf-8", "replace")
        where = [f"--directory={self.prefix}"] if self.prefix else []
        try:
            # -z: each record is added, removed, path; a rename adds an empty path and two more.
            listing = self._git("apply", "--numstat", "-z", *where, "-", input=data)
            names = [p for p in listing.replace("\t", "\0").split("\0") if p and not _count(p)]
            for name in names:
                self.resolve(os.path.relpath(name, self.prefix or "."))
            self._must_be_recorded(names)
            self._git("apply", "--whitespace=nowarn", *where, "-", input=data)
        except GitError as err:
            raise WorkspaceError(f"The patch does not apply; nothing was changed. {err}") from err
        self._wrote.update(names)
        return names

    def nested(self) -> list[str]:
        """Paths of repositories within this one (submodules, clones), relative to the root.

        Git records which commit of them is meant, and none of their files.
        """
        entries = self._git("ls-files", "--stage", "-z").split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]

    def _must_be_recorded(self, names: Iterable[str]) -> None:
        """Raise :class:`WorkspaceError` for a path that no snapshot would have."""
        inside = within(names, self.nested())
        if inside:
            raise WorkspaceError(
                f"{inside[0]} lies in a git repository of its own (a submodule or a clone), whose "
                "files are not part of this session. Nothing was changed."
            )

    def _file(self, path: str) -> Path:
        full = self.resolve(path)
        if not full.is_file():
            raise WorkspaceError(f"There is no file {path} in the project.")
        return full

    def _write_bytes(self, full: Path, data: bytes) -> None:
        name = str(full.relative_to(self.root.resolve()))
        self._must_be_recorded([name])
        try:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(data)
        except OSError as err:
            raise WorkspaceError(f"{full.name} can't be written: {err.strerror}.") from err
        self._wrote.add(name)


def within(names: Iterable[str], directories: Iterable[str]) -> list[str]:
    """Those of the paths that are one of the directories, or lie in one."""
    places = [Path(d) for d in directories]
    return [n for n in names if any(Path(n).is_relative_to(p) for p in places)]


def _count(field: str) -> bool:
    return field == "-" or field.isdecimal()
