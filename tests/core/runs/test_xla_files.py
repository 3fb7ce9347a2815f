"""The files that PyTorch/XLA writes during a run, read as they grow; and a real run's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from core.runs import xla_files
from core.runs.items import Ended, Output, Reports
from core.runs.launcher import Launcher, RunSpec
from core.runs.xla_files import XlaFiles, debug_env

REPORT = """
Compilation Analysis: ================================================================================
Compilation Analysis: Compilation Cause
Compilation Analysis:   {cause}
Compilation Analysis: Graph Info:
Compilation Analysis:   Graph Hash: {hash}
Compilation Analysis:   Number of Graph Inputs: 6
Compilation Analysis:   Number of Graph Outputs: 8
Compilation Analysis: Python Frame Triggered Execution:
Compilation Analysis:   sync (/v/lib/python3.11/site-packages/torch_xla/torch_xla.py:87)
Compilation Analysis:   wrapper (/s/runs/r1/probe/pilotage_probe/xla_hooks.py:12)
Compilation Analysis:   step (/home/user/project/train.py:{line})
Compilation Analysis: --------------------------------------------------------------------------------
Compilation Analysis: ================================================================================

Computation hash: 46cfc3b9
Post Compilation Analysis: ================================================================================
Post Compilation Analysis: Graph input size: 0.250000 GB
Post Compilation Analysis: ================================================================================
"""


def report(line: int = 13, cause: str = "user torch_xla.sync") -> str:
    return REPORT.format(cause=cause, hash="fe57" + "0" * 28, line=line)


def files(tmp_path: Path) -> tuple[XlaFiles, Path]:
    env = debug_env(tmp_path, {}, "light")
    path = Path(env["PT_XLA_DEBUG_FILE"])
    return XlaFiles(env, tmp_path, str(path)), path


def kinds(records: list[dict[str, object]]) -> list[object]:
    return [record["k"] for record in records]


def test_a_report_becomes_a_record_with_the_users_line(tmp_path: Path) -> None:
    xla, path = files(tmp_path)
    assert xla.read() == []
    text = report()
    path.write_text(text[: len(text) // 2])
    first = xla.read()
    path.write_text(text)
    records = first + xla.read() + xla.finish()
    assert kinds(records) == ["xla_compile", "xla_memory", "xla_compiles"]
    compiled, memory, total = records
    assert compiled["at"] == "step (/home/user/project/train.py:13)"
    assert compiled["cause_kind"] == "sync" and compiled["hash"] == "fe57" + "0" * 28
    assert (compiled["inputs"], compiled["outputs"], compiled["n"]) == (6, 8, 1)
    assert not [f for f in compiled["frames"] if "pilotage_probe" in f]  # type: ignore[attr-defined]
    assert memory["sizes_gb"] == {"graph_input": 0.25}
    assert total == {"k": "xla_compiles", "total": 1, "by_line": {compiled["at"]: 1}}


def test_too_many_reports_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_files, "MAX_REPORTS", 5)
    xla, path = files(tmp_path)
    path.write_text("".join(report(13 if i % 3 else 20) for i in range(30)))
    records = xla.read() + xla.finish()
    assert kinds(records).count("xla_compile") == 5
    assert records[-1]["total"] == 30
    assert records[-1]["by_line"] == {
        "step (/home/user/project/train.py:13)": 20,
        "step (/home/user/project/train.py:20)": 10,
    }


def test_our_own_file_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_files, "TRUNCATE_AT", 1000)
    xla, path = files(tmp_path)
    for _ in range(4):
        with path.open("a") as file:
            file.write(report())
        xla.read()
    assert path.stat().st_size == 0
    assert xla.finish()[-1]["total"] == 4


def test_a_file_of_the_projects_own_is_read_from_its_end_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(report(1))
    xla = XlaFiles({"PT_XLA_DEBUG_FILE": "mine.txt"}, tmp_path)
    with path.open("a") as file:
        file.write(report(2))
    records = xla.finish()
    assert records[0]["at"] == "step (/home/user/project/train.py:2)"
    assert path.read_text() == report(1) + report(2)


def test_nothing_is_set_where_the_run_sets_it_or_is_a_parity_run(tmp_path: Path) -> None:
    assert debug_env(tmp_path, {"PT_XLA_DEBUG": "1"}, "light") == {}
    assert debug_env(tmp_path, {"PT_XLA_DEBUG_LEVEL": "2"}, "light") == {}
    assert debug_env(tmp_path, {}, "parity") == {} == debug_env(tmp_path, {}, None)


def test_the_last_metrics_of_the_file_are_recorded(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "readings" / "recorded" / "metrics_file.txt"
    xla = XlaFiles({"XLA_METRICS_FILE": str(tmp_path / "m")}, tmp_path)
    (tmp_path / "m").write_text(recorded.read_text())
    (record,) = [r for r in xla.finish() if r["k"] == "xla_metrics"]
    assert record["counters"] and record["metrics"]
    assert len(str(record)) < 100_000


def test_garbage_is_no_report(tmp_path: Path) -> None:
    xla, path = files(tmp_path)
    path.write_bytes(os.urandom(200_000) + b"\nCompilation Analysis: " + b"x" * 300_000)
    assert kinds(xla.read() + xla.finish()) in ([], ["xla_compile", "xla_compiles"])


PROGRAM = """\
import torch, torch_xla
device = torch_xla.device()
w = torch.ones(4, requires_grad=True, device=device)
for step in range(2):
    (w * w).sum().backward()
    torch_xla.sync()
print("done", w.grad.cpu().sum().item())
"""


@pytest.mark.xla
async def test_a_real_runs_compiles_name_its_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    env = {
        "PJRT_DEVICE": "CPU",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    wanted = RunSpec(
        "xla-files",
        [sys.executable, "train.py"],
        tmp_path,
        env=env,
        probe="light",
        probe_dir=tmp_path / "p",
        xla_debug=True,
    )
    handle = await Launcher().start(wanted)
    items = [item async for item in handle]
    end = items[-1]
    assert isinstance(end, Ended) and end.exit_code == 0
    records = [r for i in items if isinstance(i, Reports) for r in i.records]
    compiles = [r for r in records if r["k"] == "xla_compile"]
    assert f"<module> ({tmp_path / 'train.py'}:6)" in [r["at"] for r in compiles]
    assert records[-1]["k"] == "xla_compiles" and records[-1]["total"] == len(compiles)
    printed = [x for i in items if isinstance(i, Output) for x in i.lines]
    assert "done 16.0" in printed and not [x for x in printed if "Analysis" in x]
