"""A log with something of everything in it, as a file and as its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core import events as ev
from core.events import NewEvent
from sessions.log import EventLog

START_US = 1_796_000_000_000_000  # 2026-11-30

Story = list[NewEvent]


def story(session_id: str = "demo-1130-a7f3") -> Story:
    """One short session: a loud failure, a silent one, a claim, an intervention, a measured L3."""
    made: Story = []

    def put(body: ev.Body, source: str = "recorder", run_id: str = "", tree: str = "") -> None:
        n = len(made)
        made.append(
            NewEvent(body, source, run_id, tree, START_US + n * 1_000_000, f"event-{n:04d}")
        )

    put(ev.SessionOpened(session_id, "Demo", "/projects/demo", {"target": "xla-cpu"}, "0.1.0"))
    put(ev.RecorderStarted(4242))
    put(ev.OperatorAttached("c1", "ada"), "console:c1")
    put(ev.AgentStarted("scripted", "none"))
    put(ev.AgentUsed("claude-x", "r1", input_tokens=100, output_tokens=20, usd=0.25), "agent")
    put(ev.AgentUsed("mystery", "r2", input_tokens=7), "agent")
    put(ev.TreeSnapshotted("t0", "c0", files=[]), tree="t0")
    put(ev.RunStarted(1, "reference", "python train.py"), run_id="ref", tree="t0")
    put(ev.RunEnded("exited", 0, duration_s=3.5), run_id="ref", tree="t0")
    put(ev.TreeSnapshotted("t1", "c1", files=[{"path": "a.py", "added": 3, "removed": 1}]))
    put(ev.RunStarted(2, "attempt", "python train.py", "xla-cpu", 1), run_id="run2", tree="t1")
    put(ev.RunOutput("stderr", [f"line {i} \x1b[31mred" for i in range(400)]), run_id="run2")
    put(ev.RunEnded("exited", 1, duration_s=1.0), run_id="run2", tree="t1")
    put(
        ev.FindingOpened("f1", "cuda", "C2", "CUDA call", ["line 3", "line 4"], "remove it"),
        run_id="run2",
    )
    put(ev.AgentAsked("a1", "May I run pip?", "bash", {"command": "pip install x"}), "agent")
    put(ev.OperatorDecided("a1", "deny", "=no", author="ada"), "console:c1")
    put(
        ev.InterventionRecorded(
            "i1", START_US + 15_500_000, "t1", "run2", -1, "redirect", "=cmd|'/c calc'!A1",
            "C2", "needed", "line one\nline | two", 2.5, author="ada",
        ),
        "console:c1",
    )  # fmt: skip
    put(ev.OperatorHeartbeat("c1"), "console:c1")
    put(ev.TreeSnapshotted("t2", "c2", files=[{"path": "b.png", "added": None}]))
    put(ev.RunStarted(3, "attempt", "python train.py", "xla-cpu", 1), run_id="run3", tree="t2")
    put(ev.RunStepped([{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}]), run_id="run3")
    put(ev.RunEnded("exited", 0, duration_s=2.0, max_rss_mb=812.5), run_id="run3", tree="t2")
    put(ev.FindingOpened("f2", "flat", "C2", "Loss never moves", silent=True), run_id="run3")
    put(ev.AgentClaimed(3, "it works", "cl1"), "agent")
    put(
        ev.CheckEvaluated("exit", 0, "pass", "exit 0", runs=["run3"], reference_runs=["ref"]),
        tree="t2",
    )
    put(ev.CheckEvaluated("update", 1, "fail", "no update", runs=["run3", "nowhere"]), tree="t2")
    put(ev.LevelMeasured(0, "t2"), tree="t2")
    put(ev.InterventionAmended("i1", {"kind": "correct", "minutes_claimed": 4.0}, "ada"))
    put(ev.InterventionRecorded("i2", START_US + 27_500_000, "t2", "ghost", 0, "answer"))
    put(ev.InterventionVoided("i2", "a slip", "ada"), "console:c1")
    put(ev.MarkerPlaced("lunch", "ada"), "console:c1")
    put(ev.RunStarted(4, "attempt", "python train.py", "xla-cpu", 1), run_id="run4", tree="t3")
    put(ev.RunSampled(812.5, 3), run_id="run4", tree="t3")
    chips = [{"chip": 0, "kind": "v5e", "hbm_used_mb": 2048.0, "duty_pct": 0.5, "pids": [7]}]
    put(ev.HostSampled(12.5, 0.5, chips=chips), run_id="run4", tree="t3")
    put(ev.RunElided(5, 100, "limit", "5 lines are not stored here."), run_id="run4", tree="t3")
    put(ev.RunEnded("exited", 0, duration_s=2.5), run_id="run4", tree="t3")
    put(ev.FindingRecategorised("f2", "C3", "seen before", "ada"), "console:c1")
    put(ev.FindingResolved("f2", "gone in #4"))
    put(ev.CheckEvaluated("update", 1, "pass", "updates", runs=["run4"]), tree="t3")
    put(ev.LevelMeasured(3, "t3"), tree="t3")
    put(ev.AgentFinished("done"), "agent")
    put(ev.RecorderStopped("finished"))
    put(ev.Unknown("weather.changed", 7, {"sky": "clear", "n": [1, {"b": 2, "a": 1}]}))
    return made


@pytest.fixture
def tell() -> Callable[..., Story]:
    """The function that makes the story, for tests that want it under another id."""
    return story


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A closed session file that holds the story."""
    path = tmp_path / "demo-1130-a7f3" / "session.db"
    with EventLog.create(path) as log:
        log.append(*story())
    return path


@pytest.fixture
def log(db: Path) -> Iterator[EventLog]:
    """The same, open for writing."""
    with EventLog.open(db) as opened:
        yield opened
