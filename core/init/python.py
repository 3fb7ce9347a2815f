"""Finding the Python that a project runs in, and asking it what it has. Nothing is imported."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.init.facts import Interpreter
from core.risk.tree import read_start
from core.text import clean

LIMIT_S = 15.0
"""Seconds that an interpreter has to answer in."""

MAX_ASKED = 8
"""Interpreters that are asked."""

MAX_ANSWER = 1 << 16
"""Bytes after which an interpreter that still prints is ended."""

_QUERY = """
import json, sys
try:
    from importlib.metadata import version
except ImportError:
    from pkg_resources import get_distribution as _get
    version = lambda name: _get(name).version
def ask(name):
    try:
        return version(name)
    except Exception:
        return None
print(json.dumps({"python": sys.version.split()[0], "torch": ask("torch"),
                  "torch_xla": ask("torch_xla") or ask("torch-xla")}))
"""


def find_pythons(root: Path, named: str = "") -> list[Interpreter]:
    """The interpreters the project may run in, the likeliest first; each has been asked.

    ``named`` is the operator's own choice and then the only one. Otherwise, in this order: an
    environment in or beside the project, the active environment, ``.python-version``, the name
    in ``environment.yml``, ``python3`` of the PATH, the Python that Pilotage runs in. The
    likeliest is the first that has torch.
    """
    if named:
        own = Path(shutil.which(named) or named).expanduser().absolute()
        return [ask(str(own), "--python")]
    found: list[Interpreter] = []
    seen: set[str] = set()
    for path, source in _candidates(root, os.environ):
        key = os.path.realpath(Path(path).parent)  # one environment has several names
        if key in seen or len(found) >= MAX_ASKED:
            continue
        seen.add(key)
        found.append(ask(path, source))
    return sorted(found, key=lambda p: (bool(p.problem), p.torch is None))


def _candidates(root: Path, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for place in (root, root.parent):
        for name in (".venv", "venv", "env", ".env", "virtualenv", ".conda"):
            python = place / name / "bin" / "python"
            if python.is_file():
                where = "in the project" if place == root else "beside the project"
                yield str(python), f"{name}, {where}"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if active := env.get(variable):
            yield str(Path(active) / "bin" / "python"), f"the active environment (${variable})"
    yield from _pinned(root)
    yield from _conda(root)
    for name in ("python3", "python"):
        if path := shutil.which(name):
            yield path, f"{name} of the PATH"
            break
    yield sys.executable, "the Python that Pilotage runs in"


def _pinned(root: Path) -> Iterator[tuple[str, str]]:
    match = re.search(r"\d+\.\d+(?:\.\d+)?", read_start(root / ".python-version", 200))
    if match is None:
        return
    pyenv = Path.home() / ".pyenv" / "versions" / match[0] / "bin" / "python"
    if pyenv.is_file():
        yield str(pyenv), f".python-version ({match[0]})"
    elif path := shutil.which("python" + ".".join(match[0].split(".")[:2])):
        yield path, f".python-version ({match[0]})"


def _conda(root: Path) -> Iterator[tuple[str, str]]:
    for file in ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml"):
        text = read_start(root / file, 20_000)
        if match := re.search(r"^name:\s*[\"']?([\w.-]+)", text, re.M):
            for base in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", ".conda"):
                python = Path.home() / base / "envs" / match[1] / "bin" / "python"
                if python.is_file():
                    yield str(python), f"the conda environment {match[1]} of {file}"


def ask(path: str, source: str) -> Interpreter:
    """Ask one interpreter for its version and for torch, without importing it."""
    try:
        out, error = _answer(path)
        found = json.loads(out.strip().splitlines()[-1])
        return Interpreter(
            path, source, str(found["python"]), found.get("torch"), found.get("torch_xla")
        )
    except subprocess.TimeoutExpired:
        return Interpreter(path, source, problem=f"did not answer within {LIMIT_S:g} s")
    except OSError as err:
        return Interpreter(path, source, problem=f"does not start: {err.strerror or err}")
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        lines = error.strip().splitlines() or ["it did not answer as a Python"]
        return Interpreter(path, source, problem=f"does not start: {clean(lines[-1])[:120]}")


def _answer(path: str) -> tuple[str, str]:
    """What an interpreter prints, and its errors, until it has printed :data:`MAX_ANSWER` bytes.

    It is whatever lies at ``path``: what prints on and on is ended, as is what it started.
    Raises ``subprocess.TimeoutExpired`` after :data:`LIMIT_S` seconds, and :class:`OSError`.
    """
    process = subprocess.Popen(
        [path, "-c", _QUERY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",  # not the project: it may have a json.py
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")},
        start_new_session=True,
    )
    try:
        return _read_both(process, time.monotonic() + LIMIT_S)
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _read_both(process: subprocess.Popen[bytes], until: float) -> tuple[str, str]:
    out, error = bytearray(), bytearray()
    with selectors.DefaultSelector() as waiting:
        for pipe, read in ((process.stdout, out), (process.stderr, error)):
            if pipe is not None:
                waiting.register(pipe, selectors.EVENT_READ, read)
        while waiting.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, LIMIT_S)
            for key, _ in waiting.select(left):
                more = os.read(key.fd, MAX_ANSWER)
                key.data.extend(more)
                if not more:
                    waiting.unregister(key.fileobj)
            if max(len(out), len(error)) >= MAX_ANSWER:
                break
    return out.decode("utf-8", "replace"), error.decode("utf-8", "replace")
