"""What is being judged: one tree, the runs that speak for it, and the runs it is held against."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from core import records_view as view
from core.body import JSON
from core.levels import FAIL, NOT_RUN, PASS, Criteria, identity, is_xla_cpu, last, target
from core.state import SessionState
from core.state_parts import Run

#: Ends of a run that say something about the code; a run that was stopped or cut off does not.
TELLING = ("exited", "signalled", "time limit", "not started")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check before it is stored. ``evidence`` holds JSON values."""

    state: str
    summary: str
    expected: str = ""
    actual: str = ""
    tolerance: str = ""
    reason: str = ""
    evidence: JSON = field(default_factory=dict)


def not_run(reason: str) -> Verdict:
    """A check that could not be made; ``reason`` is a sentence that says what to do."""
    return Verdict(NOT_RUN, "not run", reason=reason)


def judged(good: bool, summary: str, **more: Any) -> Verdict:
    """``pass`` or ``fail``."""
    return Verdict(PASS if good else FAIL, summary, **more)


class NotRun(Exception):
    """Raised inside a check when what it needs is missing; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One tree with its runs. The properties raise :class:`NotRun` where a run is missing."""

    state: SessionState
    tree: str
    criteria: Criteria

    @property
    def kind(self) -> str:
        """The target's kind, such as ``xla-cpu`` or ``tpu-v5e-4``."""
        return str(target(self.state).get("kind", ""))

    @property
    def chips(self) -> int:
        """Chips asked for."""
        return identity(self.state, self.tree).chips

    @property
    def xla_cpu(self) -> bool:
        """Whether the target is PJRT on the host."""
        return is_xla_cpu(self.state)

    def target_run(self) -> Run | None:
        """The run that L0, L2, L3 and L4 are measured on, if there is one."""
        runs = [r for r in self.state.attempts if r.tree == self.tree and self.is_target(r)]
        return last(runs, lambda r: r.ended is not None and r.ended.reason in TELLING)

    def is_target(self, run: Run) -> bool:
        """Whether a run is of the configured target command on the chips asked for."""
        return is_target_run(self.state, run)

    @property
    def run(self) -> Run:
        """The latest ended attempt with the target command on this tree."""
        found = self.target_run()
        if found is None:
            raise NotRun("The target command has not been run to an end on this tree: run it.")
        return found

    @property
    def reference(self) -> Run:
        """The latest reference run that ended well."""
        found = last(self.state.runs_for("reference"), lambda r: r.ok_exit)
        if found is None:
            raise NotRun("There is no reference run that ended with exit 0: record one.")
        return found

    @property
    def references(self) -> list[Run]:
        """Good reference runs, the latest of each seed, of the same origin as the latest of all."""
        latest = self.reference
        by_seed = {
            run.started.seed: run
            for run in self.state.runs_for("reference")
            if run.ok_exit and run.started.bundle == latest.started.bundle
        }
        return list(by_seed.values())

    @property
    def target_runs(self) -> list[Run]:
        """The ended attempts on this tree by which its metric is judged.

        All that ended well, where the reference was run several times too; else the latest.
        """
        latest = self.run
        if not latest.ok_exit or len(self.references) == 1:
            return [latest]
        runs = [r for r in self.state.attempts if r.tree == self.tree and self.is_target(r)]
        return [r for r in runs if r.ok_exit]

    @property
    def parity(self) -> Run:
        """The latest parity run of the target on this tree in which the probe saw a step."""
        return self._parity("target", "the migrated code on this tree", self.tree)

    @property
    def parity_reference(self) -> Run:
        """The parity run of the reference that the target's was fed from, else the latest.

        In both the probe has to have seen a step.
        """
        try:
            fed = self.state.runs.get(self.parity.started.against)
        except NotRun:
            fed = None
        return fed or self._parity("reference", "the reference", None)

    @property
    def parity_own(self) -> Run | None:
        """The parity run of the target in its own dtype, of this tree and after :attr:`parity`.

        None where there is none: the code computes in float32, or nothing is known of it.
        """
        runs = self.state.runs_for("parity", "target own")
        run = last(runs, lambda r: r.tree == self.tree and _same_command(self.state, r))
        after = run is not None and run.number > self.parity.number
        return run if after and run is not None and run.ended is not None else None

    def has_parity(self) -> bool:
        """Whether the parity runs of this tree are on record, against the present reference."""
        try:
            against = self.parity.started.against
            return against in ("", self._parity("reference", "the reference", None).run_id)
        except NotRun:
            return False

    def _parity(self, of: str, what: str, tree: str | None) -> Run:
        runs = [r for r in self.state.runs_for("parity", of) if tree is None or r.tree == tree]
        if of == "target":
            runs = [r for r in runs if _same_command(self.state, r)]
        run = last(runs, lambda r: r.ended is not None and r.ended.reason in TELLING)
        if run is None:
            attempt = self.target_run() if of == "target" else None
            if attempt is not None and not attempt.ok_exit:
                raise NotRun(
                    f"Run #{attempt.number} did not end with exit 0, so no parity run was made: "
                    "what does not run is not compared."
                )
            raise NotRun(f"There is no finished parity run of {what}: verify to make one.")
        if not run.steps:
            ended = f"exit {run.ended.exit_code}" if run.ended else "no end"
            raise NotRun(
                f"The probe saw no optimizer step in parity run #{run.number} of {what} ({ended}): "
                "look at its output."
            )
        return run

    def pair(self) -> tuple[list[JSON], list[JSON]]:
        """Step records of reference and target parity run, the first K of each, by step."""
        k = self.criteria.parity_steps
        ours = view.steps(self.parity_reference)[:k]
        theirs = view.steps(self.parity)[:k]
        return ours, theirs

    def own_pair(self) -> tuple[list[JSON], list[JSON]] | None:
        """As :meth:`pair`, of the runs in the target's own dtype; None where it has none.

        The reference's is the one it was fed from: its own run in half precision, or the one in
        float32 where the reference never asks for less.
        """
        run = self.parity_own
        if run is None or not run.steps:
            return None
        k = self.criteria.parity_steps
        fed = self.state.runs.get(run.started.against) or self.parity_reference
        return view.steps(fed)[:k], view.steps(run)[:k]

    def models(self) -> tuple[JSON, JSON]:
        """``model`` records of the two parity runs."""
        return self._both("model")

    def optimizers(self) -> tuple[list[JSON], list[JSON]]:
        """``optimizer`` records of the two parity runs, in order of first use."""
        self._both("optimizer")
        return _told_once(self.parity_reference), _told_once(self.parity)

    def _both(self, k: str) -> tuple[JSON, JSON]:
        found = []
        for run in (self.parity_reference, self.parity):
            record = view.record(run, k)
            if record is None:
                raise NotRun(f"The probe recorded no {k} in parity run #{run.number}.")
            found.append(record)
        return found[0], found[1]

    @property
    def replayed(self) -> bool:
        """Whether the target's parity run was given the reference's weights and batches."""
        return bool(self.parity.started.against)

    def told(self, k: str) -> JSON | None:
        """The target's record of kind ``k`` that holds it against the reference's tensors."""
        run = self.parity
        _ = self.parity_reference  # without it there is nothing to hold against
        return view.record(run, k)

    def not_replayed(self, what: str) -> str:
        """Why there are no ``what`` to compare."""
        if not self.replayed:
            return (
                f"No {what} were compared: the reference's parity run left no tensors (it was made "
                "by an earlier release, or could not write them). Record the reference again."
            )
        return (
            f"No {what} were compared in parity run #{self.parity.number}: the probe saw no module "
            "of the trained model run. Call the model itself, not its forward, or waive the check."
        )

    @property
    def repeats(self) -> list[Run]:
        """Parity runs of the reference against its own tensors: they show its own variation."""
        of = self.parity_reference.run_id
        runs = self.state.runs_for("parity", "reference repeat")
        return [r for r in runs if r.started.against == of and r.ok_exit]

    def low(self, fp32: float, low: float) -> tuple[float, str]:
        """The tolerance by dtype, and the words for it: see :attr:`low_precision`."""
        note = f" ({self.low_precision})" if self.low_precision else ""
        return self.rtol(fp32, low), note

    def widened(self, rtol: float, note: str, variation: float) -> tuple[float, str]:
        """The tolerance where the reference itself varies: see ``Criteria.variation_factor``."""
        wide = self.criteria.variation_factor * variation
        if wide <= rtol:
            return rtol, note
        times = f"{self.criteria.variation_factor:g} x"
        return wide, f" ({times} the reference's own variation over {len(self.repeats)} repeats)"

    @staticmethod
    def footnotes(*notes: str) -> JSON:
        """Facts that a verdict is to be read with, as a part of its evidence."""
        said = [note for note in notes if note]
        return {"footnotes": said} if said else {}

    @property
    def low_precision(self) -> str:
        """Why numbers are compared at the bf16 tolerance; ``""`` for fp32 on a CPU."""
        model = view.record(self.parity, "model") or {}
        dtypes = set(view.table(model.get("dtypes")))
        if dtypes & {"bfloat16", "float16"}:
            return "parameters in " + ", ".join(sorted(dtypes & {"bfloat16", "float16"}))
        if self.kind.startswith("tpu") and not view.full_matmul(
            view.record(self.parity, "precision")
        ):
            return "fp32 matmul is bf16 on a TPU by default"
        return ""

    def rtol(self, fp32: float, low: float) -> float:
        """The tolerance by dtype: ``fp32``, or ``low`` where :attr:`low_precision` says so."""
        return max(fp32, low) if self.low_precision else fp32


