"""The level pane: claim and measurement in two columns, checks, findings, money and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult

from core.levels import FAIL, NOT_RUN, PASS, STALE, WAIVED, CheckStatus, LevelStatus
from core.state import SessionState
from core.state_parts import Finding
from tui.panes.pane import Pane
from tui.panes.rows import Row, RowList
from tui.panes.spending import spending_rows, spending_words
from tui.theme import Palette, palette
from tui.view import View
from tui.wording import block, count, one_line

WORDS = {PASS: "pass", FAIL: "FAIL", NOT_RUN: "not run", STALE: "stale", WAIVED: "waived"}
SIGNS = {PASS: "✓", FAIL: "✗", NOT_RUN: "·", STALE: "~", WAIVED: "w"}


SHOWN_BEFORE = 2
"""Stale checks of a folded level that had failed and are named."""


def state_style(state: str, colours: Palette) -> Style:
    """The colour that repeats what sign and word of a check state say."""
    return {
        PASS: colours.ok,
        FAIL: colours.bad,
        STALE: colours.warn,
        WAIVED: colours.warn,
    }.get(state, colours.muted)


class LevelPane(Pane):
    """The ladder. Enter on a level folds its checks in and out, on a check shows its evidence."""

    def __init__(self) -> None:
        super().__init__("levels")
        self._drawn: tuple[object, ...] = ()
        self._open: set[int] = set()

    def compose(self) -> ComposeResult:
        """The list that is drawn into."""
        yield RowList(id="level-rows")

    def toggle(self, level: int) -> None:
        """Fold the passed and unrun checks of a level in or out."""
        self._open ^= {level}

    def draw(self, view: View) -> None:
        """Draw ladder, findings and spending of ``view``, if they have changed."""
        state = view.state
        stamp = (
            id(state),
            len(state.snapshots),
            len(state.claims),
            sum(len(results) for results in state.checks.values()),
            len(state.runs),
            sum(1 for r in state.runs.values() if not r.running),
            sum(1 for f in state.findings.values() if f.open),
            sum(1 for f in state.findings.values() if f.recategorised_by),
            len(state.findings),
            len(state.usage),
            len(state.signals),
            len(state.phases),
            len(state.interventions),
            view.second if view.acting else view.state.seq,
            tuple(self._open),
            self.size.width,
            self.app.theme,
        )
        if stamp == self._drawn:
            return
        self._drawn = stamp
        colours = palette(self.app)
        rows = [*self._ladder(view, colours), *_findings(state, colours)]
        rows += spending_rows(view, colours)
        self.retitle("levels", spending_words(view))
        self.query_one(RowList).set_rows(rows)

    def _ladder(self, view: View, colours: Palette) -> Iterator[Row]:
        ladder = view.ladder
        yield Row(Text("     claim  measured", colours.muted, no_wrap=True))
        reasons: set[str] = set()
        for level in ladder.levels:
            yield _level_row(level, view.state, colours)
            folded = level.level not in self._open
            for check in _worth_showing(level) if folded else level.checks:
                yield _check_row(check, colours, folded)
            if level.level not in self._open:
                yield from _stale_rows(level, reasons, colours)
        if ladder.note:
            yield Row(Text(ladder.note, colours.warn), lead=Text(" "))
        yield Row(Text())


def _worth_showing(level: LevelStatus) -> list[CheckStatus]:
    """What a folded level shows; of what is stale only the first few: findings need the room."""
    before = [c for c in level.checks if _failed_before(c)][:SHOWN_BEFORE]
    return [c for c in level.checks if c.state in (FAIL, WAIVED) or c in before]


def _failed_before(status: CheckStatus) -> bool:
    """Whether a stale check had failed when it was measured."""
    return status.state == STALE and status.result is not None and status.result.body.state == FAIL


def _stale_rows(level: LevelStatus, said: set[str], colours: Palette) -> Iterator[Row]:
    """Why checks of a folded level are stale: each reason once, for it is mostly the same one."""
    for check in level.checks:
        if check.state == STALE and check.why not in said:
            said.add(check.why)
            lead = Text("  ~ ", colours.warn)
            yield Row(Text(one_line(check.why, 160), colours.muted), lead=lead)


def _level_row(level: LevelStatus, state: SessionState, colours: Palette) -> Row:
    text = Text(no_wrap=True)
    text.append(f"L{level.level}   ", colours.strong)
    text.append(f"{'yes' if level.claimed else '–':<7}", colours.plain)
    style = state_style(level.state, colours)
    text.append(f"{SIGNS[level.state]} {WORDS[level.state]}", style)
    if any(_failed_before(c) for c in level.checks):
        text.append(" (was ", colours.muted).append(WORDS[FAIL], colours.bad)
        text.append(")", colours.muted)
    runs = sorted({r for c in level.checks if c.result for r in c.result.body.runs})
    numbers = sorted(state.runs[r].number for r in runs if r in state.runs)
    counts = Counter(c.state for c in level.checks)
    if level.state != NOT_RUN or counts[NOT_RUN] < len(level.checks):
        some = _how_many(level, counts)
        text.append(f"  {some}" if some else "", colours.muted)
        text.append(f"  #{numbers[-1]}" if numbers else "", colours.muted)
    return Row(text, f"level:{level.level}")


def _how_many(level: LevelStatus, counts: Counter[str]) -> str:
    """Of how many checks the level's word is true, in words that can't be read as a score."""
    size = len(level.checks)
    if level.state == FAIL:
        return f"{counts[FAIL]} of {size} fail"
    if level.state == STALE and any(_failed_before(c) for c in level.checks):
        return ""  # "was FAIL" fills a narrow pane, and those checks are listed below it
    if counts[level.state] == size:
        return f"all {size}"
    if level.state in (PASS, NOT_RUN):
        return f"{size - counts[NOT_RUN]} of {size} ran"
    return f"{counts[level.state]} of {size} {WORDS[level.state]}"


def _state_words(status: CheckStatus, colours: Palette) -> Text:
    """``FAIL``; of a stale check also what it was: ``stale (was FAIL)``."""
    text = Text().append(WORDS[status.state], state_style(status.state, colours))
    if status.state == STALE and status.result is not None:
        was = status.result.body.state
        style = state_style(was, colours) if was == FAIL else colours.muted
        text.append(" (was ", colours.muted).append(WORDS.get(was, one_line(was, 20)), style)
        text.append(")", colours.muted)
    return text


def _check_row(status: CheckStatus, colours: Palette, folded: bool) -> Row:
    style = state_style(status.state, colours)
    lead = Text(f"  {SIGNS[status.state]} ", style)
    text = Text().append(status.check.title, style if status.state == FAIL else colours.plain)
    text.append("  ").append_text(_state_words(status, colours))
    failed = status.state == FAIL or _failed_before(status)
    said = [status.result.body.summary] if failed and status.result else []
    # Why it is stale stands once below the folded level.
    if status.state != FAIL and not (folded and status.state == STALE):
        said.append(status.why)
    for line in said:
        text.append("\n" + one_line(line, 160) if line else "", colours.muted)
    return Row(text, f"check:{status.check.id}", lead)


def _findings(state: SessionState, colours: Palette) -> Iterator[Row]:
    unresolved = [f for f in state.findings.values() if f.open]
    title = Text().append("findings  ", colours.strong)
    if not state.findings:
        title.append("none", colours.muted)
    else:
        done = len(state.findings) - len(unresolved)
        title.append(f"{len(unresolved)} open", colours.plain)
        title.append(f"  {done} resolved" if done else "", colours.muted)
    yield Row(title)
    # Of the newest run first: it is what the agent is up against now. Within a run as opened,
    # which is nearest to the cause first.
    runs = list(state.runs)
    place = {run_id: -number for number, run_id in enumerate(runs)}
    for finding in sorted(unresolved, key=lambda f: place.get(f.run_id, 1)):
        yield _finding_row(finding, state, colours)
    yield Row(Text())


def _finding_row(finding: Finding, state: SessionState, colours: Palette) -> Row:
    text = Text()
    text.append(f"{one_line(finding.category, 14)} ", colours.warn)
    if finding.opened.silent:
        text.append("silent ", colours.bad)
    text.append(one_line(finding.opened.title, 160), colours.plain)
    run = state.runs.get(finding.run_id)
    text.append(f"  #{run.number}" if run else "", colours.muted)
    if finding.opened.next_step:
        text.append("\n→ " + one_line(finding.opened.next_step, 200), colours.muted)
    return Row(text, f"finding:{finding.opened.finding_id}", Text("! ", colours.warn))


def check_detail(status: CheckStatus, state: SessionState, colours: Palette) -> Text:
    """Everything needed to doubt a check: expectation, numbers, tolerance, runs, trees."""
    text = Text()
    text.append(f"{SIGNS[status.state]} ", state_style(status.state, colours))
    text.append_text(_state_words(status, colours))
    text.append(f"   {status.check.question}\n\n", colours.plain)
    if status.result is None:
        text.append((status.why or "Nothing has been measured yet.") + "\n", colours.plain)
        text.append("v measures the present tree.", colours.muted)
        return text
    body = status.result.body
    fields = [
        ("result", body.summary),
        ("expected", body.expected),
        ("actual", body.actual),
        ("tolerance", body.tolerance),
        ("why stale" if status.state == STALE else "reason", status.why or body.reason),
        ("runs", _runs(body.runs, state)),
        ("reference", _runs(body.reference_runs, state)),
        ("tree", body.tree[:12]),
        ("command", body.command),
        ("chips", str(body.chips or "")),
        ("criteria", body.criteria),
        ("by", body.author),
    ]
    for name, value in fields:
        if value:
            text.append(f"{name:<11}", colours.muted)
            text.append(block(value) + "\n", colours.plain)
    if body.evidence:
        text.append("\nevidence\n", colours.strong)
        text.append_text(_evidence(body.evidence, colours))
    return text


def _evidence(evidence: dict[str, object], colours: Palette) -> Text:
    text = Text()
    for name, value in evidence.items():
        text.append(f"  {one_line(name, 60)}: ", colours.muted)
        if isinstance(value, list) and value and isinstance(value[0], dict | list):
            text.append("\n")
            for item in value[:200]:
                text.append(f"    {one_line(_compact(item), 400)}\n", colours.plain)
            if len(value) > 200:
                text.append(f"    … {count(len(value) - 200, 'more row')}\n", colours.muted)
        else:
            text.append(f"{one_line(_compact(value), 2000)}\n", colours.plain)
    return text


def _compact(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_compact(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_compact(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def finding_detail(finding: Finding, state: SessionState, colours: Palette) -> Text:
    """A finding with its evidence, threshold and next step."""
    opened = finding.opened
    text = Text()
    text.append(one_line(finding.category, 20), colours.warn)
    if finding.recategorised_by:
        text.append(f" by {one_line(finding.recategorised_by, 40)}", colours.muted)
        text.append(f" (the detector said {one_line(opened.category, 20)})", colours.muted)
    kind = "  silent: no error was raised" if opened.silent else ""
    text.append(kind, colours.bad)
    text.append(f"\n{block(opened.title)}\n\n", colours.strong)
    run = state.runs.get(finding.run_id)
    for name, value in (
        ("next step", opened.next_step),
        ("seen in", f"run #{run.number} ({run.started.purpose})" if run else ""),
        ("detector", opened.detector),
        ("threshold", opened.threshold),
        ("tree", finding.tree[:12]),
        ("resolved", finding.resolved if not finding.open else ""),
    ):
        if value:
            text.append(f"{name:<11}", colours.muted)
            text.append(block(value) + "\n", colours.plain)
    if opened.evidence:
        text.append("\nwhat was seen\n", colours.strong)
        for line in opened.evidence[:400]:
            text.append(f"  {block(line)}\n", colours.plain)
    return text


def _runs(ids: list[str], state: SessionState) -> str:
    names = []
    for run_id in ids:
        run = state.runs.get(run_id)
        names.append(f"#{run.number} {run.started.purpose}" if run else run_id)
    return ", ".join(names)
