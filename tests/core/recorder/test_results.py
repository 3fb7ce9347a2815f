"""The metric of a run is looked for when it has ended, in its output or in its result file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core import events as ev
from core.config import Metric
from core.recorder.results import ResultWatch
from core.state import SessionState
from sessions.derive import derive
from sessions.log import EventLog
from tests.core.recorder.recording import make, record
from tests.core.scene import Scene


def test_what_was_not_looked_through_is_said() -> None:
    def said(lines: int, **more: str) -> str:
        scene = Scene(metric={"name": "acc", **more})
        run_id = scene.run("reference", lines=("x" * 99,) * lines)
        (found,) = asyncio.run(
            ResultWatch(Metric("acc", **more), "reference", Path()).read(scene.state.runs[run_id])
        )
        return found.problem

    assert "Only the end" not in said(1000) + said(1000, pattern="acc ([0-9]+)")
    for text in (said(30_000), said(100_001, pattern="acc ([0-9]+)")):
        assert "Only the end of its" in text and "let it print the metric last" in text


RUN = "[[step]]\nrun = true\n"

WRITES = """\
import json, pathlib, sys
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
accuracy = 0.9 if "xla" in sys.argv else 0.8
(out / "results.json").write_text(json.dumps({"eval": {"accuracy": accuracy}}))
"""


def results(state: SessionState) -> list[ev.RunResult | None]:
    return [r.result for r in state.runs.values() if r.started.purpose != "parity"]


async def test_what_the_pattern_matched_is_on_record(tmp_path: Path) -> None:
    path = make(tmp_path, RUN)
    state = await record(path)
    reference, attempt = results(state)
    assert reference == attempt is not None
    assert (attempt.name, attempt.value, attempt.problem) == ("acc", 0.9, "")
    assert attempt.source == "line 4 of stdout"
    assert attempt.how == "pattern acc ([0-9.]+)"
    assert attempt.text == "acc 0.9"
    assert all(r.result is None for r in state.runs_for("parity", "reference"))
    with EventLog.read(path) as log:
        rows = derive(log.events()).dicts("run")
    assert [r["metric"] for r in rows if r["purpose"] != "parity"] == [0.9, 0.9]
    assert rows[0]["metric_how"] == "pattern acc ([0-9.]+)"


@pytest.mark.parametrize(
    ("settings", "script", "value", "how"),
    [
        ('name = "loss"', None, 1 / 3, "reader key value, value loss"),
        (
            'name = "accuracy"\nfile = "out/results.json"\nkey = "eval.accuracy"',
            WRITES,
            0.9,
            "key eval.accuracy",
        ),
    ],
)
async def test_readers_and_result_files(
    tmp_path: Path, settings: str, script: str | None, value: float, how: str
) -> None:
    files = {"train.py": script} if script else None
    path = make(tmp_path, RUN, files, metric=settings)
    state = await record(path)
    attempt = results(state)[-1]
    assert attempt is not None and attempt.problem == ""
    assert attempt.value == pytest.approx(value)
    assert attempt.how == how


async def test_a_run_that_prints_no_such_value_says_what_it_printed(tmp_path: Path) -> None:
    path = make(tmp_path, RUN, metric='name = "bleu"')
    state = await record(path)
    attempt = results(state)[-1]
    assert attempt is not None and attempt.value is None
    assert "printed no value named bleu" in attempt.problem
    assert "loss" in attempt.problem
    assert state.checks["L0.result"][-1].body.state == "fail"


async def test_a_result_file_that_the_run_did_not_write_is_none(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        RUN,
        {"results.json": '{"acc": 0.99}'},
        metric='name = "acc"\nfile = "results.json"',
    )
    state = await record(path)
    for result in results(state):
        assert result is not None and result.value is None
        assert "was there before the run, which did not write it" in result.problem


async def test_a_result_file_that_the_project_keeps_under_version_control(tmp_path: Path) -> None:
    """The reference writes it too, and is no changed reference for that."""
    script = 'open("results.json", "w").write(\'{"acc": 0.75, "by": "the run"}\')\n'
    path = make(
        tmp_path,
        RUN,
        {"results.json": '{"acc": 0.99}', "train.py": script},
        metric='name = "acc"\nfile = "results.json"',
    )
    state = await record(path)
    assert [r.value for r in results(state) if r] == [0.75, 0.75]
    assert all(r.ended and r.ended.reason == "exited" for r in state.runs.values())
