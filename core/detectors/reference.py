"""Silent failures that show against our own reference run: what was left out on the way."""

from __future__ import annotations

from collections import Counter
from statistics import median

from core import records_view as view
from core.body import JSON
from core.detectors.base import WARMUP_STEPS, Detector, Look, Sighting, detector
from core.levels import last
from core.state_parts import Run

#: Steps with the same order of events before it counts as the run's own: the first ones compile.
MIN_SAME = WARMUP_STEPS + 1
#: Step records looked at, over all ranks.
FIRST_RECORDS = 400


def reference(at: Look) -> Run | None:
    """The latest reference run that ended well."""
    return last(at.state.runs_for("reference"), lambda run: run.ok_exit)


# --- clipping --------------------------------------------------------------------------------


def _clips(steps: list[JSON]) -> Counter[str]:
    """How often each arrangement of clips, reduces and the step was seen, accumulation aside."""
    found: Counter[str] = Counter()
    for step in steps:
        events = str(step.get("signature") or "").split()
        if "S" in events:
            found[" ".join(e for e in events if e in ("R", "S") or e.startswith("C"))] += 1
    return found


def _before(arrangement: str) -> list[str]:
    """The clips before the optimizer's step, in order."""
    events = arrangement.split()
    return [e for e in events[: events.index("S")] if e.startswith("C")]


@detector
class ClipChanged(Detector):
    """The reference clips its gradients before each step; this run does not, or not the same way."""

    NAME, CATEGORY = "clip_changed", "C3"
    SOURCE = (
        "measured on torch_xla 2.9.0: gradient norm after a clip to 1.0 is 1.0, without it 341 "
        "and then infinite; order of events in each step, compared with our own reference run"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        before = reference(at)
        if before is None or not at.wants_xla:
            return None
        ours, theirs = _clips(view.steps(before, first=50)), _clips(at.first)
        if not ours or sum(theirs.values()) < MIN_SAME:
            return None
        (usual, _), (now, times) = ours.most_common(1)[0], theirs.most_common(1)[0]
        asked, done = _before(usual), _before(now)
        if not asked or done == asked or any(_before(kind) == asked for kind in theirs):
            return None
        behind = [e for e in now.split()[now.split().index("S") :] if e.startswith("C")]
        if done:
            title = "gradients are clipped to another limit than the reference's"
        elif behind:
            title = "gradients are clipped after the optimizer's step, which is too late"
        else:
            title = "the reference's clipping of gradients is no longer called"
        return Sighting(
            title,
            [
                f"the reference's step: {_words(usual)}",
                f"this run's step: {_words(now)} ({times} of the first {sum(theirs.values())})",
            ],
            "Clip between backward() and the optimizer's step, with the reference's limit; on "
            "several chips after the gradients have been reduced.",
            threshold=f"in none of at least {MIN_SAME} steps as in the reference",
        )


def _words(arrangement: str) -> str:
    names = {"R": "reduce", "S": "step"}
    return ", ".join(
        names.get(e) or e.replace("CV(", "clip values (").replace("C(", "clip (")
        for e in arrangement.split()
    )


# --- batches ---------------------------------------------------------------------------------


@detector
class BatchChanged(Detector):
    """Each optimizer step trains on more or fewer samples than the reference's, over all ranks."""

    NAME, CATEGORY = "global_batch_changed", "C3"
    SOURCE = (
        "public case goal_delta_by_world_size: every core took the batch that the single device "
        "had, and the rate no longer fitted; medians of samples a step, compared with our own "
        "reference run. Less than a tenth is let pass: ours."
    )
    SLACK = 0.1

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        before = reference(at)
        if before is None or not at.wants_xla:
            return None
        (ours, alone), (theirs, many) = samples_a_step(before), samples_a_step(at.run)
        if not ours or not theirs or abs(theirs / ours - 1) < self.SLACK:
            return None
        on = f" over {many} ranks" if many > 1 else ""
        from_ = f" over {alone} ranks" if alone > 1 else ""
        return Sighting(
            "an optimizer step trains on another number of samples than the reference's",
            [f"{theirs:g} samples a step{on}, the reference has {ours:g}{from_}"],
            "Divide the batch among the ranks or accumulate to the reference's, or agree with "
            "the operator on another batch and the rate that goes with it.",
            threshold=f"medians that differ by a tenth, of at least {MIN_SAME} steps",
        )


def samples_a_step(run: Run) -> tuple[float, int]:
    """Median of the samples of a step over all ranks, and how many ranks; 0 where not known.

    With several trainers of one rank, or of none, it is not known what makes up a step.
    """
    who: dict[int, tuple[object, object]] = {}
    each: dict[int, list[int]] = {}
    for step in run.steps[:FIRST_RECORDS]:
        rank = view.count(step.get("rank")) or 0
        trainer = (step.get("pid"), step.get("tid"))
        n, samples = view.count(step.get("n")), view.count(step.get("samples"))
        if who.setdefault(rank, trainer) != trainer:
            return 0.0, len(who)
        if n and samples:
            each.setdefault(n, []).append(samples)
    whole = [sum(found) for found in each.values() if len(found) == len(who)]
    return (median(whole), len(who)) if len(whole) >= MIN_SAME else (0.0, len(who))


# --- evaluation ------------------------------------------------------------------------------


@detector
class FewerEvaluated(Detector):
    """The last evaluation saw fewer samples than the reference's."""

    NAME, CATEGORY = "eval_sample_count", "C3"
    SOURCE = (
        "public case eval_sample_count: a metric reduced on one core scores a fraction of the "
        "set; drop_last=True, which makes all shapes equal, drops the rest of the data"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        before = reference(at)
        if before is None or not at.wants_xla or not at.run.ok_exit:
            return None
        asked, seen = evaluated(before), evaluated(at.run)
        # More than the reference's may be padding to a fixed shape that the metric leaves out.
        if not asked or not seen or seen >= asked:
            return None
        return Sighting(
            "fewer samples are evaluated than in the reference",
            [f"{seen} samples in the last evaluation, {asked} in the reference's"],
            "Evaluate the whole set: pad the last batch and leave the padding out of the metric "
            "instead of dropping it, and gather the parts of all processes.",
            threshold="any fewer",
        )


def evaluated(run: Run) -> int:
    """Samples of the last evaluation, over all processes of the run."""
    return sum(view.count(s.get("eval_last")) or 0 for s in run.signals if s.get("k") == "finish")
