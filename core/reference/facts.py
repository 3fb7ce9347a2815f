"""What a bundle says of the machine, the project and its Python; asked once, at the recording."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from core.git import GitError, locate, run_git
from core.reference.manifest import Hardware, ProjectFacts
from core.text import clean
from core.workspace import CACHES

ASK_S = 60.0
"""Seconds that the project's Python may take to name its packages (an NFS site-packages is slow)."""

SMI_S = 10.0
"""Seconds for nvidia-smi, which hangs where a driver is broken."""

SAMPLE = 2_000
"""Hashes of lines that are kept: the smallest ones, which is a sample without a preference."""

_MAX_FILES, _MAX_FILE = 2_000, 1 << 20
_SHORTEST = 8
"""Characters of a line that tells something: ``else:`` is in every project."""

_PACKAGES = """
import importlib.metadata as m, json, sys
found = {}
for d in m.distributions():
    try:
        found.setdefault(d.metadata["Name"], d.version)
    except Exception:
        pass
print(json.dumps([sys.version.split()[0], {k: v for k, v in found.items() if k and v}]))
"""


def hardware() -> Hardware:
    """The CPU, its cores (those this process may use), memory, and GPUs as nvidia-smi names them."""
    return Hardware(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_mb=_memory_mb(),
        gpu=gpus(),
        system=f"{platform.system()} {platform.machine()}",
    )


def _cpu() -> str:
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware"):
            return clean(value.strip())[:200]
    return platform.processor() or platform.machine()


def _memory_mb() -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def gpus() -> list[str]:
    """One text for each NVIDIA GPU: name, memory, driver; none where nvidia-smi is not there."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = "--query-gpu=name,memory.total,driver_version"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            timeout=SMI_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode:
        return []
    text = done.stdout.decode("utf-8", "replace")
    return [clean(line.strip())[:200] for line in text.splitlines() if line.strip()]


def packages(python: str) -> tuple[str, dict[str, str]]:
    """Version of an interpreter and of every package it has; empty where it does not answer."""
    path = shutil.which(python)
    if path is None:
        return "", {}
    try:
        done = subprocess.run(
            [str(Path(path).absolute()), "-c", _PACKAGES],
            capture_output=True,
            timeout=ASK_S,
            stdin=subprocess.DEVNULL,
            cwd="/",  # not the project's directory: it may have a json.py
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        version, found = json.loads(done.stdout)
        return str(version), {str(k)[:200]: str(v)[:200] for k, v in sorted(found.items())}
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        return "", {}


def project_facts(title: str, project: Path, code: Path, tree: str, note: str) -> ProjectFacts:
    """Which project it is: ``project`` is the operator's directory, ``code`` the checkout of
    ``tree`` that was run, ``note`` what its workspace has to say of the difference."""
    commit, dirty = commit_of(project)
    sample, count = lines_of(code)
    named = title != project.name
    return ProjectFacts(title, named, commit, tree, dirty, note, sample, count)


def commit_of(project: Path) -> tuple[str, bool]:
    """The commit that a project's repository stands at, and whether its files differ from it."""
    try:
        found = locate(project)
        if found is None:
            return "", False
        head = run_git(project, {}, ["rev-parse", "--verify", "HEAD^{commit}"])
        # A bundle that lies beside the code is none of it (core.workspace.CACHES).
        where = [".", ":(exclude)*.pilotage"]
        changed = run_git(
            project, {}, ["status", "--porcelain", "-z", "--no-renames", "--", *where]
        )
    except GitError:
        return "", False
    return head.decode().strip(), bool(changed)


def lines_of(root: Path) -> tuple[list[str], int]:
    """A sample of short hashes of the lines of Python code below ``root``, and how many there are."""
    found = hashes_of(root)
    return sorted(found)[:SAMPLE], len(found)


def hashes_of(root: Path) -> set[str]:
    """A short hash of every line of Python code below ``root`` that tells something."""
    return {
        hashlib.sha256(line).hexdigest()[:10]
        for file in _sources(root)
        for line in map(bytes.strip, _read(file).splitlines())
        if len(line) >= _SHORTEST and not line.startswith((b"#", b"import ", b"from "))
    }


def share_of(sample: Collection[str], root: Path) -> float | None:
    """The share of a project's lines (a sample of :func:`lines_of`) that are in ``root`` too.

    None where there are too few lines to tell.
    """
    if len(sample) < 5:
        return None
    there = hashes_of(root)
    return sum(line in there for line in sample) / len(sample)


def _sources(root: Path) -> Iterator[Path]:
    skip = {name.rstrip("/") for name in CACHES} | {".git"}
    count = 0
    for place, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in skip)
        for name in sorted(files):
            if name.endswith(".py") and count < _MAX_FILES:
                count += 1
                yield Path(place, name)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.stat().st_size <= _MAX_FILE else b""
    except OSError:
        return b""
