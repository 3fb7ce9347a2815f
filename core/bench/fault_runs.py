"""The processes of the fault bench: copies with their patches, references and verifications."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.bench.fault_projects import Project, Variant, to_toml
from core.config.reading import FILE_NAME
from core.errors import PilotageError
from core.text import clean

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, str(ROOT / "pilotage.py"))
GRACE_S = 20.0
"""Seconds that a command has after SIGTERM to end its runs, before it is killed."""
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", ".git")


class StepFailed(PilotageError):
    """A patch, a reference or a verification could not be made; the sentence says why."""


class Processes:
    """Starts Pilotage's own commands, each with a time limit; ``stop`` ends those that run."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = list(command)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self.stopped = False

    def ask(
        self, arguments: Sequence[str], place: Path, limit_s: float
    ) -> tuple[int, dict[str, Any]]:
        """Exit code and the JSON object of a command; what it said is kept in ``place``.

        Raises :class:`StepFailed` where it takes longer than ``limit_s`` seconds, ends by a
        signal, or prints no object.
        """
        environ = {**os.environ, "PILOTAGE_HOME": str(place / "home")}
        name = arguments[0]
        with (
            (place / f"{name}.err").open("w+b") as err,
            (place / f"{name}.json").open("w+b") as out,
        ):
            with self._lock:
                if self.stopped:
                    raise StepFailed("The bench was stopped.")
                process = subprocess.Popen(
                    [*self._command, *arguments],
                    cwd=place,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    text=True,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                end(process)
                raise StepFailed(
                    f"`pilotage {name}` took longer than its limit of {limit_s:g} s and was ended."
                ) from None
            finally:
                with self._lock:
                    self._running.discard(process)
            out.seek(0)
            err.seek(0)
            text, told = (f.read().decode("utf-8", "replace") for f in (out, err))
        if self.stopped:
            raise StepFailed("The bench was stopped.")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            lines = [clean(line) for line in told.strip().splitlines()[-3:]]
            last = f" Its last words: {' / '.join(lines)}" if lines else ""
            raise StepFailed(
                f"`pilotage {name}` ended with exit {process.returncode} and no JSON object.{last}"
            )
        if "error" in answer and "checks" not in answer:
            raise StepFailed(clean(str(answer["error"])))
        return process.returncode, answer

    def stop(self) -> None:
        """End everything that runs; nothing more is started."""
        with self._lock:
            self.stopped = True
            running = list(self._running)
        for process in running:
            with contextlib.suppress(OSError):
                process.terminate()


def end(process: subprocess.Popen[str], grace_s: float = GRACE_S) -> None:
    """End a command: SIGTERM, so that it ends its own runs, and SIGKILL to its group after a while."""
    with contextlib.suppress(OSError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# --- what they are started on ------------------------------------------------------------------


def lay_out(
    original: Path, place: Path, tables: Mapping[str, Any], patches: Sequence[Path]
) -> Path:
    """A copy of the original below ``place`` with its patches and a ``pilotage.toml``.

    Raises :class:`StepFailed` where the copy can't be made or a patch does not apply.
    """
    copy = place / "project"
    try:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy, symlinks=True, ignore=_SKIPPED)
        for patch in patches:
            apply_patch(copy, patch)
        (copy / FILE_NAME).write_text(to_toml(tables), encoding="utf-8")
    except OSError as error:
        raise StepFailed(f"{copy} can't be written: {error.strerror or error}.") from error
    return copy


def apply_patch(copy: Path, patch: Path) -> None:
    """``git apply``, whole or not at all, as if the copy were in no repository."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        # In a repository git passes over whatever the patch says of files elsewhere, and is silent.
        "GIT_CEILING_DIRECTORIES": str(copy.resolve().parent),
        "LC_ALL": "C",
    }
    before = _contents(copy)
    try:
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", str(patch.resolve())],
            cwd=copy,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    except FileNotFoundError:
        raise StepFailed(
            "There is no git on PATH, which applies the patches: install it."
        ) from None
    except subprocess.TimeoutExpired:
        raise StepFailed(f"git took more than a minute to apply {patch.name}.") from None
    if done.returncode:
        told = "; ".join(
            clean(line) for line in done.stderr.decode("utf-8", "replace").strip().splitlines()[:2]
        )
        raise StepFailed(f"The patch {_short(patch)} does not apply: {told}.")
    if _contents(copy) == before:
        raise StepFailed(f"The patch {_short(patch)} changes nothing.")


def _short(patch: Path) -> str:
    return "/".join(patch.parts[-3:])


def _contents(copy: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(copy)): path.read_bytes()
        for path in sorted(copy.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def record_reference(
    processes: Processes, project: Project, place: Path, limit_s: float, python: str | None
) -> tuple[Path, float]:
    """Record the original's bundle; it and the seconds that took."""
    began = time.monotonic()
    place.mkdir(parents=True, exist_ok=True)
    copy = lay_out(project.original, place, project.tables, ())
    bundle = place / "reference.pilotage"
    arguments = ["reference", "record", str(copy), "-o", str(bundle), "--json", *_python(python)]
    code, answer = processes.ask(arguments, place, limit_s)
    if code or not bundle.is_file():
        raise StepFailed(
            f"The reference could not be recorded: exit {code}, {clean(json.dumps(answer))[:300]}"
        )
    return bundle, time.monotonic() - began


def verify_variant(
    processes: Processes,
    project: Project,
    variant: Variant,
    bundle: Path,
    place: Path,
    limit_s: float,
    python: str | None,
    keep: bool = False,
) -> tuple[dict[str, Any], float]:
    """Verify one variant against the bundle; the JSON object and the seconds that took.

    ``keep``: its session stays in ``place/home``.
    """
    began = time.monotonic()
    place.mkdir(parents=True, exist_ok=True)
    copy = lay_out(project.original, place, variant.tables, variant.patches)
    arguments = ["verify", str(copy), "--reference", str(bundle), "--json", *_python(python)]
    if variant.level is not None and variant.level > 3:
        arguments += ["--level", str(variant.level)]
    if keep:
        arguments.append("--keep")
    _, answer = processes.ask(arguments, place, limit_s)
    return answer, time.monotonic() - began


def _python(python: str | None) -> list[str]:
    return ["--python", python] if python else []
