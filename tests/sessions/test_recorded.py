"""The session that ships with the product: it is a true one, and it names no machine."""

from __future__ import annotations

import re

from core.levels import ladder
from sessions.audit import audit
from sessions.home import RECORDED, find
from sessions.log import EventLog
from sessions.replay import Replay


def test_it_is_found_by_name_and_holds() -> None:
    path = find("demo")
    assert path.is_relative_to(RECORDED)
    result = audit(path)
    assert result["holds"], result["problems"]
    assert result["verdicts"] >= 5


def test_it_tells_the_story_of_the_demo() -> None:
    state = Replay.open(find("demo")).whole
    assert state.phase == "finished" and state.claimed_level == 3
    assert ladder(state).measured >= 3
    assert min(m.level for m in state.measurements if m.seq > state.claims[0].seq) == 0
    assert any(not i.recorded.automatic and i.text for i in state.interventions.values())


def test_reading_it_leaves_no_file_behind() -> None:
    before = sorted(p.name for p in (RECORDED / "demo").iterdir())
    with EventLog.read(find("demo")) as log:
        assert log.last_seq() > 100
    assert sorted(p.name for p in (RECORDED / "demo").iterdir()) == before


def test_it_names_no_place_of_the_machine_it_was_recorded_on() -> None:
    with EventLog.read(find("demo")) as log:
        text = "\n".join(str(e.body.payload()) for e in log.events())
    assert not re.findall(r"/(?:root|work|tmp)/[\w.-]+", text)
