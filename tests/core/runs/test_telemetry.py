"""Telemetry: the host's own figures, and a TPU library that answers, is absent, hangs or dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from core import doctor
from core.events import HostSampled
from core.runs import telemetry
from core.runs.telemetry import NO_TPU, Telemetry, tpu_devices, tpu_now

# The surface of tpu-info 0.14.2 that is used, with the figures of two v5e chips.
DEVICE = """
import enum
from typing import NamedTuple
class _Info(NamedTuple):
    name: str
    hbm_gib: int
    devices_per_chip: int
class TpuChip(enum.Enum):
    V5E = _Info("v5e", 16, 1)
    V3 = _Info("v3", 16, 2)
def get_local_chips():
    return TpuChip.V5E, 2
def chip_path(chip_type, index):
    return f"/dev/vfio/{index}"
def get_chip_owners():
    return {"/dev/vfio/0": 4711, "/dev/vfio/1": 4711}
"""
METRICS = """
from typing import NamedTuple
class Usage(NamedTuple):
    device_id: int
    memory_usage: int
    total_memory: int
    duty_cycle_pct: float
def get_chip_usage(chip_type, addr="localhost:8431"):
    return [Usage(0, 2 << 30, 16 << 30, 87.5), Usage(1, 1 << 30, 16 << 30, 0.0)]
