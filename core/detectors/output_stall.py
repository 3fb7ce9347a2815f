"""The run goes on and gets nowhere, as the output shows it."""

from __future__ import annotations

import itertools
import re
import statistics

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import clock
from core.detectors.output_look import Line, LogLook, quote

_SAID = re.compile(
    r"\bno (?:further|more|other|new) (?:output|logs?|lines|progress|steps?|messages)\b|\bno (?:output|progress|activity|step|heartbeat|log) (?:for|since|after|in)\b"
    r"|\b(?:never|does not|doesn't|did not|didn't) (?:finish|return|complete|progress|end|terminate|move|advance|proceed)\w*\b"
    r"|\b(?:hangs?|hung|freezes (?:at|on|in|after)\b|hanging|stuck|deadlock(?:ed)?|stalled|unresponsive)\b"
    r"|\b(?:process|training|run|program|job|script|loop|it) (?:is |appears |seems |has )?(?:frozen|freezes|froze|stalls)\b"
    r"|\bno (?:progress|response)\b|\bstill (?:waiting|running|compiling|at step)\b.{0,40}\d ?(?:min|h\b|hours?)|\bwait(?:ing|ed)\b.{0,60}(?:forever|\d ?(?:min|hours?|h\b))|still waiting at step"
    r"|watchdog .{0,60}(?:no progress|timed? ?out|stall)|initialization is taking more than \d"
    r"|\bblock(?:ed|s|ing) (?:in|on|at)\b.{0,60}\d ?(?:min|hours?|h\b)|not making progress|\bstep \d+ .{0,20}timed out",
    re.IGNORECASE,
)
_SAID_NOT = re.compile(
    r"\b(?:avoid|prevent|disabl|could|may|might|if|whether|fix|detect|known to|in case|can cause|would|should|otherwise|to not)\w*\b"
    r"|\bTOKENIZERS_PARALLELISM\b|timeout=",
    re.IGNORECASE,
)
#: A remark in brackets, or words of a run and its parts: prose of other things hangs too.
_REMARK = re.compile(r"^\W*[(\[].*[)\]]\W*$")
_OF_A_RUN = re.compile(
    r"\d ?(?:min|hours?|hrs?\b|h\b|s\b|sec)|\b(?:train\w*|step|epoch|backward|forward|compil\w*|xm|loss|rendezvous|sync|device|tpu|xla|batch|"
    r"process|job|collective|barrier|saving|checkpoint|loader|output|progress|script|run)\b",
    re.IGNORECASE,
)
_OF_A_NUMBER = re.compile(
    r"\b(?:loss|acc\w*|metric|ppl|score|bleu)\b.{0,24}\b(?:stuck|does|did|never)", re.I
)
_STAMP = re.compile(r"(?<!\d)(?:(\d{4})-(\d\d)-(\d\d)[T ])?(\d\d):(\d\d):(\d\d)(?!\d|:)")
_STILL = re.compile(r"\b0/(\d+) \[((?:\d+:)?\d+:\d\d)<\?|\b\d+/\d+ \[[\d:]+<[^\]]{1,40}, (\d{4,}(?:\.\d+)?)s/(?:it|step|batch)")  # fmt: skip
_WAITS = re.compile(r"mark_step|torch_xla\.sync|wait_device_ops|rendezvous|all_reduce|barrier|_run_step_closures|mesh_reduce|block_until_ready")  # fmt: skip
_COLLECTIVE = re.compile(r"rendezvous|\bxm\.save|\b(?:while|when|at|in|during) (?:the )?(?:sav|checkpoint)\w*|all_gather|all_reduce|all-reduce|mesh_reduce|\bgather\b|\bbarrier\b", re.I)  # fmt: skip
#: The last thing that was said before the run stood still.
_SAVING = re.compile(r"^\W*(?:\w+:\s)?(?:saving|saved?|writing|checkpoint\w*)\b", re.IGNORECASE)
#: Seconds without a step that are no pause any more. Ours.
STILL_S = 1800.0


