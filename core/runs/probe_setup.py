"""Hand the probe over to a run: a copy in a directory of the run's own, and its environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from core.errors import PilotageError

Mode = Literal["light", "parity"]
Precision = Literal["fp32", "own"]
Cuda = Literal["", "cpu"]
BUDGET_MB = 256  # of tensors that one rank's capture may take

PROBE = Path(__file__).parent / "probe"
PARTS = ("sitecustomize.py", "pilotage_probe")


def install(
    dest: Path,
    *,
    mode: Mode = "light",
    steps: int = 10,
    env: Mapping[str, str] | None = None,
    capture: Path | None = None,
    reference: Path | None = None,
    precision: Precision = "own",
    cuda: Cuda = "",
    budget_mb: int = BUDGET_MB,
) -> dict[str, str]:
    """Copy the probe to ``dest`` and return the variables that make a run use it.

    ``dest/probe`` goes to the front of ``PYTHONPATH`` (``env``'s, or none), so that nothing of
    Pilotage's own is importable in the run. Records appear as ``dest/records/<pid>.jsonl``.
    ``steps`` counts optimizer steps and matters in parity mode only, as do the next three.
    ``capture``: a directory to write weights, batches, activations and gradients to, at most
    ``budget_mb`` MiB of them by each rank (the rest is sampled). ``reference``: such a directory
    to start from and to be compared with. ``precision`` ``fp32``: what the program asks of half
    precision is not done, and noted. ``cuda`` ``cpu``: what it asks of CUDA devices is done on
    the CPU, in any mode.
    Raises PilotageError if the copy or the directory ``capture`` cannot be made.
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
    if capture is not None:
        try:
            capture.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PilotageError(
                f"The directory {capture}, for tensors of the run, could not be made: "
                f"{error.strerror or error}. Check that its parent can be written."
            ) from error
    path = str(code.resolve())
    inherited = (env or {}).get("PYTHONPATH", "")
    variables = {
        "PYTHONPATH": path + os.pathsep + inherited if inherited else path,
        "PILOTAGE_PROBE_OUT": str(records.resolve()),
        "PILOTAGE_PROBE_MODE": mode,
        "PILOTAGE_PROBE_STEPS": str(steps),
        "PYTHONUNBUFFERED": "1",
    }
    if capture is not None:
        variables["PILOTAGE_PROBE_CAPTURE"] = str(capture.resolve())
        variables["PILOTAGE_PROBE_BUDGET_MB"] = str(budget_mb)
    if reference is not None:
        variables["PILOTAGE_PROBE_REFERENCE"] = str(reference.resolve())
    if precision != "own":
        variables["PILOTAGE_PROBE_PRECISION"] = precision
    if cuda:
        variables["PILOTAGE_PROBE_CUDA"] = cuda
    return variables


def streams(socket: Path, shared: str) -> dict[str, str]:
    """Variables by which the probe of a rank finds where to hand over pipes of its own.

    ``shared`` names the run's own two pipes (``core.runs.streams``): only a process whose output
    still goes there takes one of its own.
    """
    return {"PILOTAGE_PROBE_SOCKET": str(socket.absolute()), "PILOTAGE_PROBE_PIPES": shared}


def records_dir(dest: Path) -> Path:
    """Where the probe of a run installed in ``dest`` writes its records."""
    return dest / "records"
