"""The run pane: one run's state in a line, its loss beside the reference's, and its output."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from textual.app import ComposeResult

from core.attempts import outcome
from core.state_parts import Run
from tui.panes.line import Line
from tui.panes.pane import Pane
from tui.panes.run_notes import metric_words, note_lines
from tui.panes.run_rows import RunRows
from tui.panes.run_series import RunSeries, reference_for
from tui.theme import Palette, palette
from tui.view import View
from tui.widgets.log_view import LogView
from tui.widgets.plot import LinePlot
from tui.widgets.plot_data import Series
from tui.wording import count, one_line, size, span

_CONSOLE = Console(width=80, color_system=None, legacy_windows=False)  # only wraps

OFTEN_STEPS = 2000
"""Steps up to which the plot is drawn at every redraw; a longer one only once a second."""

PLOT_FROM = 15
"""Rows of the pane from which it has room for a plot above the log."""


class RunPane(Pane):
    """The run started last, or the one chosen with ``r``."""

    def __init__(self) -> None:
        super().__init__("run")
        self._series: dict[str, RunSeries] = {}
        self._plotted: tuple[object, ...] = ()
        self._told: tuple[object, ...] = ()
        self._state_id = 0
        self._rows: RunRows | None = None

    def compose(self) -> ComposeResult:
        """Status line, plot, log."""
        yield Line("run-status")
        yield LinePlot(id="plot", empty="No loss yet.")
        yield LogView(id="log", indicator=False, empty="No output yet.")

    def draw(self, view: View) -> None:
        """Draw the chosen run of ``view``, as far as it has changed."""
        if id(view.state) != self._state_id:
            self._state_id = id(view.state)
            self._series.clear()
        run = view.run
        if run is None:
            self._draw_nothing(view)
            return
        series = self._follow(run)
        self._draw_status(run, series, view)
        self._draw_plot(run, series, view)
        log = self.query_one(LogView)
        log.empty = "No output yet." if run.running else "The run printed nothing."
        if self._rows is None or self._rows.lines is not run.lines:
            self._rows = RunRows(run.lines)
        log.set_lines(self._rows.follow(), version=run.run_id, ranks=run.lines.ranks)

    def _follow(self, run: Run) -> RunSeries:
        series = self._series.setdefault(run.run_id, RunSeries())
        series.follow(run)
        return series

    def _draw_nothing(self, view: View) -> None:
        stamp = ("nothing", view.loading)
        if stamp == self._told:
            return
        self._told = stamp
        self._plotted = ()
        self.retitle("run")
        self.query_one(Line).show(Text())
        self.query_one(LinePlot).display = False
        log = self.query_one(LogView)
        log.empty = view.loading or "No run yet. The agent, or v, starts one."
        log.set_lines([], version="")

    def _draw_status(self, run: Run, series: RunSeries, view: View) -> None:
        lasted = run_seconds(run, view.now_us)
        log = self.query_one(LogView)
        stamp = (
            run.run_id, int(lasted), len(run.steps), len(run.lines), run.running, log.chip_text,
            len(view.state.checks), len(view.state.findings), self.size.width, self.app.theme,
            log.rank_text, run.result is not None, len(run.notices), run.elided_lines, len(run.usage),
            run.stalled_ts_us if run.stalled else 0,
        )  # fmt: skip
        if stamp == self._told:
            return
        self._told = stamp
        below = log.chip_text or count(len(run.lines), "line")
        self.retitle(run_title(run, lasted), " · ".join(filter(None, (log.rank_text, below))))
        colours = palette(self.app)
        width = max(20, self.size.width - 2)
        lines = [status_text(run, series, colours, width)]
        if not run.running and run.started.purpose == "attempt":
            result = outcome(view.state, run)
            style = {"passed": colours.ok, "loud": colours.bad, "silent": colours.bad}.get(
                result.kind, colours.warn
            )
            text = Text(f"{_SIGN.get(result.kind, '·')} {result.kind}", style)
            said = one_line(result.text, 300)
            text.append(f"  {said}" if said != result.kind else "", colours.plain)
            wrapped = text.wrap(_CONSOLE, width)
            if len(wrapped) > 2:
                wrapped[1].append(" …")
                wrapped[1].truncate(width, overflow="ellipsis")
            lines += wrapped[:2]
        lines += note_lines(run, view.now_us, colours, width)
        self.query_one(Line).show(Text("\n").join(lines))

    def _draw_plot(self, run: Run, series: RunSeries, view: View) -> None:
        plot = self.query_one(LinePlot)
        plot.display = bool(series.losses) and self.size.height >= PLOT_FROM
        if not plot.display:
            return
        reference = reference_for(view.state, run)
        beside = self._follow(reference) if reference is not None else None
        often = len(series.losses) <= OFTEN_STEPS
        stamp = (
            run.run_id, len(series.losses) if often or not run.running else view.second,
            reference and reference.run_id, len(beside.losses) if beside else 0,
        )  # fmt: skip
        if stamp == self._plotted:
            return
        self._plotted = stamp
        lines = [Series(f"loss #{run.number}", tuple(series.steps), tuple(series.losses))]
        if beside is not None and reference is not None and beside.losses:
            name = f"reference #{reference.number}"
            lines.append(Series(name, tuple(beside.steps), tuple(beside.losses)))
        plot.set_series(lines)


_SIGN = {"passed": "✓", "loud": "✗", "silent": "✗", "unverified": "?", "stopped": "■"}


def run_seconds(run: Run, now_us: int) -> float:
    """How long a run has taken, so far or in all (a cut-off one: at least), in seconds."""
    if run.seconds:
        return run.seconds
    return max(0, ((run.ended_ts_us or now_us) - run.ts_us) / 1e6)


def run_title(run: Run, lasted_s: float) -> str:
    """``run #7 · attempt · 3:12``; a run that was imported says so."""
    started = run.started
    of = f" of {one_line(started.of, 12)}" if started.of else ""
    what = f"{one_line(started.purpose, 12)}{of}{' from a bundle' if started.bundle else ''}"
    return f"run #{run.number} · {what} · {span(lasted_s)}"


