"""What the machine and its TPU chips do while a run goes on.

The host's figures come from ``/proc``. The TPU's come from tpu-info's library in a process of its
own with a time limit (``tpu_reader``), in the project's Python or else in ours: it may hang, and
libtpu belongs to one process at a time. What is not there is said once and never guessed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from core.events import HostSampled
from core.runs import environment
from core.text import clean

EVERY_S = 10.0
LIMIT_S = 20.0
"""Seconds a reading of the TPU may take, the start of Python and the import of grpc included."""

TRIES = 3
"""Failures of the reader in a row after which it is not started again in this run."""

MAX_CHIPS = 32
READER = Path(__file__).with_name("tpu_reader.py")
NO_TPU = "No TPU on this machine: the figures are the host's alone."


def tpu_devices(root: Path = Path("/dev")) -> list[Path]:
    """The device nodes of TPU chips: ``/dev/accelN``, or ``/dev/vfio/N`` on newer machines.

    A node of vfio may belong to another device; only tpu-info can tell.
    """
    found = [p for p in root.glob("accel*") if re.fullmatch(r"accel\d+", p.name)]
    return sorted(found or (p for p in root.glob("vfio/*") if p.name.isdigit()))


class Telemetry:
    """The telemetry of one run: ``directory`` is on the disk that is looked at.

    ``python`` is the project's interpreter. ``pythons`` replaces those that the reader is tried
    with, ``devices`` the look for chips, and ``env`` is added to the reader's environment. ``told``
    holds the sentences that were said already, which runs of one session may share.
    """

    def __init__(
        self,
        directory: Path,
        python: str = "",
        *,
        every_s: float = EVERY_S,
        limit_s: float = LIMIT_S,
        devices: Callable[[], Sequence[Path]] = tpu_devices,
        env: dict[str, str] | None = None,
        pythons: Sequence[str] | None = None,
        told: set[str] | None = None,
    ) -> None:
        self._directory = directory
        self._every_s = every_s
        self._limit_s = limit_s
        self._devices = devices
        self._env = env or {}
        self._pythons = list(pythons or dict.fromkeys([python or sys.executable, sys.executable]))
        self._cpu: tuple[int, int] | None = None
        self._notes = told if told is not None else set()
        self._failures = 0
        self._reader: asyncio.subprocess.Process | None = None

    async def samples(self) -> AsyncIterator[HostSampled]:
        """A sample now and then one each interval, until it is closed or cancelled."""
        tpu = bool(self._devices())
        try:
            cpu_percent(self)  # the first one has nothing to compare with
            note = "" if tpu else NO_TPU
            while True:
                chips: list[dict[str, Any]] = []
                if tpu:
                    chips, note = await self._chips()
                yield host_sample(self, chips, self._once(note))
                await asyncio.sleep(self._every_s)
        finally:
            await self._end_reader()

    def _once(self, note: str) -> str:
        if not note or note in self._notes or len(self._notes) >= 20:
            return ""
        self._notes.add(note)
        return note

    # --- the reader ------------------------------------------------------------------------

    async def _chips(self) -> tuple[list[dict[str, Any]], str]:
        """The chips as they are now, and a sentence."""
        if self._failures >= TRIES or not self._pythons:
            return [], ""
        try:
            said = await asyncio.wait_for(self._read(), self._limit_s)
        except (TimeoutError, asyncio.TimeoutError):
            await self._end_reader()
            self._failures += 1
            return [], (
                f"tpu-info did not answer within {self._limit_s:g} s; the TPU's figures are missing."
            )
        except (OSError, ValueError) as error:
            await self._end_reader()
            self._failures += 1
            return [], f"The TPU's figures can't be read: {clean(str(error))[:300]}."
        chips, note = said
        if note != "missing":
            self._failures = 0
            return chips, note
        await self._end_reader()
        tried = self._pythons.pop(0)
        if self._pythons:
            return await self._chips()
        return [], (
            f"tpu-info is not installed in {tried}: HBM and duty cycle are not known. "
            f"{tried} -m pip install tpu-info"
        )

    async def _read(self) -> tuple[list[dict[str, Any]], str]:
        """One line of the reader, which is started if it does not run."""
        if self._reader is None:
            env = environment.for_run(os.environ, {"TPU_SKIP_MDS_QUERY": "1", **self._env})
            self._reader = await asyncio.create_subprocess_exec(
                *(self._pythons[0], str(READER), str(self._every_s)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/",
                env=env,
                start_new_session=True,
            )
        reader = self._reader
        assert reader.stdout is not None and reader.stderr is not None
        line = await reader.stdout.readline()
        if not line:
            said = (await reader.stderr.read(65536)).decode("utf-8", "replace").strip()
            last = said.splitlines()[-1] if said else "it said nothing"
            raise ValueError(f"tpu-info ended with exit code {await reader.wait()} ({last})")
        value = json.loads(line)
        chips = value.get("chips") if isinstance(value, dict) else None
        if not isinstance(chips, list):
            raise ValueError("tpu-info's reader answered with something else")
        note = value.get("note")
        return (
            [c for c in map(_chip, chips[:MAX_CHIPS]) if c],
            clean(note) if isinstance(note, str) else "",
        )

    async def _end_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None:
            return
        with contextlib.suppress(ProcessLookupError):
            reader.kill()
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(reader.wait(), 5.0)


async def tpu_now(python: str, **more: Any) -> tuple[list[dict[str, Any]], str]:
    """One reading of the TPU's chips, and a sentence where there is something to say."""
    telemetry = Telemetry(Path("/"), python, every_s=0, **more)
    if not telemetry._devices():
        return [], NO_TPU
    try:
        return await telemetry._chips()
    finally:
        await telemetry._end_reader()


