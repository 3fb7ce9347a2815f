"""When a run counts as stalled, and what brings it back."""

from __future__ import annotations

from pathlib import Path

from core.runs.items import Ended, Resumed, Stalled
from core.runs.launcher import Launcher
from core.runs.records import Record, StepRecord, from_json
from core.runs.stall import BEAT_FRESH_S, StallWatch
from tests.core.runs.test_launcher import spec


def beat(**fields: object) -> Record:
    return from_json({"k": "beat", "pid": 7, **fields})


def test_silence_is_told_once_and_its_end_too() -> None:
    watch = StallWatch(100, now=0)
    watch.output(10, "last words")
    watch.records([StepRecord(n=41, pid=7)], 20)
    assert watch.look(119) is None
    assert watch.look(120) == Stalled(100.0, 100, "last words", 41, "", False)
    assert watch.look(500) is None
    watch.output(521)
    assert watch.look(521) == Resumed(501.0)
    assert watch.look(600) is None
    told = watch.look(621)
    assert isinstance(told, Stalled) and told.seconds == 100.0


def test_zero_turns_it_off() -> None:
    assert StallWatch(0, now=0).look(1e9) is None


def test_a_step_is_a_sign_of_life_and_a_beat_alone_is_none() -> None:
    watch = StallWatch(100, now=0)
    watch.records([beat(steps=3, since_step_s=1)], 90)
    watch.records([beat(steps=3, since_step_s=21, doing="data", at="train.py:4 in main")], 110)
    told = watch.look(110)
    assert isinstance(told, Stalled) and not told.alive
    assert (told.doing, told.at, told.last_step) == ("data", "train.py:4 in main", 3)
    watch.records([StepRecord(n=4, pid=7)], 120)
    assert isinstance(watch.look(120), Resumed)


def test_a_compile_in_progress_is_shown_and_not_counted_as_stuck() -> None:
    watch = StallWatch(100, now=0)
    for now in range(0, 130, 10):
        watch.records([beat(doing="compile")], now)
    told = watch.look(125)
    assert isinstance(told, Stalled) and told.alive and told.doing == "compile"
    assert watch.look(126) is None
    watch.records([beat(doing=None, compiling=True)], 120)
    assert watch.look(127) is None
    told = watch.look(120 + BEAT_FRESH_S + 1)  # no beat any more: stuck after all
    assert isinstance(told, Stalled) and not told.alive


async def test_a_silent_run_is_reported_and_goes_on(tmp_path: Path) -> None:
    wanted = spec(
        tmp_path, "echo begin; while [ ! -e go ]; do sleep 0.02; done; echo end", hang_s=0.3
    )
    items = []
    handle = await Launcher().start(wanted)
    async for item in handle:
        items.append(item)
        if isinstance(item, Stalled):
            (tmp_path / "go").touch()
    stalls = [x for x in items if isinstance(x, Stalled)]
    assert stalls and stalls[0].last_line == "begin" and stalls[0].seconds >= 0.3
    assert [x for x in items if isinstance(x, Resumed)]
    assert isinstance(items[-1], Ended) and items[-1].exit_code == 0
