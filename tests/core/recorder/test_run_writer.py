"""A run's way into the log: bounded, in order, and never a reason for the run to wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core import events as ev
from core.errors import LostError, PilotageError, SessionError
from core.recorder import output_limit, reserve, run_writer
from core.recorder.journal import Journal
from core.recorder.output_limit import OutputLimit
from core.recorder.reserve import Reserve
from core.recorder.run_writer import RunWriter
from core.recorder.sampling import UsageRate
from core.run_lines import RunLines
from core.runs.items import Output, Usage
from core.state import fold
from sessions.log import EventLog
from tests.core.recorder.recording import make


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A log whose disk can be full, or gone."""

    def __init__(self, path: Path) -> None:
        self.log = EventLog.open(path)
        self.error: PilotageError | None = None

    def append(self, *new: ev.NewEvent) -> list[ev.Event]:
        if self.error:
            raise self.error
        return self.log.append(*new)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


class Bench:
    def __init__(self, tmp_path: Path) -> None:
        self.path = make(tmp_path, '[[step]]\nsay = "x"\n')
        self.disk = Disk(self.path)
        self.notes: list[str] = []
        self.journal = Journal(self.disk, self.notes.append)
        self.journal.catch_up()
        self.clock = Clock()
        self.reserve = Reserve(self.path.parent)
        self.writer = RunWriter(self.journal, self.reserve, "r1", "t", self.clock)
        self.writer.write(ev.RunStarted(1, "attempt", "train"))

    def full(self, yes: bool = True) -> None:
        self.disk.error = SessionError("The disk is full.") if yes else None

    @property
    def lines(self) -> RunLines:
        return self.journal.state.runs["r1"].lines


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def out(*lines: str) -> ev.RunOutput:
    return ev.RunOutput("stdout", list(lines))


def test_what_can_be_stored_is_stored_at_once(bench: Bench) -> None:
    bench.writer.write(out("a"))
    assert [x.text for x in bench.lines] == ["a"] and not bench.writer.failing
    assert bench.reserve._path.stat().st_size == reserve.SIZE


def test_on_a_full_disk_events_wait_in_order_and_keep_their_time(bench: Bench) -> None:
    bench.full()
    bench.writer.write(out("a"))
    bench.writer.write(ev.RunStepped([{"k": "step", "n": 1}]), out("b"))
    assert bench.writer.failing and len(bench.lines) == 0
    waited = [new.ts_us for new in bench.writer._waiting]
    assert waited == sorted(waited) and None not in waited
    bench.full(False)
    bench.writer.write(out("c"))  # not due yet: at most one try a second
    assert bench.writer.failing
    bench.clock.now = 2.0
    bench.writer.write(out("d"))
    assert [x.text for x in bench.lines] == ["a", "b", "c", "d"] and not bench.writer.failing
    assert [x for x in bench.notes if "nothing was lost" in x]
    assert bench.journal.state.runs["r1"].elided == []


def test_what_does_not_fit_is_counted_and_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "OUTPUT_BYTES", 100)
    monkeypatch.setattr(run_writer, "RECORDS", 3)
    bench.writer.write(out("before"))
    bench.full()
    for i in range(20):
        bench.writer.write(out(f"line {i:04}"), ev.RunStepped([{"k": "step", "n": i}]))
    bench.full(False)
    bench.clock.now = 2.0
    bench.writer.write(out("after"))
    run = bench.journal.state.runs["r1"]
    assert len(run.lines) == 22 and run.lines[0].text == "before"
    kept = [x.text for x in run.lines]
    assert kept[-1] == "after" and kept[-2] == "line 0019"
    (elided,) = [body for _, body in run.elided]
    assert elided.lines == 22 - len(kept) == run.elided_lines > 0
    assert elided.reason == "not writable" and elided.records == 17
    assert "could not be stored" in elided.text and "The disk is full." in elided.text
    assert [r["n"] for r in run.steps] == [17, 18, 19]
    assert [x for x in bench.notes if "were lost" in x]


def test_a_lost_log_is_an_error_at_once(bench: Bench) -> None:
    bench.disk.error = LostError("gone")
    with pytest.raises(LostError):
        bench.writer.write(out("a"))


async def test_the_end_waits_for_room_with_patience(bench: Bench) -> None:
    bench.full()
    bench.writer.write(out("last"))
    finishing = asyncio.create_task(bench.writer.finish(ev.RunEnded("exited", 0)))
    await asyncio.sleep(0)
    assert not finishing.done()
    bench.full(False)
    await asyncio.wait_for(finishing, 20)
    run = bench.journal.state.runs["r1"]
    assert run.ok_exit and [x.text for x in run.lines] == ["last"]
    assert not bench.reserve._path.exists()


