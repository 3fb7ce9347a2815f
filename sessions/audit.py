"""Whether a log supports its own verdicts: the checks are evaluated anew from the records.

A stored ``check.evaluated`` is what the recorder said when it looked. Here the log is folded up
to that moment and the same rules are asked again; where the answer differs, the verdict does
not follow from what was recorded. Together with the chain (``sessions.check``) that is what
``pilotage check`` and the headless demo stand on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.events import CheckEvaluated, Event, LevelMeasured
from core.levels import WAIVED, Criteria, target_note, top_level
from core.state import SessionState
from core.state_parts import level_name
from core.verify.evaluate import measure, measured
from core.version import __version__
from sessions.check import check
from sessions.log import EventLog

#: Fields of a check that have to come out the same, whichever release recorded it ...
COMPARED = ("level", "state", "command", "criteria", "runs", "reference_runs")
#: ... and those that also do where it was this one: another may word the same verdict otherwise.
WORDED = ("summary", "expected", "actual", "tolerance", "reason")


def unsupported(events: Iterable[Event], version: str = __version__) -> list[str]:
    """One sentence for each stored verdict that the events before it do not give.

    ``version`` is this release; a session of the same one has to match to the word.
    """
    state = SessionState()
    problems: list[str] = []
    batch: list[Event] = []
    for event in events:
        if isinstance(event.body, CheckEvaluated | LevelMeasured):
            batch.append(event)
            if isinstance(event.body, LevelMeasured):
                problems += _compare(state, batch, version)
                for member in batch:
                    state.apply(member)
                batch = []
            continue
        if batch:
            # Checks without a level: a waiver, which is the operator's word, or a cut-off log.
            problems += _loose(batch)
            for member in batch:
                state.apply(member)
            batch = []
        state.apply(event)
    return problems + _loose(batch)


def _loose(batch: list[Event]) -> list[str]:
    return [
        f"Event {event.seq}: {event.body.check} is {event.body.state!r} outside an evaluation."
        for event in batch
        if isinstance(event.body, CheckEvaluated) and event.body.state != WAIVED
    ]


def _compare(state: SessionState, batch: list[Event], version: str) -> list[str]:
    stored_level = batch[-1].body
    assert isinstance(stored_level, LevelMeasured)
    results, now_level = measure(state, stored_level.tree)
    problems = []
    seen = {event.body.check for event in batch[:-1] if isinstance(event.body, CheckEvaluated)}
    same = state.opened is not None and state.opened.pilotage_version == version
    if not same:  # an earlier release had fewer checks: what it had is what the level rests on
        later = {body.check for body in results} - seen
        results = [body for body in results if body.check in seen]
        now_level = measured(results, target_note(state), top_level(state), later)
    anew = {body.check: body for body in results}
    fields = (*COMPARED, *WORDED) if same else COMPARED
    for event in batch[:-1]:
        body = event.body
        assert isinstance(body, CheckEvaluated)
        if body.state == WAIVED:
            continue
        now = anew.get(body.check)
        if now is None:
            problems.append(f"Event {event.seq}: there is no check {body.check} in this release.")
            continue
        for name in fields:
            was, is_ = getattr(body, name), getattr(now, name)
            if name == "criteria" and body.uses is None:  # bound to all criteria there were
                is_ = Criteria.of(state).earlier_hash()
            if was != is_:
                problems.append(
                    f"Event {event.seq}: {body.check} was stored with {name} {was!r}, "
                    f"but the records before it give {is_!r}."
                )
                break
    missing = sorted(set(anew) - seen)
    if missing:
        problems.append(f"Event {batch[-1].seq}: not evaluated there: {', '.join(missing)}.")
    level = now_level.level
    if level != stored_level.level:
        problems.append(
            f"Event {batch[-1].seq}: the level was stored as {level_name(stored_level.level)}, "
            f"but the records before it give {level_name(level)}."
        )
    return problems


def audit(path: Path) -> dict[str, Any]:
    """The result of ``pilotage check``: the file's own checks, then its verdicts.

    Keys: ``holds``, ``path``, ``events``, ``head_hash``, ``verdicts`` (how many evaluations
    were made anew), ``problems`` and ``notes`` (sentences). The file is not changed.
    """
    report = check(path)
    problems = list(report.problems)
    verdicts = 0
    if report.ok:
        with EventLog.read(path) as log:
            verdicts = sum(1 for _ in log.events(kinds={LevelMeasured.KIND}))
            problems += unsupported(log.events())
    return {
        "holds": not problems,
        "path": str(path),
        "events": report.events,
        "head_hash": report.head_hash,
        "verdicts": verdicts,
        "problems": problems,
        "notes": report.notes,
    }


def describe(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{result['path']}: {result['events']} events, head {result['head_hash'][:16]}"]
    if result["holds"]:
        times = result["verdicts"]
        again = f"{times} evaluation{'s' * (times != 1)} made anew from the records: same verdicts."
        behind = any("derived tables" in note for note in result["notes"])
        tables = "." if behind else ", the tables equal a rebuild."
        lines.append(f"The chain is whole, the log is append-only{tables}")
        lines.append(again if times else "No level has been measured in it.")
    else:
        lines += [f"PROBLEM  {text}" for text in result["problems"]]
    lines += [f"note     {text}" for text in result["notes"]]
    return "\n".join(lines)
