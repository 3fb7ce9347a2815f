"""The risk scan as text for a terminal of 80 columns."""

from __future__ import annotations

import textwrap

from core.risk.rules import CATEGORIES, RULES
from core.risk.scan import Hit, Scan

WIDTH = 80
PLACES = 6
"""Places that are listed for each rule; ``--json`` has all."""


def summary(scan: Scan, more: str) -> str:
    """One line a category, the sure ones counted first; ``more`` is the command for the rest."""
    if not scan.hits:
        return "\n".join([f"Risk scan: nothing found in {_files(scan)}.", *_notes(scan)])
    lines = [f"Risk scan of {_files(scan)}: {_counts(scan.hits)}"]
    for category, title in CATEGORIES.items():
        hits = [h for h in scan.hits if h.category == category]
        if not hits:
            continue
        sure = sum(h.sure for h in hits)
        lines.append(f"  {category} {title:<30} {sure:>4} sure {len(hits) - sure:>4} guessed")
    return "\n".join([*lines, f"  {more} shows each of them.", *_notes(scan)])


def describe(scan: Scan) -> str:
    """All categories with their rules: why, what to do, and the first places."""
    if not scan.hits:
        return summary(scan, "")
    lines = [f"{_files(scan).capitalize()} read: {_counts(scan.hits)}"]
    lines += _wrap(
        "A guess would need types to be sure: look whether it is a tensor there.", "", ""
    )
    for category, title in CATEGORIES.items():
        hits = [h for h in scan.hits if h.category == category]
        if not hits:
            continue
        lines += ["", f"{category}  {title}: {_counts(hits)}"]
        for key in dict.fromkeys((h.rule, h.sure) for h in hits):
            lines += ["", *_rule([h for h in hits if (h.rule, h.sure) == key])]
    notes = _notes(scan)
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _rule(hits: list[Hit]) -> list[str]:
    rule = RULES[hits[0].rule]
    guess = "" if hits[0].sure else " (guess)"
    count = f": {len(hits)} places" if len(hits) > 1 else ""
    lines = [f"  {rule.title}{guess}{count}"]
    notes = list(dict.fromkeys(h.note for h in hits if h.note))
    own = f" {notes[0]}" if len(notes) == 1 and notes[0].endswith(".") else ""
    lines += _wrap(rule.why + own, "    ", "    ")
    lines += _wrap(rule.todo, "    > ", "      ")
    lines += [_place(h, bool(own)) for h in hits[:PLACES]]
    if len(hits) > PLACES:
        lines.append(f"      and {len(hits) - PLACES} more (--json lists all)")
    return lines


def _place(hit: Hit, told: bool) -> str:
    place = hit.place
    if len(place) > 40:
        place = "…" + place[-39:]
    text = " ".join(hit.source.split())
    if hit.note and not told:
        text = f"{hit.note.rstrip('.')}: {text}" if text else hit.note
    line = f"      {place:<24} {text}".rstrip()
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _counts(hits: list[Hit]) -> str:
    sure = sum(h.sure for h in hits)
    places = f"{len(hits)} place{'s' * (len(hits) != 1)}"
    guessed = len(hits) - sure
    if not guessed or not sure:
        return f"{places}, {'sure' if sure else 'guessed'}"
    return f"{places}, {sure} sure and {guessed} guessed"


def _files(scan: Scan) -> str:
    return f"{scan.files:,} file{'s' * (scan.files != 1)}"


def _notes(scan: Scan) -> list[str]:
    return [line for note in scan.notes for line in _wrap(note, "  note: ", "    ")]


def _wrap(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    )
