"""Measure the widgets: ``python tests/benchmarks/bench_widgets.py`` (add ``--json`` for a machine).

Times are wall-clock on this machine, in a real app without a terminal (Textual's headless driver):
an operation counts until the frame that shows it has been drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from core.unified_diff import parse_diff
from tui.widgets import DiffView, LinePlot, LogView, Moment, PlainLine, Series, Timeline

SIZE = (160, 48)


class Stage(App[None]):
    """One widget that fills the screen."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_mount(self) -> None:
        self.widget.focus()


def log_lines(count: int) -> list[PlainLine]:
    """Lines like those of a training run, one in fifty on stderr."""
    return [
        PlainLine(
            "stderr" if n % 50 == 0 else "stdout", f"step {n} loss {2.3 / (n + 1):.6f} 1.9 it/s"
        )
        for n in range(count)
    ]


def big_diff(hunks: int, changed: int, path: str = "train.py") -> str:
    """One file with so many hunks of so many changed lines each (half removed, half added)."""
    out = [f"diff --git a/{path} b/{path}", f"--- a/{path}", f"+++ b/{path}"]
    for hunk in range(hunks):
        start = hunk * 100 + 1
        half = changed // 2
        out.append(f"@@ -{start},{half + 2} +{start},{half + 2} @@ def f{hunk}(x):")
        out.append("     y = 0")
        out += [f"-    y = x.cuda() + {n}  # line {n}" for n in range(half)]
        out += [f"+    y = x.to(device) + {n}  # line {n}" for n in range(half)]
        out.append("     return y")
    return "\n".join(out) + "\n"


async def timed(act: Callable[[], object], pilot: Pilot[None]) -> float:
    """Seconds until the frame after ``act`` has been drawn."""
    start = time.perf_counter()
    act()
    await pilot.pause()
    return time.perf_counter() - start


