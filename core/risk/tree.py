"""Listing the files of a stranger's project: bounded, and told what was left out."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILES = 50_000
"""Files that are listed; a project with more has data among its source."""

MAX_DEPTH = 24
"""Directories in each other that are entered."""

MAX_BYTES = 2_000_000
"""A larger file is data, or was made by a program; it is not read."""

MAX_TOTAL_BYTES = 200_000_000
"""Bytes of source that are read of one project."""

SKIPPED = frozenset(
    ".git .hg .svn .tox .nox .eggs .mypy_cache .pytest_cache .ruff_cache .ipynb_checkpoints .idea "
    ".vscode __pycache__ node_modules site-packages venv .venv env .env virtualenv build dist wandb "
    "mlruns lightning_logs tb_logs runs outputs checkpoints ckpts".split()
)
"""Directories that hold no source of the project: environments, caches, what builds and runs
leave."""

DATA = frozenset("data dataset datasets".split())
"""Directories that hold data, unless there is Python in them."""


@dataclass(slots=True)
class Listing:
    """The files of a project, as paths relative to ``root`` and sorted; ``notes`` are sentences
    about what was left out."""

    root: Path
    files: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    read: int = 0
    _told: set[str] = field(default_factory=set)
    _counted: set[str] = field(default_factory=set)

    def named(self, *suffixes: str) -> list[str]:
        """The files whose name ends so, in lower case."""
        return [f for f in self.files if f.lower().endswith(suffixes)]

    def text(self, path: str) -> str | None:
        """The text of one file; None, with a note, where it can't or should not be read."""
        try:
            data = self._bytes(path)
        except OSError as err:
            self._note(path, f"{path} can't be read: {err.strerror or err}.")
            return None
        if data is None:
            return None
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16", "replace")
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if "\0" in text:
            self._note(path, f"{path} is binary in spite of its name; it was not read.")
            return None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _bytes(self, path: str) -> bytes | None:
        # Never through a pipe or a device, which could hang, and never more than is bounded.
        fd = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                self._note(path, f"{path} is no regular file; it was not read.")
                return None
            if info.st_size > MAX_BYTES:
                size = info.st_size / 1e6
                self._note(path, f"{path} has {size:.1f} MB, over 2 MB; it was not read.")
                return None
            if path not in self._counted and self.read + info.st_size > MAX_TOTAL_BYTES:
                self._note("", "Over 200 MB of source: the rest was not read.")
                return None
            data = file.read(MAX_BYTES + 1)
        if path not in self._counted:
            self._counted.add(path)
            self.read += len(data)
        return data

    def _note(self, path: str, sentence: str) -> None:
        if path not in self._told:
            self._told.add(path)
            self.notes.append(sentence)


def read_start(path: Path, limit: int) -> str:
    """The first ``limit`` bytes of a regular file as text; "" where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def list_files(root: Path) -> Listing:
    """The files below ``root``. Symbolic links to directories are not followed."""
    listing = Listing(root)
    data: list[tuple[str, int]] = []
    todo: list[tuple[str, int]] = [("", 0)]
    while todo:
        here, depth = todo.pop()
        try:
            with os.scandir(root / here) as entries:
                found = sorted(entries, key=lambda e: e.name, reverse=True)
        except OSError as err:
            listing._note(here, f"The directory {here or '.'} can't be read: {err.strerror}.")
            continue
        names = {e.name for e in found}
        if here and ("pyvenv.cfg" in names or "conda-meta" in names):
            listing.skipped["environments"] = listing.skipped.get("environments", 0) + 1
            continue
        files: list[str] = []
        for entry in found:
            path = f"{here}/{entry.name}" if here else entry.name
            if _is_dir(entry):
                if entry.name in SKIPPED or entry.name.endswith(".egg-info"):
                    listing.skipped[entry.name] = listing.skipped.get(entry.name, 0) + 1
                elif depth >= MAX_DEPTH:
                    listing._note("depth", f"Directories below {path} are nested too deeply.")
                else:
                    todo.append((path, depth + 1))
            elif _is_file(entry):
                files.append(path)
        if _is_data(here, files):
            data.append((here, len(files)))
            continue
        listing.files += files
        if len(listing.files) > MAX_FILES:
            listing.files = listing.files[:MAX_FILES]
            listing._note("files", f"Over {MAX_FILES:,} files: the rest was not looked at.")
            break
    if data:
        listing.skipped["data directories"] = len(data)
    listing.files.sort()
    return listing


def _is_data(here: str, files: list[str]) -> bool:
    parts = set(here.lower().split("/"))
    return bool(parts & DATA) and not any(f.endswith((".py", ".ipynb", ".sh")) for f in files)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()  # a link to a file is a file; reading looks again
    except OSError:
        return False
