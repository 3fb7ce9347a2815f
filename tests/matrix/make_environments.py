"""Run the probe's loop tests in other Pythons with other versions of torch.

    python tests/matrix/make_environments.py [--list] [--only NAME ...] [--python PATH ...]

Makes one environment for each entry of ENVIRONMENTS whose Python is found (on PATH, in pyenv's
folder, or named with --python), below .venv-matrix/, with pinned versions; then runs
tests/core/runs/probe with PILOTAGE_PROBE_PYTHONS set to them. Standard library only; the tests
themselves run in the Python that runs this script, which needs the extra `test`. An environment
that is complete is used again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv-matrix"
COMPLETE = "complete"


class Environment(NamedTuple):
    """One Python with one torch. Sizes in GB, measured on Linux x86_64 in November 2026.

    The disk was measured (2.13 is taken to be as large as 2.14: both with their CUDA libraries);
    the download is about 0.58 of it, as it was for torch 2.9.1 where both were measured.
    """

    name: str
    python: str  # major.minor
    packages: tuple[str, ...]
    disk: float

    @property
    def download(self) -> float:
        return self.disk * 0.58


ENVIRONMENTS = (
    Environment(
        "py38-torch1.13",
        "3.8",
        (
            "torch==1.13.1",
            "numpy<2",
            "transformers==4.46.3",
            "accelerate==1.0.1",
            "lightning==2.2.5",
        ),
        3.4,
    ),
    Environment("py38-torch2.3", "3.8", ("torch==2.3.0", "torch_xla==2.3.0", "numpy<2"), 5.3),
    Environment(
        "py313-torch2.9",
        "3.13",
        (
            "torch==2.9.1",
            "torch_xla==2.9.0",
            "numpy",
            "transformers==5.24.0",
            "accelerate==1.15.0",
            "lightning==2.6.6",
        ),
        7.3,
    ),
    Environment(
        "py311-torch2.13",
        "3.11",
        (
            "torch==2.13.0",
            "numpy",
            "transformers==5.24.0",
            "accelerate==1.15.0",
            "lightning==2.6.6",
        ),
        5.7,
    ),
    Environment(
        "py311-torch2.14",
        "3.11",
        (
            "torch==2.14.1",
            "numpy",
            "transformers==5.24.0",
            "accelerate==1.15.0",
            "lightning==2.6.6",
        ),
        5.7,
    ),
)


def pythons(named: list[str]) -> dict[str, str]:
    """Interpreters by their version: those named, those on PATH, those of pyenv."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    wanted = sorted({e.python for e in ENVIRONMENTS})
    places = [*named, *filter(None, (shutil.which(f"python{v}") for v in wanted))]
    for version in wanted:
        places += sorted(map(str, home.glob(f"versions/{version}.*/bin/python")))
    found: dict[str, str] = {}
    for place in places:
        answer = version_of(place)
        if answer is not None:
            found.setdefault(answer, place)
    return found


def version_of(python: str) -> str | None:
    """Such as ``3.8``; None where it does not run (a shim of pyenv may not)."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"(\d+\.\d+)\s*", done.stdout)
    return match.group(1) if done.returncode == 0 and match else None


def install(environment: Environment, python: str) -> Path:
    """The environment's Python, after making what is missing; raises CalledProcessError."""
    place = PLACE / environment.name
    inside = place / "bin" / "python"
    mark = place / COMPLETE
    pins = "\n".join(environment.packages)
    if mark.is_file() and mark.read_text() == pins:
        print(f"{environment.name}: there already")
        return inside
    shutil.rmtree(place, ignore_errors=True)
    start = time.monotonic()
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, *environment.packages], check=True)
    mark.write_text(pins)
    print(f"{environment.name}: installed in {time.monotonic() - start:.0f} s")
    return inside


def main() -> int:
    """The exit status of the tests, or 2 with a sentence where nothing can be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="say what it would cost, and stop")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these environments only")
    parser.add_argument("--python", nargs="+", default=[], metavar="PATH", help="more Pythons")
    parser.add_argument("--pytest", nargs="+", default=[], metavar="ARG", help="more for pytest")
    given = parser.parse_args()
    names = [e.name for e in ENVIRONMENTS]
    unknown = sorted(set(given.only or ()) - set(names))
    if unknown:
        print(f"There is no environment {unknown[0]!r}: choose from {', '.join(names)}.")
        return 2
    chosen = [e for e in ENVIRONMENTS if not given.only or e.name in given.only]
    found = pythons(given.python)
    usable = []
    for e in chosen:
        there = (PLACE / e.name / COMPLETE).is_file()
        cost = (
            "there already" if there else f"{e.download:.1f} GB to download, {e.disk:.1f} on disk"
        )
        if e.python in found:
            usable.append(e)
            print(f"{e.name}: {found[e.python]}; {', '.join(e.packages)}; {cost}")
        else:
            print(f"{e.name}: left out, no Python {e.python} was found (name one with --python)")
    missing = [e for e in usable if not (PLACE / e.name / COMPLETE).is_file()]
    print(
        f"In all about {sum(e.download for e in missing):.1f} GB to download and "
        f"{sum(e.disk for e in missing):.1f} GB on disk, below {PLACE}."
    )
    if given.list:
        return 0
    if not usable:
        print("No environment can be made: install one of these Pythons, or name it with --python.")
        return 2
    ready = []
    for e in usable:
        try:
            ready.append(install(e, found[e.python]))
        except subprocess.CalledProcessError as error:
            print(f"{e.name}: left out, '{' '.join(error.cmd[:4])} ...' failed; see above.")
    if not ready:
        print("No environment could be made; the reasons stand above.")
        return 2
    environ = {**os.environ, "PILOTAGE_PROBE_PYTHONS": os.pathsep.join(map(str, ready))}
    command = [sys.executable, "-m", "pytest", "tests/core/runs/probe", "-rs", *given.pytest]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
