"""Where state comes from and where acts go, without a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import PilotageError
from core.events import AgentSaid, MarkerPlaced, NewEvent
from core.state import fold
from sessions.log import EventLog
from tests.tui.session_events import demo, write
from tui.feed import PUMP_EVENTS, LiveFeed
from tui.past import Past
from tui.pen import Pen


def wait(what: Callable[[], object]) -> None:
    """Wait until ``what`` holds; fails after 10 s."""
    until = time.monotonic() + 10
    while not what():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A real session file, in mid-run."""
    return write(tmp_path / "session.db", demo("running"))


def test_the_state_is_the_fold_of_the_log(path: Path) -> None:
    feed = LiveFeed(path, alive=lambda: True)
    assert feed.loading() == "opening"
    feed.start()
    try:
        wait(lambda: (feed.pump(), not feed.loading())[1])
        with EventLog.read(path) as log:
            assert feed.state == fold(log.events())
        assert not feed.pump(), "nothing new, nothing changed"
        with EventLog.open(path) as log:
            log.append(NewEvent(AgentSaid("hello"), "agent"))
        wait(feed.pump)
        assert feed.state.transcript[-1].text == "hello"
    finally:
        feed.stop()
    assert "session feed" not in [t.name for t in threading.enumerate()]


def test_a_flood_is_taken_in_slices_and_nothing_is_lost(path: Path) -> None:
    feed = LiveFeed(path, alive=lambda: True)
    feed.start()
    try:
        wait(lambda: (feed.pump(), not feed.loading())[1])
        before, many = feed.state.seq, PUMP_EVENTS + 500
        with EventLog.open(path) as log:
            log.append(*(NewEvent(MarkerPlaced(str(i)), "console:x") for i in range(many)))
        wait(lambda: len(feed._new) == many)
        feed.pump()
        assert feed.state.seq == before + PUMP_EVENTS
        feed.pump()
        assert feed.state.seq == before + many
    finally:
        feed.stop()


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    feed = LiveFeed(tmp_path / "none.db", alive=lambda: False)
    feed.start()
    wait(lambda: feed.error)
    assert feed.error.startswith("There is no session file")
    feed.stop()


def test_the_lock_is_looked_at(path: Path) -> None:
    feed = LiveFeed(path)
    feed.start()
    wait(lambda: feed.recorder() is not None)
    assert feed.recorder() is False
    feed.stop()


def test_the_past_is_the_fold_up_to_there(path: Path) -> None:
    past = Past(path)
    with EventLog.read(path) as log:
        events = list(log.events())
    for seq in (1, 40, 7, len(events)):
        assert past.state_at(seq) == fold(events[:seq])
    with EventLog.open(path) as log:
        [event] = log.append(NewEvent(AgentSaid("later"), "agent"))
    assert past.state_at(event.seq).transcript[-1].text == "later"


async def test_the_pen_names_its_console(path: Path) -> None:
    pen = Pen(path)
    await pen.attach("80x24")
    [stored] = await pen.write(MarkerPlaced("here"), tree="t", ts_us=5)
    assert stored.source == f"console:{pen.console_id}"
    assert (stored.tree, stored.ts_us) == ("t", 5)
    await pen.detach()
    with EventLog.read(path) as log:
        kinds = [e.kind for e in log.events()][-3:]
    assert kinds == ["operator.attached", "marker.placed", "operator.detached"]


async def test_heartbeats_are_fifteen_seconds_apart(path: Path) -> None:
    now = [0.0]
    pen = Pen(path, monotonic=lambda: now[0])
    assert await pen.beat("key")
    now[0] = 14.9
    assert not pen.due() and not await pen.beat("key")
    now[0] = 15.0
    assert pen.due() and await pen.beat("mouse")
    await pen.detach()


async def test_what_can_not_be_written_is_said(tmp_path: Path) -> None:
    pen = Pen(tmp_path / "none.db")
    with pytest.raises(PilotageError, match="There is no session file"):
        await pen.attach("80x24")
    assert pen.broken
    await pen.detach()  # leaving works all the same
