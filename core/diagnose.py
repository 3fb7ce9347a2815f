"""What a saved log shows of itself: the findings, and what they make of the whole.

**Silent** is a log that shows a sign of failure and no error that ended the run. A run that the
kernel killed (SIGKILL) raised no error. A log without a sign is not silent: its category is null.

**The category** is that of the finding that speaks for the log: an error before everything
silent; of silent findings what is sure before what is suspected, then the cause before its
consequence (:data:`core.detectors.ranking.ORDER`). An error whose words have no category takes
that of a silent finding, where there is one: it is the likelier cause; else, in an excerpt,
that of the topic its words are of.
"""

from __future__ import annotations

import textwrap
from typing import Any

from core.body import JSON
from core.detectors import loud_kinds as loud_kinds  # registers its detectors
from core.detectors import ranking
from core.detectors.base import CATEGORIES, DETECTORS, Detector, Sighting
from core.detectors.loud import KINDS, ErrorDetector, speaker
from core.detectors.output_look import LogLook
from core.detectors.output_words import UNCATEGORISED, topic_of
from core.errors import PilotageError
from core.log_file import LogText, read_log

#: Evidence lines shown per finding, and columns of the text.
SHOWN, WIDTH = 6, 80
#: Rows of one evidence line.
EVIDENCE_ROWS = 3


def diagnose(name: str) -> JSON:
    """Diagnose the log at a path, or standard input for ``-``.

    Gives ``file``, ``category`` (``C1`` to ``C6``, ``uncategorised``, or null: no sign),
    ``silent``, ``ended`` (``error``, ``killed``, ``interrupted`` or null: by its text),
    ``findings`` (the one that speaks for the log first; each with ``detector``, ``category``,
    ``title``, ``silent``, ``evidence`` of ``{line, text}``, ``next_step``, ``threshold``, ``source``),
    ``lines`` and ``notes``. Raises :class:`PilotageError` where there is no text to read.
    """
    return diagnose_text(read_log(name))


def diagnose_text(log: LogText) -> JSON:
    """The same of a log that was read already."""
    look = LogLook(log.lines)
    findings = [_as_json(d, s) for d, s in _error(look)]
    seen: ranking.Found = []
    for detector in ranking.output_detectors():
        sighting = detector.read(look)
        if sighting is not None:
            seen.append((detector, sighting))
    findings += [_as_json(d, s) for d, s in ranking.ranked(seen, look)]
    category, silent = verdict(findings)
    if category == "uncategorised" and look.excerpt:
        # A few lines were picked to show the cause: their words may name it.
        lines = [line.text for line in look.lines if line.text.strip()]
        category = topic_of(lines, UNCATEGORISED) or category
    return {
        "file": log.name,
        "category": category,
        "silent": silent,
        "ended": look.ending.kind or None,
        "findings": findings,
        "lines": log.total,
        "notes": list(log.notes),
    }


def verdict(findings: list[JSON]) -> tuple[str | None, bool]:
    """Category and silence of a log by its findings, the first of which speaks for it."""
    if not findings:
        return None, False
    first = findings[0]
    category = first["category"]
    if category == "uncategorised":
        category = next((f["category"] for f in findings[1:] if f["silent"]), category)
    return category, bool(first["silent"])


def unread(name: str, error: PilotageError) -> JSON:
    """What stands for a log that could not be read; ``error`` says why."""
    return {"file": name, "category": None, "silent": None, "findings": [], "error": str(error)}


def _error(look: LogLook) -> list[tuple[ErrorDetector, Sighting]]:
    if look.ending.kind != "error":
        return []
    found = DETECTORS[speaker(look.ending.error, look.ending.frames).NAME]
    assert isinstance(found, ErrorDetector)
    return [(found, found.sighting(look, look.ending))]


def _as_json(detector: Detector, sighting: Sighting) -> JSON:
    numbers = sighting.at or (0,) * len(sighting.evidence)
    return {
        "detector": detector.NAME,
        "category": sighting.category or detector.CATEGORY,
        "title": sighting.title,
        "silent": detector.SILENT,
        "evidence": [
            {"line": no or None, "text": text}
            for no, text in zip(numbers, sighting.evidence, strict=True)
        ],
        "next_step": sighting.next_step,
        "threshold": sighting.threshold,
        "source": detector.SOURCE,
    }


# --- in words --------------------------------------------------------------------------------


def describe(result: JSON) -> str:
    """The result in words, at most 80 columns wide."""
    if "error" in result:
        return _wrap(str(result["error"]), "")
    lines = [_wrap(f"{result['file']}: {_headline(result)}", "")]
    for finding in result["findings"]:
        lines.append("")
        lines += _finding(finding)
    for note in result["notes"]:
        lines += ["", _wrap(note, "  ")]
    return "\n".join(lines)


def _headline(result: JSON) -> str:
    category, findings = result["category"], result["findings"]
    if not findings:
        ended = {"interrupted": " It was interrupted by hand."}.get(str(result.get("ended")), "")
        return "no sign of a failure." + ended
    silent = "silent failure (no error was raised)" if result["silent"] else "failed with an error"
    named = category if category == "uncategorised" else f"{category} {CATEGORIES[category]}"
    more = f", {len(findings)} findings" if len(findings) > 1 else ""
    return f"{silent}, {named}{more}."


def _finding(finding: dict[str, Any]) -> list[str]:
    kind = "silent" if finding["silent"] else "error"
    lines = [_wrap(f"{finding['category']} {finding['title']}", "  ", "     ")]
    lines.append(_wrap(f"detector {finding['detector']}, {kind}", "     "))
    for item in finding["evidence"][:SHOWN]:
        where = f"line {item['line']}: " if item["line"] else ""
        room = WIDTH - 5 - len(where)
        rows = textwrap.wrap(item["text"], room, break_on_hyphens=False) or [""]
        if len(rows) > EVIDENCE_ROWS:
            rows = [*rows[: EVIDENCE_ROWS - 1], rows[EVIDENCE_ROWS - 1][: room - 1] + "…"]
        lines.append(f"     {where}{rows[0]}")
        lines += [" " * (WIDTH - room) + row for row in rows[1:]]
    lines.append(_wrap(f"Next: {finding['next_step']}", "     ", "           "))
    if finding["threshold"]:
        lines.append(_wrap(f"Threshold: {_stop(finding['threshold'])}", "     ", "           "))
    lines.append(_wrap(f"Source: {_stop(finding['source'])}", "     ", "           "))
    return lines


def _stop(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _wrap(text: str, indent: str, later: str | None = None) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=later if later is not None else indent,
        break_on_hyphens=False,
        break_long_words=True,
    )


def detectors() -> list[JSON]:
    """The detectors that read a saved log: errors in the order they are tried, then the rest."""
    errors: list[Detector] = [DETECTORS[cls.NAME] for cls in KINDS]
    return [
        {
            "detector": d.NAME,
            "category": d.CATEGORY,
            "silent": d.SILENT,
            "sees": " ".join((type(d).__doc__ or "").split()),
            "source": d.SOURCE,
        }
        for d in [*errors, *ranking.output_detectors()]
    ]


def describe_detectors() -> str:
    """The same in words: a line for each; ``--`` stands for no category."""
    rows = []
    for r in detectors():
        category = r["category"] if len(r["category"]) == 2 else "--"
        kind = "silent" if r["silent"] else "error"
        rows.append(f"{category} {r['detector']:<25} {kind:<6} {r['sees']}")
    return "\n".join(textwrap.fill(r, WIDTH, subsequent_indent=" " * 36) for r in rows)
