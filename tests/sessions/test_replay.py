"""Replay: any position is the fold up to there, and the clock keeps its promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Event, MarkerPlaced
from core.state import fold
from sessions.log import EventLog
from sessions.replay import GROUPS, Playback, Replay, gap_s


@pytest.fixture
def events(db: Path) -> list[Event]:
    with EventLog.read(db) as log:
        return list(log.events())


def at(seq: int, mono_s: float, boot: str = "b", ts_s: float | None = None) -> Event:
    ts = mono_s if ts_s is None else ts_s
    return Event(
        seq, f"e{seq}", int(ts * 1e6), int(mono_s * 1e6), boot, "recorder", MarkerPlaced("m")
    )


# --- states ----------------------------------------------------------------------------------


def test_the_last_position_equals_the_live_state_field_for_field(
    db: Path, events: list[Event]
) -> None:
    live = fold(events)
    replay = Replay.open(db)
    assert replay.state_at(replay.last_seq) == live
    assert replay.whole == live


def test_any_order_of_visits_gives_the_fold_up_to_there(events: list[Event]) -> None:
    replay = Replay(events)
    for seq in (5, 30, 12, 12, 1, 0, len(events), 29, 999, 7):
        assert replay.state_at(seq) == fold(e for e in events if e.seq <= seq)


def test_a_live_session_is_extended_and_what_is_known_is_skipped(events: list[Event]) -> None:
    replay = Replay(events[:10])
    assert replay.state_at(10).seq == 10
    replay.extend(events[5:])
    assert replay.last_seq == len(events)
    assert replay.state_at(len(events)) == fold(events)
    assert replay.state_at(3) == fold(events[:3])


def test_an_empty_history() -> None:
    replay = Replay()
    assert (replay.first_seq, replay.last_seq, replay.state_at(5).seq) == (0, 0, 0)
    assert replay.next("any", 0) is None
    assert replay.step(0, 5) == replay.seq_at(10**18) == 0
    clock = Playback()
    assert (clock.advance(5), clock.seq, clock.at_end, clock.duration_s) == (0, 0, True, 0.0)
    clock.seek(3)
    assert clock.seq == 0


# --- jumps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "kinds"),
    [
        ("attempt", ["run.started"] * 3),
        ("intervention", ["intervention.recorded"] * 2),
        ("level", ["level.measured"] * 2),
        ("finding", ["finding.opened"] * 2),
        ("marker", ["marker.placed"]),
        ("ask", ["agent.asked"]),
        ("claim", ["agent.claimed"]),
    ],
)
def test_jumping_there_and_back(events: list[Event], group: str, kinds: list[str]) -> None:
    replay = Replay(events)
    by_seq = {e.seq: e for e in events}
    forth = []
    seq = 0
    while (moment := replay.next(group, seq)) is not None:
        seq = moment.seq
        forth.append(seq)
    assert [by_seq[s].kind for s in forth] == kinds
    back = []
    seq = replay.last_seq + 1
    while (moment := replay.next(group, seq, -1)) is not None:
        seq = moment.seq
        back.append(seq)
    assert back == forth[::-1]


def test_an_attempt_is_not_a_reference_run(events: list[Event]) -> None:
    replay = Replay(events)
    first = replay.next("attempt", 0)
    assert first is not None
    assert first.ref == "run2"
    assert replay.next("run", 0) is not replay.next("attempt", 0)
    with pytest.raises(KeyError):
        replay.next("nonsense", 0)
    assert set(GROUPS["any"]) >= set.union(*map(set, GROUPS.values()))


def test_stepping_stays_within_the_history(events: list[Event]) -> None:
    replay = Replay(events)
    assert replay.step(0) == 1
    assert replay.step(5) == 6
    assert replay.step(5, -1) == 4
    assert replay.step(1, -3) == 1
    assert replay.step(len(events), 1) == len(events)
    assert replay.step(2, 10**9) == len(events)
    assert replay.step(10**9, -1) == len(events)


def test_a_time_of_day_finds_its_event(events: list[Event]) -> None:
    replay = Replay(events)
    assert replay.seq_at(events[6].ts_us) == 7
    assert replay.seq_at(events[6].ts_us + 999_999) == 7
    assert replay.seq_at(0) == 1
    assert replay.seq_at(2**62) == len(events)


# --- the clock -------------------------------------------------------------------------------


def test_speed_idle_cap_and_pause() -> None:
    events = [at(1, 0), at(2, 1), at(3, 3601), at(4, 3601.5)]  # an hour of waiting in between
    clock = Playback(events, speed=2.0, idle_cap_s=2.0)
    assert clock.duration_s == 3.5
    assert clock.advance(0.0) == 1
    assert clock.advance(0.5) == 2  # one played second
    assert clock.advance(0.9) == 2
    assert clock.advance(0.1) == 3  # the hour took two played seconds, one real one
    clock.playing = False
    assert clock.advance(100) == 3
    clock.playing = True
    clock.speed = 1.0
    assert clock.advance(0.4) == 3
    assert not clock.at_end
    assert clock.advance(99) == 4
    assert clock.at_end


def test_a_clock_that_can_not_run_is_refused() -> None:
    for speed, cap in ((0, 1), (-1, 1), (1, 0)):
        with pytest.raises(ValueError, match="greater than 0"):
            Playback([], speed, cap)


@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=30),
    st.floats(0.25, 64),
    st.lists(st.floats(0, 3), max_size=30),
)
def test_it_only_goes_forward_and_all_ways_lead_to_the_same_place(
    gaps: list[float], speed: float, ticks: list[float]
) -> None:
    total = 0.0
    events = []
    for seq, gap in enumerate(gaps, 1):
        total += gap
        events.append(at(seq, total))
    clock = Playback(events, speed, 2.0)
    seen = [clock.seq] + [clock.advance(t) for t in ticks]
    assert seen == sorted(seen)
    for event in events:
        clock.seek(event.seq)
        assert clock.position_s == Playback(events[: event.seq], speed, 2.0).duration_s
        assert clock.seq >= event.seq  # later ones at the very same time are shown at once
    grown = Playback(events[: len(events) // 2], speed, 2.0)
    grown.extend(events)
    assert grown.duration_s == pytest.approx(clock.duration_s)


def test_a_seek_between_events_goes_to_the_one_before() -> None:
    clock = Playback([at(2, 0), at(5, 1), at(9, 2)])
    for seq, there in ((1, 2), (2, 2), (4, 2), (7, 5), (9, 9), (99, 9)):
        clock.seek(seq)
        assert clock.seq == there


def test_gaps_are_measured_by_the_right_clock() -> None:
    # The wall clock was set back an hour within one boot: the monotonic clock counts.
    assert gap_s(at(1, 10, ts_s=7200), at(2, 15, ts_s=3600)) == 5
    # A reboot: only the wall clock spans it; and it is never negative.
    assert gap_s(at(1, 900, "b1", 100), at(2, 3, "b2", 160)) == 60
    assert gap_s(at(1, 900, "b1", 160), at(2, 3, "b2", 100)) == 0
    # An importer writes yesterday's hours within milliseconds.
    imported = [replace(e, source="importer") for e in (at(1, 10, ts_s=0), at(2, 10.001, ts_s=60))]
    assert gap_s(*imported) == 60