def _told_once(run: Run) -> list[JSON]:
    """A run's ``optimizer`` records without those that say again what is known.

    The probe describes an optimizer anew once any module was moved, such as a copy that is saved.
    """
    found: list[JSON] = []
    said = set()
    for record in view.records(run, "optimizer"):
        groups = [
            {k: v for k, v in group.items() if k not in ("lr", "initial_lr")}
            for group in view.rows(record.get("groups"))
        ]
        words = repr((record.get("optimizer_id"), record.get("cls"), groups))
        if record.get("optimizer_id") is None or words not in said:
            said.add(words)
            found.append(record)
    return found


def is_target_run(state: SessionState, run: Run) -> bool:
    """Whether a run is an attempt with the configured target command and chip count."""
    if run.started.purpose != "attempt" or not _same_command(state, run):
        return False
    return run.started.chips in (0, identity(state, run.tree).chips)


def _same_command(state: SessionState, run: Run) -> bool:
    asked = _words(str(target(state).get("command", "")))
    made = _words(run.started.command)
    # The word "python" of a configured command is replaced by the project's own interpreter.
    if asked[:1] == ("python",) and made and made[0] in ("python", run.started.python):
        return asked[1:] == made[1:]
    return bool(asked) and asked == made


@lru_cache(maxsize=32)  # asked for each check of each event, and shlex reads letter by letter
def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # an open quote: compare it as it stands
        return (command,)