def status_text(run: Run, series: RunSeries, colours: Palette, width: int = 400) -> Text:
    """How it stands or ended, step, loss, rate, compiles, memory and metric; what is unknown is
    left out. An item that does not fit into ``width`` cells goes to the next line."""
    text = Text()
    used = 0

    def item(name: str, value: str) -> None:
        nonlocal used
        cells = cell_len(f"{name} {value}") + 2
        text.append("  " if used + cells <= width else "\n", colours.muted)
        used = used + cells if used + cells <= width else cells - 2
        text.append(f"{name} ", colours.muted)
        text.append(value, colours.strong)

    if run.ended is not None:
        how, good = ending(run)
        text.append(how, colours.ok if good else colours.bad)
    else:
        text.append("running", colours.info)
    used = text.cell_len
    if series.last_step:
        item("step", f"{series.last_step:,}")
    if series.last_loss is not None:
        item("loss", f"{series.last_loss:.4g}")
    if series.rate is not None:
        item("it/s", f"{series.rate:.3g}")
    if series.compiles is not None:
        item("compiles", str(series.compiles))
    if run.running and run.usage:
        item("mem", size(run.usage[-1][1].rss_mb * 2**20))
    elif run.ended is not None and run.ended.max_rss_mb:
        item("peak mem", size(run.ended.max_rss_mb * 2**20))
    if run.result is not None and run.result.value is not None:
        item(*metric_words(run.result))
    return text


def ending(run: Run) -> tuple[str, bool]:
    """How a run ended, in words, and whether that was exit 0."""
    ended = run.ended
    if ended is None:
        return "running", True
    if ended.exit_code is not None:
        sign = "✓" if ended.exit_code == 0 else "✗"
        return f"{sign} exit {ended.exit_code}", ended.exit_code == 0
    why = f" ({one_line(ended.text, 80)})" if ended.text else ""
    return f"✗ {one_line(ended.signal or ended.reason, 40)}{why}", False
