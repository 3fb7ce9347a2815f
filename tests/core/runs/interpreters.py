"""The Pythons that tests of the probe run their programs with.

``PILOTAGE_PROBE_PYTHONS``: paths, joined by ``os.pathsep``; by default the one that runs pytest.
Each needs torch; what else a test needs it asks for with ``need``.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHONS = [
    path for path in os.environ.get("PILOTAGE_PROBE_PYTHONS", "").split(os.pathsep) if path
] or [sys.executable]


def label(path: str) -> str:
    """Such as ``py311-torch2.13``: the environment's own name."""
    return Path(path).parent.parent.name


@functools.cache
def has(python: str, module: str) -> bool:
    """Whether an interpreter has a module, without importing it."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-I", "-c", code], timeout=60).returncode == 0


@functools.cache
def version(python: str) -> tuple[int, int]:
    """Major and minor version of an interpreter."""
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    major, minor = map(int, done.stdout.split())
    return major, minor


def need(python: str, *modules: str) -> None:
    """Skip the test, with a reason, unless an interpreter has these modules."""
    for module in modules:
        if not has(python, module):
            pytest.skip(f"{module} is not installed for {python}")


each_python = pytest.mark.parametrize("python", PYTHONS, ids=label)
