"""What a verification said of a variant: right or wrong, ours and by three simpler methods.

Pure. A check that was not run is no detection, whatever it might have found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.bench.fault_projects import Variant
from core.checks import CHECKS
from core.levels import FAIL, NOT_RUN

RIGHT, MISSED, LATE, ALARM, UNPROVEN, ERROR = (
    "right",
    "missed",
    "late",
    "false alarm",
    "unproven",
    "error",
)
#: The highest level that is judged where none is expected: L4 says what a run costs, not whether
#: it is the same training.
TOP = 3

#: The simpler methods, by name: the checks by whose failure each one notices a fault.
METHODS: dict[str, tuple[str, ...]] = {
    "the agent's word": ("L0.exit", "L0.result"),
    "final metric only": ("L3.metric",),
    "forward only": ("L1.forward",),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One row of the table. ``said`` is the first failing check with its summary.

    ``at`` is the level of that check; ``notes`` are sentences on it; ``noticed`` says by name of
    method whether it noticed anything (None: it had nothing to go by).
    """

    variant: Variant
    verdict: str
    check: str = ""
    category: str = ""
    said: str = ""
    at: int | None = None
    notes: tuple[str, ...] = ()
    noticed: Mapping[str, bool | None] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether it counts for the bench: detected in time, or no false alarm."""
        return self.verdict in (RIGHT, UNPROVEN)


def judge(variant: Variant, result: Mapping[str, Any], seconds: float) -> Judged:
    """Judge the JSON object of ``pilotage verify``; one that says nothing is an error."""
    checks = [c for c in _rows(result.get("checks")) if isinstance(c.get("level"), int)]
    if not checks:
        return failed(variant, "The verification named no checks.", seconds)
    top = max(TOP, variant.level or 0)
    failing = [c for c in checks if c.get("state") == FAIL and c["level"] <= top]
    failing.sort(key=lambda c: c["level"])  # stable: in the order of the ladder within a level
    first = failing[0] if failing else None
    notes: list[str] = []
    if variant.faithful:
        missing = [c for c in checks if c["level"] == 1 and _lacks(c)]
        verdict = ALARM if first else UNPROVEN if missing else RIGHT
        notes += [f"{c.get('id')} not run: {c.get('reason')}" for c in missing]
        notes += [f"{c.get('id')} fails too: {c.get('summary')}" for c in failing[1:]]
    else:
        assert variant.level is not None
        verdict = RIGHT if first and first["level"] <= variant.level else LATE if first else MISSED
        if first is None:
            notes += [f"{c.get('id')} not run: {c.get('reason')}" for c in checks if _lacks(c)]
        elif first["level"] != variant.level:
            notes.append(f"expected at L{variant.level}, refused at L{first['level']}")
        of = {str(c.get("category") or "") for c in failing if c["level"] <= variant.level}
        if first and variant.category and verdict == RIGHT and variant.category not in of:
            notes.append(f"expected {variant.category}, the failing checks are of another category")
    return Judged(
        variant,
        verdict,
        check=str(first.get("id")) if first else "",
        category=_category(variant, failing),
        said=str(first.get("summary") or first.get("reason") or "") if first else "",
        at=first["level"] if first else None,
        notes=tuple(notes),
        noticed={name: _noticed(checks, ids) for name, ids in METHODS.items()},
        seconds=seconds,
    )


def failed(variant: Variant, why: str, seconds: float = 0.0) -> Judged:
    """A variant that could not be judged at all; ``why`` is a sentence."""
    return Judged(variant, ERROR, said=why, noticed=dict.fromkeys(METHODS), seconds=seconds)


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _lacks(check: Mapping[str, Any]) -> bool:
    """Whether a check that its level needs was not run."""
    known = CHECKS.get(str(check.get("id")))
    needed = known is None or not known.optional
    return needed and check.get("state") == NOT_RUN and check["level"] <= TOP


def _category(variant: Variant, failing: Sequence[Mapping[str, Any]]) -> str:
    """The first failing check's; the expected one where a check of its level has that."""
    found = [str(c.get("category") or "") for c in failing if c["level"] <= (variant.level or 0)]
    if variant.category in found:
        return variant.category
    return next((c for c in [*found, *(str(c.get("category") or "") for c in failing)] if c), "")


def _noticed(checks: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> bool | None:
    states = {str(c.get("id")): c.get("state") for c in checks}
    found = [states[id] for id in ids if states.get(id) not in (None, NOT_RUN)]
    return FAIL in found if found else None


# --- all together --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """How many faults a method detected, and on how many faithful variants it raised an alarm."""

    detected: int
    faults: int
    alarms: int
    faithful: int


def ours(rows: Sequence[Judged]) -> Rate:
    """The rate of the whole ladder: a fault counts that is refused at its level or a lower one."""
    return Rate(
        sum(r.verdict == RIGHT for r in rows if not r.variant.faithful),
        sum(not r.variant.faithful for r in rows),
        sum(r.verdict == ALARM for r in rows),
        sum(r.variant.faithful for r in rows),
    )


def of_method(rows: Sequence[Judged], name: str) -> Rate:
    """The rate of one of :data:`METHODS`; what it had nothing to go by on it did not detect."""
    faults = [r for r in rows if not r.variant.faithful]
    faithful = [r for r in rows if r.variant.faithful]
    return Rate(
        sum(bool(r.noticed.get(name)) for r in faults),
        len(faults),
        sum(bool(r.noticed.get(name)) for r in faithful),
        len(faithful),
    )


def holds(rows: Sequence[Judged]) -> bool:
    """Whether every fault was detected in time and no faithful variant alarmed; never for none."""
    return bool(rows) and all(row.good for row in rows)
