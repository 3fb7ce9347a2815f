"""L4: worth it? On ``xla-cpu`` every text says that it is no TPU figure."""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.levels import target_note
from core.money import break_even, run_cost
from core.reference.marks import no_time
from core.state_parts import Run
from core.verify.comparable import comparable_time
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged


@check("L4.time")
def time(s: Subject) -> Verdict:
    """Wall time of one whole run, at most ``max_time_ratio`` times the reference's.

    Compile time is part of it and shown apart: a cache may save it the next time.
    """
    _measure_of_time(s.reference)
    ours, theirs = _seconds(s.reference), _seconds(s.run)
    compiled = _compile_seconds(s.run)
    ratio = theirs / ours
    apart = "" if compiled is None else f", {_minutes(compiled)} of it compiling"
    return judged(
        ratio <= s.criteria.max_time_ratio,
        f"{ratio:.2f} x the reference's time" + _bracket(s),
        expected=f"{_minutes(ours)} (reference #{s.reference.number})",
        actual=_minutes(theirs) + apart + _bracket(s),
        tolerance=f"<= {s.criteria.max_time_ratio:g} x",
        evidence={
            "reference_s": ours,
            "target_s": theirs,
            "compile_s": compiled,
            "ratio without compiling": None if compiled is None else (theirs - compiled) / ours,
            "comparable": _comparable(s),
        },
    )


def _compile_seconds(run: Run) -> float | None:
    """Seconds spent compiling in the whole run; the steps' own where the total is missing."""
    total = view.number((view.record(run, "finish") or {}).get("compile_s"))
    if total is not None:
        return total
    seconds, known = view.per_step(view.steps(run), "compile_s")
    return seconds if known else None


def _measure_of_time(reference: Run) -> None:
    if why := no_time(reference):
        raise NotRun(
            f"Reference run #{reference.number} says nothing of time or dollars: {why}. Record "
            "one on a GPU machine with `pilotage reference record`."
        )


def _comparable(s: Subject) -> str:
    sure, why = comparable_time(s)
    return f"{'yes' if sure else 'no'}: {why}"


def _seconds(run: Run) -> float:
    seconds = run.seconds or 0.0
    if seconds <= 0:
        raise NotRun(f"The duration of run #{run.number} is not known.")
    if not run.ok_exit:
        raise NotRun(f"Run #{run.number} did not end with exit 0, so its time says nothing.")
    return seconds


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.2f} min"


def _bracket(s: Subject) -> str:
    note = target_note(s.state)
    return f" [{note}]" if note else ""


@check("L4.cost")
def cost(s: Subject) -> Verdict:
    """Dollars of one run, at most ``max_cost_ratio`` times the reference's.

    Needs a price for both machines. The break-even number of runs is what the migration has cost,
    the agent, all runs on hardware of this session and the operator's time, over what one run
    saves; once more without the time of compiling, which a cache saves from the second run on.
    """
    seconds = _seconds(s.run)
    _measure_of_time(s.reference)
    ours, theirs = run_cost(s.state, s.reference), run_cost(s.state, s.run)
    for what, amount in (("the reference", ours), ("the target", theirs)):
        if amount.usd is None:
            raise NotRun(f"The price of {what} is unknown: {amount.note}" + _bracket(s))
    assert ours.usd is not None and theirs.usd is not None
    runs = break_even(s.state, ours.usd, theirs.usd)
    evidence: JSON = {
        "break_even_runs": runs.runs,
        "break_even": runs.text,
        "comparable": _comparable(s),
    }
    if compiled := _compile_seconds(s.run):
        bare = theirs.usd * max(seconds - compiled, 0.0) / seconds
        evidence["without compiling"] = f"${bare:.4g} a run"
        evidence["break_even without compiling"] = break_even(s.state, ours.usd, bare).text
    return judged(
        theirs.usd <= s.criteria.max_cost_ratio * ours.usd,
        f"${theirs.usd:.4g} a run, the reference ${ours.usd:.4g}" + _bracket(s),
        expected=f"${ours.usd:.4g}",
        actual=f"${theirs.usd:.4g}" + _bracket(s),
        tolerance=f"<= {s.criteria.max_cost_ratio:g} x",
        evidence=evidence,
    )
