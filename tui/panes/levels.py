"""The level pane: claim and measurement in two columns, checks, findings, money and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text
from textual.app import ComposeResult

from core.levels import FAIL, NOT_RUN, PASS, STALE, WAIVED, CheckStatus, LevelStatus
from core.state import SessionState
from core.state_parts import Finding
from tui.panes.check_words import SIGNS, WORDS, failed_before, state_style, state_words
from tui.panes.pane import Pane
from tui.panes.rows import Row, RowList
from tui.panes.spending import spending_rows, spending_words
from tui.theme import Palette, palette
from tui.view import View
from tui.wording import block, one_line

SHOWN_BEFORE = 2
"""Stale checks of a folded level that had failed and are named."""


GROUPS = {
    "model": ("parameters", "ties", "frozen", "dropout", "start"),
    "data": ("batches", "data", "global_batch"),
    "first pass": ("precision", "forward", "first_loss", "gradients"),
    "optimizer": ("optimizer", "schedule", "events", "resume"),
    "steps": ("grad_norm", "clip", "update", "trajectory", "reduce"),
}
"""L1 has more checks than a screen has lines: they unfold by what they are about."""

GROUPED = 12
"""Checks of a level from which on it unfolds group by group."""

SAID = 2
"""Failed checks of a folded level whose summary is shown; the first place is the answer."""


class LevelPane(Pane):
    """The ladder. Enter on a level folds its checks in and out, on a check shows its evidence."""

    def __init__(self) -> None:
        super().__init__("levels")
        self._drawn: tuple[object, ...] = ()
        self._open: set[str] = set()

    def compose(self) -> ComposeResult:
        """The list that is drawn into."""
        yield RowList(id="level-rows")

    def toggle(self, what: str) -> None:
        """Fold the passed and unrun checks of a level (``1``) or group (``1.data``) in or out."""
        self._open ^= {what}

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
            if str(level.level) not in self._open:
                yield from _folded_rows(level, colours)
                yield from _stale_rows(level, reasons, colours)
            elif len(level.checks) < GROUPED:
                yield from (_check_row(check, colours) for check in level.checks)
            else:
                yield from self._groups(level, colours)
        if ladder.note:
            yield Row(Text(ladder.note, colours.warn), lead=Text(" "))
        yield Row(Text())

    def _groups(self, level: LevelStatus, colours: Palette) -> Iterator[Row]:
        """The groups of an open level; a folded one shows what did not pass."""
        for name, checks in _grouped(level.checks):
            key = f"{level.level}.{name}"
            yield _group_row(key, name, checks, colours)
            for check in checks:
                if key in self._open or check.state not in (PASS, NOT_RUN):
                    yield _check_row(check, colours)


def _grouped(checks: list[CheckStatus]) -> Iterator[tuple[str, list[CheckStatus]]]:
    rest = {c.check.id.partition(".")[2]: c for c in checks}
    for name, ids in GROUPS.items():
        found = [rest.pop(id) for id in ids if id in rest]
        if found:
            yield name, found
    if rest:
        yield "other", list(rest.values())


def _group_row(key: str, name: str, checks: list[CheckStatus], colours: Palette) -> Row:
    counts = Counter(c.state for c in checks)
    worst = next(s for s in (FAIL, STALE, WAIVED, PASS, NOT_RUN) if counts[s])
    parts = [f"{counts[s]} {WORDS[s]}" for s in (PASS, FAIL, STALE, WAIVED, NOT_RUN) if counts[s]]
    text = Text(no_wrap=True).append(f"{name}  ", colours.strong)
    text.append(", ".join(parts), colours.muted)
    return Row(text, f"group:{key}", Text(f" {SIGNS[worst]} ", state_style(worst, colours)))


def _folded_rows(level: LevelStatus, colours: Palette) -> Iterator[Row]:
    said = 0
    for check in _worth_showing(level):
        said += check.state == FAIL
        yield _check_row(check, colours, folded=True, brief=check.state == FAIL and said > SAID)


def _worth_showing(level: LevelStatus) -> list[CheckStatus]:
    """What a folded level shows; of what is stale only the first few: findings need the room."""
    before = [c for c in level.checks if failed_before(c)][:SHOWN_BEFORE]
    return [c for c in level.checks if c.state in (FAIL, WAIVED) or c in before]


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
    if any(failed_before(c) for c in level.checks):
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
    if level.state == STALE and any(failed_before(c) for c in level.checks):
        return ""  # "was FAIL" fills a narrow pane, and those checks are listed below it
    if counts[level.state] == size:
        return f"all {size}"
    if level.state in (PASS, NOT_RUN):
        return f"{size - counts[NOT_RUN]} of {size} ran"
    return f"{counts[level.state]} of {size} {WORDS[level.state]}"


def _check_row(
    status: CheckStatus, colours: Palette, folded: bool = False, brief: bool = False
) -> Row:
    """One check; ``brief`` leaves out its summary."""
    style = state_style(status.state, colours)
    lead = Text(f"  {SIGNS[status.state]} ", style)
    text = Text().append(status.check.title, style if status.state == FAIL else colours.plain)
    text.append("  ").append_text(state_words(status, colours))
    failed = status.state == FAIL or failed_before(status)
    if failed and status.check.category:
        text.append(f" {status.check.category}", colours.warn)
    said = [status.result.body.summary] if failed and status.result else []
    # Why it is stale stands once below the folded level.
    if status.state != FAIL and not (folded and status.state == STALE):
        said.append(status.why)
    for line in said if not brief else []:
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
