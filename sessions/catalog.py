"""The list of sessions: one entry each, from the few events that a list needs.

Output, probe records and diffs, which are nearly all of a log, are never read for it; the
rest goes through the same fold as everything else, so the list can't disagree with the cockpit.
A session that can't be read is in the list too, with its problem as a sentence.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.errors import SessionError
from core.events import BODIES
from core.money import agent_cost
from core.process import recorder_alive
from core.state import SessionState, fold
from core.state_parts import level_name
from core.text import clean
from sessions.derive import iso
from sessions.home import DB_NAME, home, session_dir, session_ids
from sessions.log import EventLog

_HEAVY = (
    "agent.said", "agent.called", "agent.returned", "tree.", "run.output", "run.stepped",
    "run.signalled", "check.", "operator.heartbeat", "operator.attached", "operator.detached",
    "operator.messaged", "operator.delivered", "marker.", "budget.",
)  # fmt: skip
LIGHT_KINDS = frozenset(kind for kind in BODIES if not kind.startswith(_HEAVY))
"""The kinds that a list entry is made of."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list. ``usd`` is null where not every price is known, never zero for
    unknown; ``cost`` is the same in words.

    ``state`` is the agent's phase, or ``cut off`` where its recorder died without a word, or
    ``unreadable`` with a ``problem``. ``recording`` says whether a recorder is alive now.
    """

    session_id: str
    path: str
    title: str = ""
    project: str = ""
    state: str = "unreadable"
    recording: bool = False
    measured_level: int = -1
    claimed_level: int | None = None
    attempts: int = 0
    interventions: int = 0
    open_findings: int = 0
    usd: float | None = None
    usd_at_least: float = 0.0
    cost: str = ""
    events: int = 0
    started_ts_us: int | None = None
    last_ts_us: int | None = None
    problem: str = ""


def listing() -> list[Listed]:
    """All sessions under the home, the latest activity first; broken ones at the end."""
    entries = [entry(i, session_dir(i) / DB_NAME) for i in session_ids()]
    return sorted(entries, key=lambda e: (-(e.last_ts_us or 0), e.session_id))


def entry(session_id: str, path: Path) -> Listed:
    """The entry of one session file; never raises for what is in it."""
    try:
        with EventLog.read(path) as log:
            last = log.last_event()
            if last is None:
                raise SessionError(f"{path} has no events: its creation was cut off.")
            state = fold(log.events(kinds=LIGHT_KINDS))
    except SessionError as err:
        return Listed(session_id, str(path), problem=str(err))
    alive = recorder_alive(path.parent)
    cost = agent_cost(state)
    opened = state.opened
    return Listed(
        session_id=session_id,
        path=str(path),
        title=opened.title if opened else "",
        project=opened.project if opened else "",
        state=_state(state, alive),
        recording=alive,
        measured_level=state.measured_level,
        claimed_level=state.claimed_level,
        attempts=len(state.attempts),
        interventions=sum(not i.voided for i in state.interventions.values()),
        open_findings=sum(f.open for f in state.findings.values()),
        usd=cost.usd,
        usd_at_least=cost.at_least,
        cost=cost.text,
        events=last.seq,
        started_ts_us=state.first_ts_us or None,
        last_ts_us=last.ts_us,
    )


def _state(state: SessionState, alive: bool) -> str:
    return "cut off" if state.recorder_up and not alive else state.phase


def as_rows(entries: list[Listed]) -> list[dict[str, Any]]:
    """The entries as JSON objects: the fields of :class:`Listed`, and both times in ISO 8601."""
    return [
        asdict(e) | {"started_at": iso(e.started_ts_us), "last_at": iso(e.last_ts_us)}
        for e in entries
    ]


_HEAD = (
    "session",
    "state",
    "measured",
    "claimed",
    "attempts",
    "interv.",
    "agent $",
    "last",
    "title",
)


def describe(entries: list[Listed], now_s: float | None = None) -> str:
    """The list as text, ``last`` being the time since the last event."""
    if not entries:
        return f"There are no sessions in {home()} yet. `pilotage demo` makes one."
    now = time.time() if now_s is None else now_s
    table = [_HEAD] + [_line(e, now) for e in entries if not e.problem]
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEAD) - 1)]
    lines = [
        "  ".join([*(v.ljust(w) for v, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in table
    ]
    if len(table) == 1:
        lines = []
    lines += [f"{e.session_id}  {clean(e.problem)}" for e in entries if e.problem]
    return "\n".join(lines)


def _line(e: Listed, now: float) -> tuple[str, ...]:
    return (
        e.session_id,
        e.state + (" (recording)" if e.recording and e.state != "working" else ""),
        level_name(e.measured_level),
        level_name(e.claimed_level),
        str(e.attempts),
        str(e.interventions),
        e.cost,
        age(now - (e.last_ts_us or 0) / 1e6),
        clean(e.title.replace("\n", " "))[:40],
    )


def age(seconds: float) -> str:
    """A span such as ``12 s``, ``5 min``, ``3 h``, ``9 d``."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h"
    return f"{int(seconds // 86400)} d"