async def test_room_that_came_back_just_before_the_end_costs_no_line(bench: Bench) -> None:
    bench.full()
    for i in range(3):
        bench.writer.write(out(f"{i}" * 60_000))
    bench.full(False)
    await bench.writer.finish(ev.RunEnded("exited", 0))
    run = bench.journal.state.runs["r1"]
    assert run.ok_exit and len(run.lines) == 3 and run.elided == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real file system of 6 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(place)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(1 << 12)):
                pass


async def test_a_run_ends_on_record_although_its_disk_is_full(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(small_disk))
    bench = Bench(small_disk)
    fill(small_disk)
    noise = [os.urandom(60).hex() for _ in range(500)]
    for _ in range(400):
        bench.writer.write(out(*noise))
    assert bench.writer.failing  # a really full disk
    await asyncio.wait_for(bench.writer.finish(ev.RunEnded("exited", 0)), 20)
    bench.disk.close()
    with EventLog.read(bench.path) as log:
        run = fold(log.events()).runs["r1"]
    assert run.ok_exit and run.elided and run.lines.missing > 0
    assert [x.text for x in run.lines][-1] == noise[-1]
    assert len(run.lines) == 400 * 500  # what is stored and what is counted as lost


# --- the limit -----------------------------------------------------------------------------


def limited(limit: OutputLimit, lines: list[str], now: float = 0.0) -> RunLines:
    """What the log makes of some lines, given in batches."""
    found = RunLines()
    bodies: list[ev.Body] = []
    for start in range(0, len(lines), 100):
        bodies += limit.take(Output("stdout", lines[start : start + 100]), now)
        now += 0.1
    bodies += limit.finish()
    for body in bodies:
        if isinstance(body, ev.RunOutput):
            found.extend(ev_line(text) for text in body.lines)
        elif isinstance(body, ev.RunElided):
            found.elide(body.lines)
            assert body.lines > 0 and "max_output_mb" in body.text
    return found


def ev_line(text: str) -> Any:
    from core.run_lines import LogLine

    return LogLine(1, "stdout", text)


def test_beyond_the_limit_only_telling_and_last_lines_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_limit, "LAST_LINES", 50)
    lines = [f"step {i}" for i in range(20_000)]
    lines[15_000] = "ValueError: bad"
    lines[16_000] = "acc 0.91"
    found = limited(OutputLimit(50_000, "acc ([0-9.]+)"), lines)
    assert len(found) == 20_000
    kept = {n: x.text for n, x in found.numbered()}
    assert all(lines[n] == text for n, text in kept.items())  # the numbers are true
    assert {15_000, 16_000, *range(19_950, 20_000)} <= kept.keys()
    assert 5_000 in kept and 10_000 not in kept and 14_999 not in kept


def test_a_program_of_warnings_only_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_limit, "LAST_LINES", 50)
    found = limited(OutputLimit(10_000), [f"warning {i} " + "x" * 80 for i in range(50_000)])
    assert len(found) == 50_000
    assert sum(len(x.text) for x in found) < 10_000 + 100_000 + 50 * 100 + 10_000


def test_no_limit_lets_all_pass() -> None:
    found = limited(OutputLimit(0), ["x" * 1000] * 1000)
    assert found.missing == 0


def test_it_is_said_at_most_every_ten_seconds() -> None:
    limit = OutputLimit(10)
    said = 0
    for i in range(300):
        bodies = limit.take(Output("stdout", ["x" * 50] * 100), i * 0.1)
        said += sum(isinstance(body, ev.RunElided) for body in bodies)
    assert 1 <= said <= 4


def test_ranks_keep_their_names_beyond_the_limit() -> None:
    limit = OutputLimit(10)
    limit.take(Output("stdout", ["a" * 20], "0"), 0.0)
    limit.take(Output("stderr", ["b"], "1"), 0.0)
    assert limit.finish() == [
        ev.RunOutput("stdout", ["a" * 20], "0"),
        ev.RunOutput("stderr", ["b"], "1"),
    ]


def test_memory_is_sampled_every_ten_seconds_and_at_large_changes() -> None:
    rate = UsageRate()
    times = [(0.0, 100.0), (1.0, 101.0), (2.0, 130.0), (3.0, 131.0), (12.5, 131.0), (13.0, 120.0)]
    taken = [now for now, rss in times if rate.take(Usage(rss, 1), now)]
    assert taken == [0.0, 2.0, 12.5]
