"""What became of an attempt: did it fail, and did it say so?"""

from __future__ import annotations

from dataclasses import dataclass

from core.levels import FAIL, PASS
from core.state import SessionState
from core.state_parts import CheckResult, Finding, Run

#: ``loud``: ended with an error. ``silent``: exit 0 and yet wrong. ``passed``: checks ran on it
#: and none failed. ``unverified``: exit 0, and nothing was measured. ``stopped`` by the
#: operator; ``cut off`` with its recorder.
KINDS = ("running", "loud", "silent", "passed", "unverified", "stopped", "cut off")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of :data:`KINDS`, with the words for it."""

    kind: str
    text: str

    @property
    def failed(self) -> bool:
        """Whether the attempt counts as failed."""
        return self.kind in ("loud", "silent")


def outcome(state: SessionState, run: Run) -> Outcome:
    """The outcome of one run, as it stands now.

    A silent failure is one that raised no error: exit 0, but a detector opened a
    finding on it, or a check of L0-L3 that was measured on it, or on the parity run of its
    tree, failed. A run that was stopped while it showed such a finding counts too: it was not
    given the time to fail by itself. A finding that a later run resolved still speaks for this
    run; one that the operator closed does not. L4 says whether the run is worth its time, not whether it failed.
    """
    end = run.ended
    if end is None:
        return Outcome("running", "running")
    findings = findings_of(state, run)
    if end.reason == "stopped" and findings:
        return Outcome("silent", f"stopped, with {_all_words(findings)}")
    if end.reason in ("stopped", "cut off"):
        return Outcome(end.reason, end.text or end.reason)
    if not run.ok_exit:
        how = f"exit {end.exit_code}" if end.exit_code is not None else end.signal or end.reason
        how += f" ({end.cause})" if end.cause else ""
        loud = [f for f in findings if not f.opened.silent] or findings
        return Outcome("loud", how + (f": {_words(loud[0])}" if loud else ""))
    if findings:
        return Outcome("silent", f"exit 0, but {_all_words(findings)}")
    results = checks_of(state, run)
    bad = [r.body for r in results if r.body.state == FAIL]
    if bad:
        return Outcome("silent", f"exit 0, but {bad[0].check} failed: {bad[0].summary}")
    if any(r.body.state == PASS for r in results):
        return Outcome("passed", "no check failed on it")
    return Outcome("unverified", "exit 0, no check ran on it")


def _words(finding: Finding) -> str:
    return f"{finding.category} {finding.opened.title}"


def _all_words(findings: list[Finding]) -> str:
    shown = "; ".join(_words(f) for f in findings[:3])
    return shown + (f"; and {len(findings) - 3} more" if len(findings) > 3 else "")


def findings_of(state: SessionState, run: Run) -> list[Finding]:
    """The findings of a run that speak for it.

    Not those that the operator has closed, nor one that was over before the run was (a stall
    after which it went on).
    """
    return [
        f
        for f in state.findings.values()
        if f.run_id == run.run_id and not f.dismissed and not _over_within(f, run)
    ]


def _over_within(finding: Finding, run: Run) -> bool:
    if finding.resolved_seq is None:
        return False
    return run.ended_seq is None or finding.resolved_seq < run.ended_seq


def checks_of(state: SessionState, run: Run) -> list[CheckResult]:
    """The latest result of each check of L0-L3 that was measured on this run.

    L1 is measured on the parity run of the tree, so it speaks for the runs of that tree with
    the same command.
    """
    found = []
    for results in state.checks.values():
        for result in reversed(results):
            body = result.body
            if body.level > 3:
                break
            if run.run_id in body.runs or (body.level == 1 and _parity_of(state, body.runs, run)):
                found.append(result)
                break
    return found


def _parity_of(state: SessionState, run_ids: list[str], run: Run) -> bool:
    runs = [r for id in run_ids if (r := state.runs.get(id))]
    return any(
        r.tree == run.tree and r.started.command == run.started.command and not r.of_reference
        for r in runs
    )
