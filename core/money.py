"""What a session costs: the agent's dollars, the hardware's dollars, the operator's.

An amount that is not known is ``None`` with a note, never 0. Hardware dollars are price per
hour x devices x run time; the price table is a start, dated and sourced, and every row of it
can be overridden in ``[prices]``.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

from core.effort import effort
from core.levels import identity, is_xla_cpu
from core.reference.marks import no_time

if TYPE_CHECKING:
    from core.events import AgentUsed
    from core.state import SessionState
    from core.state_parts import Run


@dataclass(frozen=True, slots=True)
class Amount:
    """US dollars. ``usd`` is null when any part is unknown; ``at_least`` is the known part."""

    usd: float | None
    at_least: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        """``$6.89``, ``at least $6.89`` or the note, for example ``no agent cost``."""
        if self.usd is not None:
            return self.note if self.note and not self.usd else _dollars(self.usd)
        return f"at least {_dollars(self.at_least)}" if self.at_least else "unknown"


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.4f}"


def known(usd: float, note: str = "") -> Amount:
    """An amount that is known."""
    return Amount(usd, usd, note)


def unknown(note: str) -> Amount:
    """An amount that is not known; ``note`` is a sentence that says why."""
    return Amount(None, 0.0, note)


def total(amounts: list[Amount]) -> Amount:
    """The sum: null as soon as one part is unknown, with the known part kept."""
    missing = [a for a in amounts if a.usd is None]
    least = sum(a.at_least for a in amounts)
    if missing:
        return Amount(None, least, missing[0].note)
    return known(least)


# --- prices ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Price:
    """One row of the price table: US dollars an hour, for one ``chip`` or a whole ``instance``."""

    key: str
    usd_per_hour: float
    scope: str
    as_of: str = ""
    region: str = ""
    source: str = ""

    def usd(self, seconds: float, chips: int) -> float:
        """Dollars for a time on so many chips; a row of scope ``instance`` is the whole VM.

        ``instance/8`` is an eighth of a VM, so it counts per device as ``chip`` does.
        """
        devices = 1 if self.scope == "instance" else max(1, chips)
        return self.usd_per_hour * devices * seconds / 3600


@functools.cache
def price_table() -> dict[str, Price]:
    """The shipped rows by key (USD an hour, on demand, list price)."""
    data = json.loads(resources.files("core").joinpath("prices.json").read_text("utf-8"))
    return {
        row["key"]: Price(
            key=row["key"],
            usd_per_hour=float(row["usd_per_hour"]),
            scope=row["scope"],
            as_of=row.get("as_of", ""),
            region=row.get("region", ""),
            source=row.get("source", ""),
        )
        for row in data["rows"]
    }


def find_price(state: SessionState, side: str) -> tuple[Price | None, str]:
    """The price of ``reference`` or ``target`` by ``[prices]``, or why it is unknown.

    ``[prices]`` names a row by key. ``[prices.override]`` holds, by key, dollars an hour or a
    table ``{usd_per_hour, scope}``; a key of its own needs the scope (``chip``, ``instance``).
    """
    table = state.config.get("prices")
    table = table if isinstance(table, dict) else {}
    key = table.get(side)
    if not isinstance(key, str) or not key:
        return None, f"No price is set for the {side}: name one in [prices]."
    if side == "target" and is_xla_cpu(state) and key.startswith("tpu"):
        return None, f"{key} does not apply: the target runs on the host's CPU, not on a TPU."
    shipped = price_table().get(key)
    overrides = table.get("override")
    own = overrides.get(key) if isinstance(overrides, dict) else None
    if own is None:
        if shipped:
            return shipped, ""
        return None, f"There is no price {key!r}: use a key of the price table or an override."
    row = own if isinstance(own, dict) else {"usd_per_hour": own}
    rate = row.get("usd_per_hour")
    scope = row.get("scope", shipped.scope if shipped else "")
    if (
        not isinstance(rate, int | float)
        or isinstance(rate, bool)
        or not 0 <= rate < math.inf
        or scope not in ("chip", "instance", "instance/8")
    ):
        return None, f"The override of price {key!r} needs usd_per_hour >= 0 and a scope."
    return Price(key, float(rate), scope, source="set for this session"), ""


def run_cost(state: SessionState, run: Run) -> Amount:
    """Hardware dollars of one run: those of its machine's price for as long as it lasted."""
    price, why = find_price(state, "reference" if run.of_reference else "target")
    if price is None:
        return unknown(why)
    if run.of_reference and (why := no_time(run)):
        return unknown(f"Run #{run.number} has no price: {why}.")
    if run.ended is None:
        return unknown(f"Run #{run.number} has not ended.")
    if run.seconds is None:
        return unknown(f"Run #{run.number} was cut off, its length is not known.")
    chips = run.started.chips or (1 if run.of_reference else identity(state, run.tree).chips)
    return known(price.usd(run.seconds, chips))