def _chip(value: Any) -> dict[str, Any] | None:
    """A chip as the reader told it, with what can be used of it."""
    if not isinstance(value, dict) or not isinstance(value.get("chip"), int):
        return None
    chip: dict[str, Any] = {"chip": value["chip"], "kind": clean(str(value.get("kind", "")))[:20]}
    for name in ("hbm_used_mb", "hbm_total_mb", "duty_pct"):
        number = value.get(name)
        if isinstance(number, int | float) and not isinstance(number, bool):
            chip[name] = float(number)
    pids = value.get("pids")
    if isinstance(pids, list):
        chip["pids"] = [pid for pid in pids[:16] if isinstance(pid, int)]
    return chip


# --- the host --------------------------------------------------------------------------------


def host_sample(telemetry: Telemetry, chips: list[dict[str, Any]], note: str) -> HostSampled:
    """The host's figures right now, with what is given of the chips."""
    memory = meminfo()
    total, free = memory.get("MemTotal"), memory.get("MemAvailable")
    swap, swap_free = memory.get("SwapTotal"), memory.get("SwapFree")
    disk: float | None = None
    with contextlib.suppress(OSError):
        disk = round(shutil.disk_usage(telemetry._directory).free / 1048576, 1)
    load: float | None = None
    with contextlib.suppress(OSError):
        load = round(os.getloadavg()[0], 2)
    return HostSampled(
        cpu_pct=cpu_percent(telemetry),
        load1=load,
        mem_used_mb=round(total - free, 1) if total is not None and free is not None else None,
        mem_total_mb=total,
        swap_used_mb=(
            round(swap - swap_free, 1) if swap is not None and swap_free is not None else None
        ),
        disk_free_mb=disk,
        chips=chips,
        note=note,
    )


def cpu_percent(telemetry: Telemetry) -> float | None:
    """Percent of all CPUs' time that was used since the call before; None on the first."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(x) for x in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    idle, total = sum(fields[3:5]), sum(fields)  # idle and iowait; guest is part of user
    before, telemetry._cpu = telemetry._cpu, (idle, total)
    if before is None or total <= before[1]:
        return None
    return round(100 * (1 - (idle - before[0]) / (total - before[1])), 1)


def meminfo() -> dict[str, float]:
    """``/proc/meminfo`` in MiB; empty where it can't be read."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            found[name] = round(int(value.split()[0]) / 1024, 1)
    return found