async def bench_log() -> dict[str, float]:
    """Opening, following, scrolling and searching a log."""
    lines = log_lines(200_000)
    view = LogView()
    out: dict[str, float] = {}
    async with Stage(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        empty = [await timed(view.refresh, pilot) for _ in range(20)]
        out["a frame without change (in all figures below), ms p50"] = 1e3 * statistics.median(
            empty
        )
        out["open 200,000 lines, ms"] = 1e3 * await timed(lambda: view.set_lines(lines, 1), pilot)
        batch = log_lines(5_000)
        start, cpu = time.perf_counter(), time.process_time()
        frames = [await timed(lambda: view.extend(batch), pilot) for _ in range(20)]
        out["follow, frame with 5,000 new lines, ms p50"] = 1e3 * statistics.median(frames)
        out["follow, lines/s"] = 100_000 / (time.perf_counter() - start)
        out["follow, lines per second of processor time"] = 100_000 / (time.process_time() - cpu)
        jumps = [
            await timed(lambda n=n: view.move_cursor(n * 7919 % 200_000), pilot) for n in range(40)
        ]
        out["jump anywhere, ms p50"] = 1e3 * statistics.median(jumps)
        view.move_cursor(0)
        start = time.perf_counter()
        view.search("step 199999 ")
        while not view.search_done:
            await pilot.pause()
        out["text search over 300,000 lines, ms"] = 1e3 * (time.perf_counter() - start)
        start = time.perf_counter()
        view.search(r"loss 0\.0+1\d+ ", regex=True)
        while not view.search_done:
            await pilot.pause()
        out["regex search over 300,000 lines, ms"] = 1e3 * (time.perf_counter() - start)
        out["catastrophic regex given up after, ms"] = 1e3 * await timed(
            lambda: view.search(r"(\w+\s?)+\$", regex=True), pilot
        )
        one = [PlainLine("stdout", "\x1b[31m宽" * 350_000)]
        out["a hostile line of 1.9 MB, ms"] = 1e3 * await timed(
            lambda: view.set_lines(one, 2), pilot
        )
        view.action_end_search()
        view.set_lines(lines, 3)
        draw = time.perf_counter()
        for _ in range(20):
            for y in range(SIZE[1]):
                view.render_line(y)
        out["draw rows, rows/s"] = 20 * SIZE[1] / (time.perf_counter() - draw)
    return out


async def bench_diff() -> dict[str, float]:
    """Opening and walking a diff of 10,000 changed lines in 300 hunks, and one of 10,000 in one."""
    out: dict[str, float] = {}
    texts = {"300 hunks": big_diff(300, 34), "one hunk": big_diff(1, 10_000)}
    for name, text in texts.items():
        out |= {f"{name}: {what}": value for what, value in (await open_diff(text)).items()}
    return out


async def open_diff(text: str) -> dict[str, float]:
    """Parse, open and walk one diff."""
    out: dict[str, float] = {}
    start = time.perf_counter()
    parse_diff(text)
    out["parse, ms"] = 1e3 * (time.perf_counter() - start)
    view = DiffView()
    async with Stage(view).run_test(size=SIZE) as pilot:
        await pilot.pause()
        cpu = time.process_time()
        out["open until drawn, ms"] = 1e3 * await timed(lambda: view.set_diff(text), pilot)
        out["open until drawn, ms of processor time"] = 1e3 * (time.process_time() - cpu)
        last = view.row_count() - 1
        jumps = [
            await timed(lambda n=n: view.move_cursor(n * 2711 % last), pilot) for n in range(40)
        ]
    out["jump anywhere, ms p50"] = 1e3 * statistics.median(jumps)
    out["jump anywhere, ms max"] = 1e3 * max(jumps)
    return out


async def bench_plot() -> dict[str, float]:
    """Drawing two series of 5,000 values, and taking new ones."""
    xs = list(range(5_000))
    out: dict[str, float] = {}

    def make() -> list[Series]:
        return [
            Series("loss", xs, [math.exp(-x / 900) + 0.1 * math.sin(x) + 0.2 for x in xs]),
            Series("reference", xs, [math.exp(-x / 900) + 0.2 for x in xs]),
        ]

    plot = LinePlot(make())
    async with Stage(plot).run_test(size=SIZE) as pilot:
        await pilot.pause()
        for size in ((78, 12), SIZE):
            times = []
            for _ in range(30):
                start = time.perf_counter()
                plot.draw(*size)
                times.append(time.perf_counter() - start)
            name = f"draw 2 x 5,000 values at {size[0]}x{size[1]}, ms p50"
            out[name] = 1e3 * statistics.median(times)
    ys = [math.exp(-x / 900) for x in xs]
    start = time.perf_counter()
    for _ in range(30):
        Series("loss", xs, ys)
    out["take a new series of 5,000 values, ms"] = 1e3 * (time.perf_counter() - start) / 30
    return out


async def bench_timeline() -> dict[str, float]:
    """Drawing 2,000 moments."""
    kinds = ["attempt", "failed", "finding", "intervention", "level", "ask", "claim"]
    moments = [Moment(n, n * 1_000_000, kinds[n % 7], f"moment {n}") for n in range(2_000)]
    timeline = Timeline()
    async with Stage(timeline).run_test(size=SIZE) as pilot:
        await pilot.pause()
        return {
            "show 2,000 moments, ms": 1e3
            * await timed(lambda: timeline.set_moments(moments, 0, 2_000_000_000), pilot)
        }


BENCHES: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
    "log": bench_log,
    "diff": bench_diff,
    "plot": bench_plot,
    "timeline": bench_timeline,
}


async def main() -> None:
    """Run all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = {name: await bench() for name, bench in BENCHES.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures["process"] = {"peak resident memory, MiB": peak}
    if args.json:
        print(json.dumps(figures, indent=1))
        return
    for name, values in figures.items():
        print(name)
        for what, value in values.items():
            print(f"  {what:<52} {value:>12,.2f}")


if __name__ == "__main__":
    asyncio.run(main())
