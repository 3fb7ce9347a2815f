"""The budgets of a session: what the agent may use up until it is ended.

Each is counted by a rule that the cockpit shows too: dollars as :func:`core.money.agent_cost`
(the known part), hours as the agent's working time of :mod:`core.effort` (waiting on the operator
and pauses are not in it), attempts as ``SessionState.attempts``. What the operator starts is
never refused.
"""

from __future__ import annotations

import asyncio
import time

from core import events as ev
from core.config import Budgets
from core.effort import effort
from core.money import agent_cost
from core.recorder.journal import Journal
from core.state import SessionState

LOOK_S = 2.0
"""Seconds between two looks at hours and dollars, at most."""

ACTION = "the agent is ended"

_UNITS = {"agent_usd": "US dollars", "attempts": "attempts", "hours": "hours of work"}


def over_budget(spent: ev.BudgetReached) -> str:
    """What the agent and the operator are told."""
    unit = _UNITS.get(spent.budget, spent.budget)
    return (
        f"The agent's budget of {spent.limit:g} {unit} is used up ({spent.actual:.3g}), so it is "
        "ended. The session stays: you can still measure."
    )


def too_many_attempts(state: SessionState, budgets: Budgets) -> ev.BudgetReached | None:
    """The event to write where the agent may start no further attempt."""
    made = len(state.attempts)
    if not budgets.attempts or made < budgets.attempts:
        return None
    return ev.BudgetReached("attempts", float(budgets.attempts), float(made), ACTION)


def reached(state: SessionState, budgets: Budgets, now_us: int) -> ev.BudgetReached | None:
    """The event to write where dollars or hours are used up at ``now_us`` (UTC, microseconds)."""
    spent = agent_cost(state).at_least
    if budgets.agent_usd and spent >= budgets.agent_usd:
        return ev.BudgetReached("agent_usd", budgets.agent_usd, spent, ACTION)
    if budgets.hours:
        hours = effort(state, now_us).agent_s / 3600
        if hours >= budgets.hours:
            return ev.BudgetReached("hours", budgets.hours, hours, ACTION)
    return None


async def watch(journal: Journal, budgets: Budgets) -> None:
    """Write down, once, that dollars or hours are used up, as long as an agent is at work.

    The bridge hears of it and ends the agent.
    """
    if not (budgets.agent_usd or budgets.hours):
        return
    pause = min(LOOK_S, max(0.02, budgets.hours * 3600 / 4)) if budgets.hours else LOOK_S
    while True:
        state = journal.state
        if state.agent is not None and state.agent_end is None:
            if event := reached(state, budgets, time.time_ns() // 1000):
                await journal.emit(event)
                return
        await asyncio.sleep(pause)