def price(usage: AgentUsed, model: str, when: datetime) -> tuple[float | None, str]:
    """Dollars of one request and the version of the price table (``genai-prices 0.2.3``).

    ``None`` where the table does not know the model. The table's input tokens include the
    cache's, ours exclude them (as the API reports them).
    """
    from genai_prices import Usage, __version__, calc_price

    table = f"genai-prices {__version__}"
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    tokens = Usage(
        input_tokens=usage.input_tokens + written + usage.cache_read_tokens,
        cache_write_tokens=written,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        result = calc_price(
            tokens,
            model.removesuffix("[1m]"),
            provider_id="anthropic",
            genai_request_timestamp=when,
        )
    except LookupError:
        return None, table
    return float(result.total_price), table


# --- what a session has cost ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Costs:
    """All amounts of a session. ``reference_run`` and ``target_run`` are of *one* run each;
    ``hardware`` is what all runs together have spent."""

    agent: Amount
    agent_reported: Amount
    requests: int
    hardware: Amount
    reference_run: Amount
    target_run: Amount
    operator: Amount
    runs: dict[str, Amount] = field(default_factory=dict)


def agent_cost(state: SessionState) -> Amount:
    """Dollars of the agent's requests so far."""
    if not state.usage:
        if state.agent is None:
            return known(0.0, "no agent yet")
        if state.agent.driver in ("scripted", "manual"):
            return known(0.0, "no agent cost")
        return unknown("The agent has reported no usage.")
    priced = [known(u.usd) for u in state.usage if u.usd is not None]
    missing = len(state.usage) - len(priced)
    least = total(priced).at_least
    if missing:
        return Amount(None, least, f"{missing} of {len(state.usage)} requests have no known price.")
    return known(least)


def operator_cost(state: SessionState, now_ts_us: int | None = None) -> Amount:
    """The operator's active time (joined at 180 s) at ``[operator] rate_usd_per_hour``."""
    table = state.config.get("operator")
    rate = table.get("rate_usd_per_hour") if isinstance(table, dict) else None
    if not isinstance(rate, int | float) or isinstance(rate, bool) or rate <= 0:
        return unknown("No hourly rate is set for the operator.")
    return known(rate * effort(state, now_ts_us).active / 3600)


def costs(state: SessionState, now_ts_us: int | None = None) -> Costs:
    """Everything the session has cost up to ``now`` (default: its last event)."""
    from core.verify.subject import is_target_run

    runs = {id: run_cost(state, run) for id, run in state.runs.items() if not run.running}
    # What came in a bundle was spent elsewhere, once for all the sessions that use it.
    spent = [amount for id, amount in runs.items() if not state.runs[id].started.bundle]
    ended = [r for r in state.runs.values() if r.ok_exit]
    references = [r for r in ended if r.started.purpose == "reference"]
    targets = [r for r in ended if is_target_run(state, r)]
    reported = [u.reported_usd for u in state.usage if u.reported_usd is not None]
    return Costs(
        agent=agent_cost(state),
        agent_reported=known(sum(reported)) if reported else unknown("The agent reports no cost."),
        requests=len(state.usage),
        hardware=total(spent) if spent else known(0.0, "nothing yet"),
        reference_run=runs[references[-1].run_id] if references else unknown("no reference run"),
        target_run=runs[targets[-1].run_id] if targets else unknown("no target run yet"),
        operator=operator_cost(state, now_ts_us),
        runs=runs,
    )


@dataclass(frozen=True, slots=True)
class BreakEven:
    """After how many runs the migration has paid for itself; null with the reason in ``text``."""

    runs: int | None
    text: str
    spent_usd: float = 0.0


def break_even(state: SessionState, reference_usd: float, target_usd: float) -> BreakEven:
    """What the migration has cost over what one run saves, rounded up.

    Counted are the agent, all hardware so far, and the operator where a rate is set.
    """
    parts = costs(state)
    counted = {"agent": parts.agent, "hardware": parts.hardware}
    if parts.operator.usd is not None:
        counted["operator"] = parts.operator
    spent: dict[str, Any] = {name: amount.usd for name, amount in counted.items()}
    missing = [name for name, usd in spent.items() if usd is None]
    if missing:
        return BreakEven(
            None, f"Unknown: the cost of the {' and the '.join(missing)} is not known."
        )
    cost = sum(spent.values())
    saved = reference_usd - target_usd
    if saved <= 0:
        return BreakEven(None, "Never: a run on the target costs no less.", cost)
    runs = math.ceil(cost / saved)
    left = "" if "operator" in counted else ", the operator's time not counted"
    return BreakEven(
        runs, f"{runs} runs: {_dollars(cost)} spent, {_dollars(saved)} saved a run{left}", cost
    )
