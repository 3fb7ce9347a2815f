"""A compile and an execution that are still under way, by the beats of the probe."""

from __future__ import annotations

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, each, kinds


def beating(seconds: int, every: int = 5, **fields: object) -> Change:
    """Beats for so many seconds with these fields; a callable is asked with the beat's number."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for i in range(seconds // every + 1):
            beat: JSON = {"k": "beat", "pid": 7, "tid": 7, "t": 1000.0 + i * every, "steps": 2}
            for name, value in fields.items():
                beat[name] = value(i) if callable(value) else value
            signals.append(beat)

    return change


AT = "/home/user/train.py:40 in step"
COMPILE = {"doing": "compile", "compiling": True, "compiles": 3, "at": AT}
SYNC = {"doing": "sync", "compiling": None, "compiles": 3, "at": AT}


def test_a_compile_that_goes_on_is_seen_before_it_ends() -> None:
    found = attempt(beating(310, **COMPILE))
    assert kinds(found) == {("compile_too_slow", "C4")}
    assert found["compile_too_slow"].evidence == [f"one compilation has gone on for 310 s, at {AT}"]
    assert attempt(beating(295, **COMPILE)) == {}


def test_many_compiles_one_after_the_other_are_none_of_them_slow() -> None:
    assert attempt(beating(600, **COMPILE | {"compiles": lambda i: i // 20})) == {}


def test_a_host_that_waits_for_the_device_is_seen() -> None:
    found = attempt(beating(40, **SYNC))
    assert kinds(found) == {("execution_too_slow", "C4")}
    assert found["execution_too_slow"].evidence == [
        f"the host waited 40 s for the device within one step, at {AT}"
    ]
    assert attempt(beating(30, **SYNC)) == {}


def test_a_step_of_many_executions_may_take_as_many_times_as_long() -> None:
    def accumulated(steps: list[JSON], signals: list[JSON]) -> None:
        each(executes=8)(steps, signals)
        beating(200, **SYNC)(steps, signals)

    assert attempt(accumulated) == {}


def test_waiting_for_data_or_in_other_steps_is_none() -> None:
    assert attempt(beating(200, **SYNC | {"doing": "data"})) == {}
    assert attempt(beating(200, **SYNC | {"steps": lambda i: i // 4})) == {}


def test_beats_of_any_shape_break_nothing() -> None:
    for junk in (None, [], {}, "x", -1, 1e400):
        attempt(beating(60, t=junk, pid=junk, steps=junk, compiles=junk, compiling=True, at=junk))
        attempt(beating(60, doing="sync", t=lambda i: i, steps=junk, at=junk))
