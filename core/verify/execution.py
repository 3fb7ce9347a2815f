"""L0: does it run?"""

from __future__ import annotations

import math

from core import records_view as view
from core.metric import reads_file
from core.text import clean
from core.verify.registry import check
from core.verify.result import metric_of, shown
from core.verify.subject import NotRun, Subject, Verdict, judged

TRACEBACK = "Traceback (most recent call last):"


@check("L0.exit")
def exit_code(s: Subject) -> Verdict:
    """Exit code 0, by itself (L0: exit)."""
    end = s.run.ended
    assert end is not None
    how = f"exit {end.exit_code}" if end.exit_code is not None else end.signal or end.reason
    summary = "exit 0" if s.run.ok_exit else f"ended with {how}"
    if end.reason == "not started":
        summary = "it could not be started"
    if end.text and end.exit_code is None:
        how = f"{how}: {clean(end.text)}"
    return judged(
        s.run.ok_exit,
        summary,
        expected="exit 0",
        actual=how,
        evidence={"duration_s": end.duration_s, "text": end.text},
    )


@check("L0.steps")
def steps(s: Subject) -> Verdict:
    """As many optimizer steps as the reference took (L0: expected steps reached)."""
    expected, actual = view.steps_done(s.reference), view.steps_done(s.run)
    if not expected:
        raise NotRun(
            f"The probe saw no optimizer step in the reference run #{s.reference.number}, so "
            "the number of steps to reach is not known."
        )
    if actual is None:
        raise NotRun(f"The probe reported nothing from run #{s.run.number}.")
    return judged(
        actual == expected,
        f"{actual} of {expected} steps",
        expected=f"{expected} steps",
        actual=f"{actual} steps",
        tolerance="equal",
    )


@check("L0.result")
def result(s: Subject) -> Verdict:
    """The run produced the metric, in its output or its result file (L0: result produced)."""
    config = view.table(s.state.config.get("metric"))
    found, problem = metric_of(s.run, config)
    name = str(config.get("name") or "metric")
    if found is None:
        pattern = config.get("pattern")
        return judged(
            False,
            f"no {name} in the {'result file' if reads_file(config) else 'output'}",
            expected=f"a line that matches {pattern}" if pattern else f"a value of {name}",
            actual=problem,
            evidence={"problem": problem},
        )
    finite = math.isfinite(found.value)
    return judged(
        finite,
        f"{name} {found.value:g}" if finite else f"{name} is no number: {found.value:g}",
        expected=f"a value of {name}",
        actual=f"{found.value:g}",
        evidence={"read from": shown(found)},
    )


@check("L0.errors")
def errors(s: Subject) -> Verdict:
    """No traceback in the output, even of an exception that was caught (L0).

    A program that prints a traceback and goes on has swallowed an error; the operator may waive
    one that is known to be harmless.
    """
    run = s.run
    at = [(n, line) for n, line in run.lines.numbered() if TRACEBACK in line.text]
    if not at:
        return judged(True, "no traceback", expected="no traceback", actual="none")
    first, head = at[0]
    shown = [line.text for line in run.lines[first : first + 30]]
    swallowed = " although it ended with exit 0" if run.ok_exit else ""
    return judged(
        False,
        f"{len(at)} traceback(s) in the output{swallowed}",
        expected="no traceback",
        actual=f"{len(at)}",
        evidence={"lines": shown, "seq": head.seq},
    )
