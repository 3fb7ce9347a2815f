"""What is to be said about a run beside its numbers: stalls, its metric, output not kept. Pure."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from core.kinds_work import RunResult
from core.state_parts import Run
from tui.theme import Palette
from tui.wording import count, one_line, size, span

MAX_NOTES = 3
"""Notes under the status line; the log needs the rest of the pane."""


def notes(run: Run, now_us: int, colours: Palette) -> list[tuple[str, str, Style]]:
    """Sign, words and colour of what is to be said about a run, the most urgent first."""
    found: list[tuple[str, str, Style]] = []
    if run.stalled is not None and run.running:
        alive = run.stalled.alive
        found.append(
            (
                "~" if alive else "!",
                stall_words(run, now_us),
                colours.info if alive else colours.warn,
            )
        )
    if run.result is not None and run.result.value is None and run.result.problem:
        found.append(("!", one_line(run.result.problem, 200), colours.warn))
    if run.elided_lines or run.elided_bytes:
        said = f"{count(run.elided_lines, 'line')} ({size(run.elided_bytes)}) not in the log"
        why = run.elided[-1][1].text if run.elided else ""
        found.append(("·", one_line(f"{said}: {why}" if why else said, 200), colours.muted))
    found += [("·", one_line(text, 200), colours.muted) for text in run.notices]
    return found[:MAX_NOTES]


def stall_words(run: Run, now_us: int) -> str:
    """``stalled 15:04 · last step 41 · compile at train.py:40``; no output and no step, that is."""
    stall = run.stalled
    if stall is None:
        return ""
    silent_s = stall.seconds + max(0, now_us - run.stalled_ts_us) / 1e6
    words = [f"{'no output' if stall.alive else 'stalled'} {span(silent_s)}"]
    if stall.last_step is not None:
        words.append(f"last step {stall.last_step:,}")
    if stall.doing or stall.at:
        doing = one_line(stall.doing, 40)
        words.append(
            f"{doing} at {one_line(stall.at, 60)}"
            if stall.at and doing
            else doing or one_line(stall.at, 60)
        )
    if stall.alive:
        words.append("still at work")
    return " · ".join(words)


def metric_words(result: RunResult) -> tuple[str, str]:
    """Name and value of the project's metric as it was read."""
    return one_line(result.name, 24) or "metric", f"{result.value:.6g}"


def note_lines(run: Run, now_us: int, colours: Palette, width: int) -> list[Text]:
    """The notes, each on one line of at most ``width`` cells."""
    lines = []
    for sign, words, style in notes(run, now_us, colours):
        text = Text(f"{sign} {words}", style)
        text.truncate(width, overflow="ellipsis")
        lines.append(text)
    return lines
