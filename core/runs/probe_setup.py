"""Hand the probe over to a run: a copy in a directory of the run's own, and its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from core.errors import PilotageError

Mode = Literal["light", "parity"]

PROBE = Path(__file__).parent / "probe"
PARTS = ("sitecustomize.py", "pilotage_probe")


def install(
    dest: Path,
    *,
    mode: Mode = "light",
    steps: int = 10,
    env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Copy the probe to ``dest`` and return the variables that make a run use it.

    ``dest/probe`` goes to the front of ``PYTHONPATH`` (``env``'s, or none), so that nothing of
    Pilotage's own is importable in the run. Records appear as ``dest/records/<pid>.jsonl``.
    ``steps`` counts optimizer steps and matters in parity mode only.
    Raises PilotageError if the copy cannot be made.
    """
    code, records = dest / "probe", dest / "records"
    try:
        records.mkdir(parents=True, exist_ok=True, mode=0o700)
        code.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            source = PROBE / part
            if source.is_dir():
                shutil.copytree(
                    source,
                    code / part,
                    ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
                    dirs_exist_ok=True,
                )
            else:
                shutil.copyfile(source, code / part)
    except OSError as error:
        raise PilotageError(
            f"The probe could not be copied to {code}: {error.strerror or error}. "
            "Check that the disk has room and the directory can be written."
        ) from error
    path = str(code.resolve())
    inherited = (env or {}).get("PYTHONPATH", "")
    return {
        "PYTHONPATH": path + os.pathsep + inherited if inherited else path,
        "PILOTAGE_PROBE_OUT": str(records.resolve()),
        "PILOTAGE_PROBE_MODE": mode,
        "PILOTAGE_PROBE_STEPS": str(steps),
        "PYTHONUNBUFFERED": "1",
    }


def streams(socket: Path, shared: str) -> dict[str, str]:
    """Variables by which the probe of a rank finds where to hand over pipes of its own.

    ``shared`` names the run's own two pipes (``core.runs.streams``): only a process whose output
    still goes there takes one of its own.
    """
    return {"PILOTAGE_PROBE_SOCKET": str(socket.absolute()), "PILOTAGE_PROBE_PIPES": shared}


def records_dir(dest: Path) -> Path:
    """Where the probe of a run installed in ``dest`` writes its records."""
    return dest / "records"