"""


def library(tmp_path: Path, device: str = DEVICE, metrics: str = METRICS) -> dict[str, str]:
    place = tmp_path / "lib" / "tpu_info"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / "device.py").write_text(device)
    (place / "metrics.py").write_text(metrics)
    return {"PYTHONPATH": str(place.parent)}


async def take(count: int, tmp_path: Path, **more: Any) -> list[HostSampled]:
    more = {"every_s": 0.02, "devices": lambda: [Path("/dev/vfio/0")], "limit_s": 60.0, **more}
    found: list[HostSampled] = []
    samples = Telemetry(tmp_path, sys.executable, **more).samples()
    async for sample in samples:
        found.append(sample)
        if len(found) == count:
            break
    await samples.aclose()  # type: ignore[attr-defined]
    return found


async def test_the_host_without_a_tpu(tmp_path: Path) -> None:
    first, second = await take(2, tmp_path, devices=list)
    assert first.note == NO_TPU and second.note == "" and first.chips == second.chips == []
    assert first.mem_total_mb and 0 < first.mem_used_mb < first.mem_total_mb  # type: ignore[operator]
    assert first.disk_free_mb and first.load1 is not None and first.swap_used_mb is not None
    assert second.cpu_pct is None or 0 <= second.cpu_pct <= 100


async def test_figures_of_each_chip(tmp_path: Path) -> None:
    (sample,) = await take(1, tmp_path, env=library(tmp_path))
    assert sample.note == ""
    assert sample.chips == [
        {"chip": 0, "kind": "v5e", "hbm_used_mb": 2048.0, "hbm_total_mb": 16384.0,
         "duty_pct": 87.5, "pids": [4711]},
        {"chip": 1, "kind": "v5e", "hbm_used_mb": 1024.0, "hbm_total_mb": 16384.0,
         "duty_pct": 0.0, "pids": [4711]},
    ]  # fmt: skip


async def test_two_cores_of_a_chip_are_added_up(tmp_path: Path) -> None:
    device = DEVICE.replace("TpuChip.V5E, 2", "TpuChip.V3, 1")
    (sample,) = await take(1, tmp_path, env=library(tmp_path, device))
    assert [(c["hbm_used_mb"], c["duty_pct"]) for c in sample.chips] == [(3072.0, 87.5)]


async def test_a_process_for_each_chip_is_asked_at_its_own_port(tmp_path: Path) -> None:
    metrics = METRICS.replace(
        "    return [",
        "    n = int(addr[-1])\n    return [Usage(0, n << 30, 16 << 30, 1.0)]\n    [",
    )
    env = {**library(tmp_path, metrics=metrics), "TPU_RUNTIME_METRICS_PORTS": "8431,8432"}
    (sample,) = await take(1, tmp_path, env=env)
    assert [c["hbm_used_mb"] for c in sample.chips] == [1024.0, 2048.0]


async def test_a_chip_that_nobody_uses_has_no_figures(tmp_path: Path) -> None:
    device = DEVICE.replace('return {"/dev/vfio/0": 4711, "/dev/vfio/1": 4711}', "return {}")
    (sample,) = await take(1, tmp_path, env=library(tmp_path, device))
    assert sample.chips == [{"chip": 0, "kind": "v5e"}, {"chip": 1, "kind": "v5e"}]


async def test_figures_that_are_refused_are_said(tmp_path: Path) -> None:
    metrics = (
        "def get_chip_usage(kind, addr=''):\n    raise RuntimeError('UNAVAILABLE: no server')\n"
    )
    first, second = await take(2, tmp_path, env=library(tmp_path, metrics=metrics))
    assert first.note == "The TPU's figures can't be read: UNAVAILABLE: no server."
    assert second.note == "" and [c["chip"] for c in first.chips] == [0, 1]


async def test_a_library_that_is_not_installed_is_said_once(tmp_path: Path) -> None:
    first, second = await take(2, tmp_path, pythons=[sys.executable])
    assert "tpu-info is not installed in" in first.note and second.note == ""


async def test_a_library_that_hangs_is_ended_and_not_asked_for_ever(tmp_path: Path) -> None:
    env = library(tmp_path, DEVICE + "\nimport time\ntime.sleep(600)\n")
    samples = await take(4, tmp_path, env=env, limit_s=0.3)
    assert "did not answer within 0.3 s" in samples[0].note
    assert samples[1].note == samples[3].note == "" and samples[3].chips == []


async def test_a_library_that_crashes_is_said(tmp_path: Path) -> None:
    env = library(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (sample,) = await take(1, tmp_path, env=env)
    assert "tpu-info ended with exit code -11" in sample.note


async def test_a_library_that_raises_is_said(tmp_path: Path) -> None:
    env = library(tmp_path, DEVICE + "\nimport not_there\n")
    (sample,) = await take(1, tmp_path, env=env)
    assert "tpu-info can't be loaded" in sample.note and "not_there" in sample.note


async def test_hostile_answers_are_cut_to_what_can_be_used(tmp_path: Path) -> None:
    device = DEVICE.replace('_Info("v5e", 16, 1)', '_Info("v5e\\x1b[31m" + "x" * 99, 16, 1)')
    (sample,) = await take(1, tmp_path, env=library(tmp_path, device))
    assert sample.chips[0]["kind"].startswith("v5e") and "\x1b" not in sample.chips[0]["kind"]
    assert len(sample.chips[0]["kind"]) <= 20


async def test_one_reading_for_the_doctor(tmp_path: Path) -> None:
    chips, note = await tpu_now(sys.executable, devices=list)
    assert (chips, note) == ([], NO_TPU)
    some = {"devices": lambda: [Path("/dev/accel0")], "env": library(tmp_path)}
    chips, note = await tpu_now(sys.executable, **some)
    assert len(chips) == 2 and note == ""


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["accel0", "accel1", "accel"], ["accel0", "accel1"]),
        (["vfio/0", "vfio/vfio"], ["vfio/0"]),
        (["null"], []),
    ],
)
def test_device_nodes(tmp_path: Path, names: list[str], found: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert tpu_devices(tmp_path) == [tmp_path / name for name in found]


def test_the_doctor_says_what_tpu_info_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def seen(python: str) -> tuple[list[dict[str, Any]], str]:
        return [{"chip": 0, "kind": "v5e", "pids": [4711]}, {"chip": 1, "kind": "v5e"}], ""

    async def missing(python: str) -> tuple[list[dict[str, Any]], str]:
        return [], "tpu-info is not installed in py: HBM is not known. py -m pip install tpu-info"

    monkeypatch.setattr(telemetry, "tpu_devices", lambda: [Path("/dev/vfio/0")])
    monkeypatch.setattr(telemetry, "tpu_now", seen)
    nodes, line = doctor._tpu(sys.executable)
    assert nodes.state == "ok" and "/dev/vfio/0" in nodes.text
    assert (line.state, line.text) == ("ok", "sees 2 (v5e), in use by process 4711")
    monkeypatch.setattr(telemetry, "tpu_now", missing)
    _, line = doctor._tpu(sys.executable)
    assert line.state == "note" and line.text.endswith("HBM is not known")
    assert line.todo == "py -m pip install tpu-info"
    monkeypatch.setattr(telemetry, "tpu_devices", list)
    (line,) = doctor._tpu(sys.executable)
    assert line.text.startswith("none on this machine")
