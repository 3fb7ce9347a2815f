"""The ladder L0-L4: its checks, its criteria, and where a session stands on it.

A check's *result* is an event and never changes. Whether it still holds is derived here, from
what it was measured on: a result whose tree, command, criteria, chip count or reference is no
longer the present one is **stale**, and stale never counts as a pass.

The measured level is the highest k such that every check of the levels up to k is ``pass`` or
``waived`` and every one of these levels has a check that ran and passed (*a level without a
check that ran is not reached*), and L3 at most on ``xla-cpu``. Checks marked ``optional`` need
facts that not every project gives (a price, the number of evaluated samples): they hold a level
back when they fail or are stale, not when they could not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.checks import CHECKS as CHECKS
from core.checks import Check as Check
from core.criteria import Criteria as Criteria
from core.state_parts import CheckResult, level_name

if TYPE_CHECKING:
    from core.events import CheckEvaluated
    from core.state import SessionState
    from core.state_parts import Run

PASS, FAIL, NOT_RUN, STALE, WAIVED = "pass", "fail", "not run", "stale", "waived"
#: Every state a check or a level can be shown in.
STATES = (PASS, FAIL, NOT_RUN, STALE, WAIVED)

QUESTIONS = (
    "does it run?",
    "same numbers?",
    "on the hardware that was asked for?",
    "same goal?",
    "worth it?",
)


# --- what a result holds for -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """What a check result holds for; a change makes it stale (of the criteria: of one it used)."""

    tree: str
    command: str
    criteria: Criteria
    chips: int


def target(state: SessionState) -> dict[str, Any]:
    """The ``[target]`` table of the session's configuration."""
    table = state.config.get("target")
    return table if isinstance(table, dict) else {}


def identity(state: SessionState, tree: str) -> Identity:
    """The identity that a result for ``tree`` must have to count now."""
    table = target(state)
    chips = table.get("chips", 1)
    return Identity(
        tree=tree,
        command=str(table.get("command", "")),
        criteria=Criteria.of(state),
        chips=chips if isinstance(chips, int) else 1,
    )


def is_xla_cpu(state: SessionState) -> bool:
    """Whether the target is PJRT on the host, whose times and dollars say nothing of a TPU."""
    return target(state).get("kind") == "xla-cpu"


def target_note(state: SessionState) -> str:
    """What every L4 text of an ``xla-cpu`` session carries; ``""`` for a TPU target."""
    return "xla-cpu, no TPU figure" if is_xla_cpu(state) else ""


def with_note(text: str, note: str) -> str:
    """``text`` with the note in brackets behind it, once."""
    return text if not note or f"[{note}]" in text else f"{text} [{note}]"


def stale_reason(state: SessionState, body: CheckEvaluated, now: Identity) -> str:
    """Why a result no longer holds, as a sentence; ``""`` if it holds."""
    if body.tree != now.tree:
        return f"The code has changed: measured on tree {body.tree[:7]}, now {now.tree[:7]}."
    if body.command != now.command:
        return f"The target command has changed: it was {body.command!r}."
    if why := _criteria_changed(body, now.criteria):
        return why
    if body.chips != now.chips:
        return f"Measured on {body.chips} chip(s), asked for are {now.chips}."
    for run_id in body.reference_runs:
        old = state.runs.get(run_id)
        new = latest_reference(state, old) if old else None
        if old and new and new.run_id != old.run_id:
            return (
                f"The reference was run again: measured against #{old.number}, now #{new.number}."
            )
    return ""


def _criteria_changed(body: CheckEvaluated, now: Criteria) -> str:
    if body.uses is None:
        if body.criteria == now.earlier_hash():
            return ""
        return "The criteria have changed since it was measured."
    for name, then in body.uses.items():
        value = getattr(now, name, None)
        if value != then:
            return f"The criterion {name} has changed: measured with {then}, now {value}."
    return ""


def latest_reference(state: SessionState, like: Run) -> Run | None:
    """The latest usable run of the same part (purpose and ``of``) as a reference run."""
    return last(state.runs_for(like.started.purpose, like.started.of), lambda run: run.ok_exit)


def last(runs: Iterable[Run], good: Callable[[Run], bool]) -> Run | None:
    """The last of ``runs`` that is ``good``."""
    found = None
    for run in runs:
        if good(run):
            found = run
    return found


