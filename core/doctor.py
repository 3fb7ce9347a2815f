"""What is there, what is missing, and what to do about it: the checks of ``pilotage doctor``.

Nothing here imports torch or touches an accelerator in this process: libtpu belongs to one
process at a time, and asking must not take it from a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.text import clean

#: States of a line: ``ok``; ``note`` (works, with less); ``missing`` (something needed is not there).
STATES = ("ok", "note", "missing")

#: Free space below which a session with long logs may not fit (measured: a demo session takes
#: a few MB; a 10 GB log is the largest that Pilotage is built for).
MIN_FREE_GB = 2.0

_RUNS_PYTHON_QUERY = """
import importlib.metadata as m, json, sys
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps({"python": sys.version.split()[0],
                  **{n: version(n)
                     for n in ("torch", "torch_xla", "torch-tpu", "libtpu", "scikit-learn")}}))
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report: what was looked at, how it stands, and what to do."""

    what: str
    state: str
    text: str
    todo: str = ""


def examine(python: str, home: Path) -> list[Line]:
    """Every line of the report.

    ``python`` is the interpreter that runs are started with, ``home`` the directory of the
    sessions. Takes about half a second; no check raises.
    """
    lines = [_self()]
    for check in (
        lambda: _runs_python(python),
        lambda: _tpu(python),
        _git,
        _terminal,
        lambda: _home(home),
        lambda: _disk(home),
    ):
        lines += _safely(check)
    return lines


def holds(lines: list[Line]) -> bool:
    """Whether nothing needed is missing."""
    return all(line.state != "missing" for line in lines)


def as_json(lines: list[Line]) -> dict[str, object]:
    """The documented object of ``pilotage doctor --json``."""
    return {"holds": holds(lines), "lines": [asdict(line) for line in lines]}


def _safely(check: Callable[[], list[Line]]) -> list[Line]:
    try:
        return check()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return [Line("doctor", "note", f"A check could not be made: {error}.")]


def _self() -> Line:
    version = platform.python_version()
    return Line("pilotage", "ok", f"runs on Python {version} ({sys.executable})")


def _runs_python(python: str) -> list[Line]:
    what = "Python of the runs"
    found, problem = _installed(python)
    if problem:
        return [Line(what, "missing", problem, "Name another with --python or in [project].")]
    lines = [Line(what, "ok", f"{shutil.which(python)}, Python {found['python']}")]
    lines.append(_torch(found.get("torch"), python))
    lines.append(_backend(found))
    return lines


def lacking(python: str, packages: Sequence[str]) -> str:
    """What keeps an interpreter from having all of the packages, as a clause; "" for nothing."""
    found, problem = _installed(python)
    if problem:
        return problem
    absent = [name for name in packages if found.get(name) is None]
    return f"{python} has no {' and no '.join(absent)}" if absent else ""


def _installed(python: str) -> tuple[dict[str, Any], str]:
    """Versions of what matters in an interpreter, by package; or why it can't be asked."""
    path = shutil.which(python)
    if path is None:
        return {}, f"{python} is not there, or can't be executed"
    try:
        done = subprocess.run(
            [str(Path(path).absolute()), "-c", _RUNS_PYTHON_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            stdin=subprocess.DEVNULL,
            cwd="/",  # not the directory we happen to be in: it may have a json.py
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {}, f"{path} does not start: {error}"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {}, f"{path} does not start: {clean(last)[:200]}"
    try:
        found = json.loads(done.stdout)
        found["python"]
    except (ValueError, KeyError, TypeError):
        return {}, f"{path} is no Python: it does not answer as one"
    return found, ""


def _torch(version: str | None, python: str) -> Line:
    if version is None:
        return Line(
            "torch",
            "missing",
            "not installed in the Python of the runs",
            f"{python} -m pip install 'pilotage[xla]', or point --python at the project's own.",
        )
    return Line("torch", "ok", version)


def _backend(found: dict[str, str | None]) -> Line:
    torch, xla, tpu = found.get("torch"), found.get("torch_xla"), found.get("torch-tpu")
    if xla is None and tpu is None:
        return Line(
            "torch_xla",
            "missing",
            "neither torch_xla nor torch-tpu is installed in the Python of the runs",
            "pip install torch==2.9.1 torch_xla==2.9.0 there: the two fit each other.",
        )
    if xla is None:
        return Line("torch-tpu", "ok", str(tpu))
    if torch is not None and torch.split(".")[:2] != xla.split("+")[0].split(".")[:2]:
        return Line(
            "torch_xla",
            "missing",
            f"{xla} does not fit torch {torch}: they must be of the same minor version",
            f"pip install 'torch=={'.'.join(xla.split('+')[0].split('.')[:2])}.*' there.",
        )
    return Line("torch_xla", "ok", str(xla))


def _tpu(python: str) -> list[Line]:
    from core.runs.telemetry import tpu_devices, tpu_now

    nodes = tpu_devices()
    if not nodes:
        return [
            Line(
                "TPU chips",
                "note",
                "none on this machine: runs for the target xla-cpu work, and are no TPU figures",
            )
        ]
    names = ", ".join(str(p) for p in nodes)
    lines = [Line("TPU chips", "ok", f"{len(nodes)} device nodes ({names})")]
    chips, note = asyncio.run(tpu_now(shutil.which(python) or sys.executable))
    if chips:
        kinds = ", ".join(sorted({str(chip["kind"]) for chip in chips}))
        held = sorted({pid for chip in chips for pid in chip.get("pids", [])})
        text = f"sees {len(chips)} ({kinds}), " + (
            f"in use by process {', '.join(map(str, held))}" if held else "used by nobody"
        )
        lines.append(Line("tpu-info", "ok", text))
    if note:
        # What to do stands behind what is missing.
        text, found, todo = note.partition(" not known. ")
        lines.append(Line("tpu-info", "note", f"{text} not known" if found else note, todo))
    return lines


def _git() -> list[Line]:
    path = shutil.which("git")
    if path is None:
        return [Line("git", "missing", "not installed", "Install it: the worktree needs it.")]
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    return [Line("git", "ok", done.stdout.strip().removeprefix("git version "))]


def _terminal() -> list[Line]:
    if not sys.stdout.isatty():
        return [Line("terminal", "note", "standard output is no terminal here; not looked at")]
    term = os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    notes, todo = [], []
    if term in ("", "dumb", "linux"):
        notes.append(f"TERM is {term or 'not set'!r}")
        todo.append("use a terminal that sets TERM=xterm-256color, or start tmux")
    if size.columns < 80 or size.lines < 24:
        notes.append("smaller than 80x24")
        todo.append("make it larger")
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        notes.append(f"encoding {sys.stdout.encoding}")
        todo.append("set LANG=C.UTF-8")
    colours = "true colour" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "colours"
    inside = " in tmux" if os.environ.get("TMUX") else ""
    text = f"{term}{inside}, {size.columns}x{size.lines}, {colours}"
    if os.environ.get("NO_COLOR"):
        text += ", NO_COLOR is set"
    if notes:
        return [Line("terminal", "note", f"{text}: {', '.join(notes)}", f"{', '.join(todo)}.")]
    return [Line("terminal", "ok", text)]


def _home(home: Path) -> list[Line]:
    place = home
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        todo = "Set PILOTAGE_HOME to a directory of yours."
        return [Line("home", "missing", f"{home} can't be written", todo)]
    kind = _file_system(place)
    if kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "gcsfuse", "fuse.gcsfuse"):
        return [
            Line(
                "home",
                "missing",
                f"{home} is on {kind}, where SQLite's locks can't be trusted",
                "Set PILOTAGE_HOME to a local disk.",
            )
        ]
    return [Line("home", "ok", f"{home} ({kind or 'unknown file system'})")]


def _file_system(path: Path) -> str:
    """Type of the file system that holds ``path``, from /proc/self/mounts; "" where unknown."""
    best, kind = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    real = str(path.resolve())
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _disk(home: Path) -> list[Line]:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    if free < MIN_FREE_GB:
        todo = f"Free some: less than {MIN_FREE_GB:g} GB may not hold a long session."
        return [Line("disk", "missing", f"{free:.1f} GB free for {home}", todo)]
    return [Line("disk", "ok", f"{free:.0f} GB free for {home}")]


def describe(lines: list[Line]) -> str:
    """The report as text: one line each, what to do beneath it."""
    signs = {"ok": "ok  ", "note": "note", "missing": "MISS"}
    width = max(len(line.what) for line in lines)
    out = []
    for line in lines:
        out.append(f"{signs[line.state]}  {line.what:<{width}}  {line.text}")
        if line.todo:
            out.append(f"      {'':<{width}}  -> {line.todo}")
    missing = [line.what for line in lines if line.state == "missing"]
    out.append("")
    out.append(
        f"Missing: {', '.join(missing)}. The cockpit, replay and export work without torch."
        if missing
        else "Everything a migration needs is here."
    )
    return "\n".join(out)