@detector
class Stalled(OutputDetector):
    """The run goes on and gets nowhere."""

    NAME, CATEGORY = "stall", "C4"
    SOURCE = (
        "public cases stall (pytorch/xla#2847, #3203): no step after the first. Ours: half an hour "
        "without a step, or a last gap between time stamps of 10 minutes and 20 times the usual"
    )
    SAME_FAULT = ("recompile", "no_step_boundary", "transfer_per_step", "compile_too_slow")

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = self._said(log) or self._bar(log) or self._gap(log) or self._interrupted(log)
        if not lines:
            return None
        evidence, at = quote(lines)
        place = {line.no: i for i, line in enumerate(log.lines)}
        near = [log.lines[max(0, place[lines[0].no] - 1)], *lines]
        collective = any(_COLLECTIVE.search(x.text) for x in near) or bool(
            _SAVING.match(near[0].text)
        )
        return Sighting(
            "the run stalls: no step for a long time",
            evidence,
            "Let every replica reach the same collective, save and rendezvous: none of them may "
            "stand under a condition on the rank."
            if collective
            else "Look with py-spy dump where it waits; a loop traced into one graph, or a "
            "collective that not every replica reaches, are the usual causes.",
            category="C3" if collective else "",
            threshold=f"said by the log, or {STILL_S / 60:g} min without a step",
            at=at,
        )

    @staticmethod
    def _said(log: LogLook) -> list[Line]:
        found = log.matching(
            _SAID,
            20,
            "no ",
            "never",
            " not ",
            "n't",
            "hang",
            "hung",
            "stuck",
            "fr",
            "dead",
            "stall",
            "still",
            "wait",
            "watchdog",
            "initializ",
            "timed",
            "unresp",
            "block",
        )
        return [
            x
            for x in found
            if len(x.text) < 300
            and not _SAID_NOT.search(x.text)
            and not _OF_A_NUMBER.search(x.text)
            and (_REMARK.match(x.text) or _OF_A_RUN.search(x.text))
        ]

    @staticmethod
    def _bar(log: LogLook) -> list[Line]:
        for line in reversed(log.having("<")):
            if "[" not in line.text:
                continue
            m = _STILL.search(line.text)
            if m:
                slow = m[3] is not None and float(m[3]) >= STILL_S
                return [line] if slow or (m[2] and clock(m[2]) >= STILL_S) else []
            if "it/s]" in line.text or "s/it]" in line.text:
                return []
        return []

    @staticmethod
    def _gap(log: LogLook) -> list[Line]:
        stamps = []
        for line in log.lines:
            if m := _STAMP.search(line.text[:40]):
                day = (int(m[1]) * 372 + int(m[2]) * 31 + int(m[3])) * 86400 if m[1] else 0
                stamps.append((line, day + int(m[4]) * 3600 + int(m[5]) * 60 + int(m[6])))
        gaps = [b[1] - a[1] for a, b in itertools.pairwise(stamps)]
        gaps = [g + 86400 if g < -43200 else g for g in gaps]
        if len(gaps) < 10 or log.ending.kind not in ("interrupted", "killed", ""):
            return []
        usual = max(1.0, statistics.median(gaps[:-1]))
        if gaps[-1] >= 600 and gaps[-1] > 20 * usual and max(gaps[:-1]) < gaps[-1] / 2:
            return [stamps[-2][0], stamps[-1][0]]
        return []

    @staticmethod
    def _interrupted(log: LogLook) -> list[Line]:
        """Ended by hand while it waited for the device."""
        if log.ending.kind != "interrupted":
            return []
        tail = log.lines[-40:]
        waits = [x for x in tail if _WAITS.search(x.text)]
        if not waits or len([r for r in log.rows if r.step is not None]) > 3:
            return []
        return [waits[-1], *[log.lines[i] for i in log.ending.lines[-1:]]]
