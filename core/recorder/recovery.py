"""What a recorder does first: find out whether the one before it ended in good order.

One that was killed leaves runs without an end, calls without a result and perhaps processes.
All of it is closed as ``cut off`` before anything new begins, and the log says so.
"""

from __future__ import annotations

from core import events as ev
from core.recorder.journal import Journal
from core.runs.leftovers import kill_leftovers
from core.state import SessionState


def open_calls(state: SessionState) -> list[str]:
    """Ids of tool calls that have no result."""
    return [e.ref for e in state.transcript if e.kind == "called" and e.output is None]


def was_cut_off(state: SessionState) -> bool:
    """Whether the recorder before ended without a word, or left something open."""
    return state.recorder_up or any(r.running for r in state.runs.values())


async def recover(journal: Journal, session_id: str) -> bool:
    """Close what a dead recorder left open; must be called with the session's lock held.

    Appends ``run.ended`` (reason ``cut off``) for each open run and one ``recorder.recovered``.
    Nothing is appended, and False returned, after an end in good order.
    """
    state = journal.state
    killed = kill_leftovers(session_id)
    if not was_cut_off(state):
        return False
    runs = [r for r in state.runs.values() if r.running]
    calls = open_calls(state)
    last_seq = state.seq
    for run in runs:
        await journal.emit(
            ev.RunEnded(
                reason="cut off",
                text="The recorder ended during this run; what it printed up to then is here.",
            ),
            run_id=run.run_id,
            tree=run.tree,
        )
    await journal.emit(
        ev.RecorderRecovered(
            cut_off_runs=[r.run_id for r in runs],
            cut_off_calls=calls,
            last_seq=last_seq,
            killed_pids=killed,
            text=_sentence(runs_cut=[r.number for r in runs], calls=len(calls), killed=killed),
        )
    )
    return True


def _sentence(runs_cut: list[int], calls: int, killed: list[int]) -> str:
    parts = []
    if runs_cut:
        parts.append("cut off: run " + ", ".join(f"#{n}" for n in runs_cut))
    if calls:
        parts.append(f"{calls} call{'s' * (calls > 1)} of the agent without a result")
    if killed:
        parts.append(f"{len(killed)} process{'es' * (len(killed) > 1)} still alive and now killed")
    what = "; ".join(parts) if parts else "nothing was going on"
    return f"The recorder before this one ended without a word ({what})."
