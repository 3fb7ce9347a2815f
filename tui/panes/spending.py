"""What the session has cost in money and time, as rows of the level pane."""

from __future__ import annotations

from rich.text import Text

from core.effort import effort
from core.money import Amount
from tui.panes.rows import Row
from tui.theme import Palette
from tui.view import View
from tui.wording import minutes


def spending_words(view: View) -> str:
    """The two figures that are always in sight: ``agent $6.89 · you 12 min``."""
    spent = effort(view.state, view.now_us if view.acting else None)
    return f"{' '.join(_agent(view.costs.agent)).strip()} · you {minutes(spent.active)}"


def _agent(amount: Amount) -> tuple[str, str]:
    """Name and amount; "no agent cost" has its name in it."""
    return ("" if amount.text.startswith("no ") else "agent", amount.text)


def spending_rows(view: View, colours: Palette) -> list[Row]:
    """Agent and hardware dollars; the operator's and the agent's time; interventions."""
    state = view.state
    costs = view.costs
    spent = effort(state, view.now_us if view.acting else None)
    counted = [i for i in state.interventions.values() if not i.voided]
    voided = len(state.interventions) - len(counted)

    def line(*parts: tuple[str, str]) -> Row:
        text = Text()
        for name, value in parts:
            text.append("   " if text else "", colours.muted)
            text.append(f"{name} " if name else "", colours.muted)
            text.append(value, colours.plain)
        return Row(text)

    rows = [
        Row(Text("spent", colours.strong)),
        line(_agent(costs.agent), ("hardware", costs.hardware.text)),
        line(("you", minutes(spent.active)), ("agent", minutes(spent.agent_s))),
    ]
    if spent.blocked_s >= 1:
        rows.append(line(("agent waited on you", minutes(spent.blocked_s))))
    words = f"{len(counted)}" + (f" ({voided} voided)" if voided else "")
    rows.append(line(("attempts", str(len(state.attempts))), ("interventions", words)))
    return rows