# --- where a session stands ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """One check as the level pane draws it.

    ``state`` is the present one; ``result`` the evaluation it rests on, which for a stale
    check is the one that held before; ``why`` says why it is stale or not run.
    """

    check: Check
    state: str
    result: CheckResult | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class LevelStatus:
    """One level: its aggregated state, its checks, and whether the agent has claimed it."""

    level: int
    question: str
    state: str
    reached: bool
    claimed: bool
    checks: list[CheckStatus] = field(default_factory=list)

    @property
    def first_bad(self) -> CheckStatus | None:
        """The check that gives the level its state, where that is not ``pass``."""
        return next(
            (c for c in self.checks if c.state == self.state and not c.check.optional), None
        ) or next((c for c in self.checks if c.state == self.state), None)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Where a session stands: claim and measurement side by side, never mixed."""

    tree: str
    levels: list[LevelStatus]
    measured: int
    claimed: int | None
    note: str = ""
    top: int = len(QUESTIONS) - 1

    @property
    def refuted(self) -> bool:
        """Whether a check *failed* at or below the claimed level (not run is not refuted)."""
        if self.claimed is None:
            return False
        return any(lv.state == FAIL for lv in self.levels if lv.level <= self.claimed)

    @property
    def text(self) -> str:
        """One sentence: claim against measurement, and what stands in the way."""
        claim = "nothing claimed" if self.claimed is None else f"claimed {level_name(self.claimed)}"
        text = f"{claim}, measured {level_name(self.measured)}"
        next_up = next((lv for lv in self.levels[: self.top + 1] if not lv.reached), None)
        bad = next_up.first_bad if next_up else None
        if bad:
            detail = bad.result.body.summary if bad.state == FAIL and bad.result else bad.why
            text += f": {bad.check.id} {bad.state}" + (f" ({detail})" if detail else "")
        return with_note(text, self.note)


def aggregate(states: Iterable[tuple[Check, str]]) -> str:
    """The state of one level from its checks' states; the least comfortable one wins."""
    states = list(states)
    every = {s for _, s in states}
    needed = {s for c, s in states if not c.optional}
    if FAIL in every:
        return FAIL
    if STALE in every:
        return STALE
    if NOT_RUN in needed or not needed:
        return NOT_RUN
    return WAIVED if WAIVED in every else PASS


def reached(states: Iterable[tuple[Check, str]]) -> bool:
    """Whether a level's checks carry it: all pass or waived, and at least one really ran."""
    states = list(states)
    ran = any(s == PASS for _, s in states)
    return ran and aggregate(states) in (PASS, WAIVED)


def top_level(state: SessionState) -> int:
    """The highest level that can be reached at all: L3 on ``xla-cpu``, else L4.

    PJRT on the host shows how long the host takes, and on a shared machine that depends on who
    else computes there. Its L4 is evaluated and shown, and never counts.
    """
    return 3 if is_xla_cpu(state) else len(QUESTIONS) - 1


def later_checks(state: SessionState, tree: str) -> frozenset[str]:
    """Checks that the release which measured a tree last did not have.

    They have no result and hold nothing back, or a new release would take every old session's
    level away. Verifying again evaluates them.
    """
    found = next((m for m in reversed(state.measurements) if m.tree == tree), None)
    return frozenset(set(CHECKS) - found.checks) if found and found.checks else frozenset()


def highest(
    states: Mapping[str, str],
    top: int = len(QUESTIONS) - 1,
    later: Collection[str] = (),
) -> int:
    """The measured level for check states by id, ``top`` at most (see :func:`top_level`).

    A check that is missing is ``not run``; one that is in ``later`` (see :func:`later_checks`)
    holds nothing back.
    """
    level = -1
    for k in range(top + 1):
        of_level = [
            (c, states.get(c.id, NOT_RUN))
            for c in CHECKS.values()
            if c.level == k and c.id not in later
        ]
        if not reached(of_level):
            break
        level = k
    return level


def ladder(state: SessionState, tree: str | None = None) -> Ladder:
    """Where the session stands on ``tree`` (default: the worktree's latest snapshot)."""
    tree = state.tree if tree is None else tree
    now = identity(state, tree)
    statuses = {c.id: _status(state, c, now) for c in CHECKS.values()}
    later = later_checks(state, tree)
    for id in later:
        statuses[id] = _of_later_release(statuses[id])
    measured = highest({id: s.state for id, s in statuses.items()}, top_level(state), later)
    claimed = state.claimed_level
    levels = []
    for k, question in enumerate(QUESTIONS):
        checks = [s for s in statuses.values() if s.check.level == k]
        pairs = [(s.check, s.state) for s in checks if s.check.id not in later]
        levels.append(
            LevelStatus(
                level=k,
                question=question,
                state=aggregate(pairs),
                reached=k <= measured,
                claimed=claimed is not None and claimed >= k,
                checks=checks,
            )
        )
    return Ladder(tree, levels, measured, claimed, target_note(state), top_level(state))


def _status(state: SessionState, check: Check, now: Identity) -> CheckStatus:
    results = state.checks.get(check.id, [])
    # The latest that holds, not simply the latest: going back to a measured tree revives it.
    for result in reversed(results):
        if not stale_reason(state, result.body, now):
            return CheckStatus(check, _known(result.body.state), result, result.body.reason)
    # Only what was measured can have gone stale; a check that never ran still has not run.
    for result in reversed(results):
        if result.body.state in (PASS, FAIL, WAIVED):
            return CheckStatus(check, STALE, result, stale_reason(state, result.body, now))
    reason = results[-1].body.reason if results else "Nothing has been measured yet."
    return CheckStatus(check, NOT_RUN, results[-1] if results else None, reason)


def _of_later_release(status: CheckStatus) -> CheckStatus:
    if status.result is not None:
        return status
    why = "This release's check: the one that measured the code did not have it. Verify again."
    return CheckStatus(status.check, NOT_RUN, None, why)


def _known(state: str) -> str:
    # A state that this release does not know must not be mistaken for a pass.
    return state if state in (PASS, FAIL, NOT_RUN, WAIVED) else NOT_RUN
