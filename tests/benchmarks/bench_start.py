"""How long Pilotage takes to start: ``pilotage --help`` and the first paint of the cockpit.

    python tests/benchmarks/bench_start.py [--runs N] [--json]

First paint is measured from the start of the process to the first screen with the panes' frames
on it, in a real pseudo-terminal of 120x40, on the demo session that ships with the product.
Times are of the whole process, in seconds: minimum, median, maximum.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sessions.home import DB_NAME, RECORDED  # noqa: E402
from tests.terminal.pty_terminal import Terminal  # noqa: E402


def help_text() -> float:
    """Seconds of ``pilotage --help``."""
    began = time.perf_counter()
    command = [sys.executable, str(ROOT / "pilotage.py"), "--help"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_paint(path: Path) -> float:
    """Seconds until the cockpit's panes stand on the screen."""
    began = time.perf_counter()
    with Terminal("attach", str(path)) as terminal:
        terminal.until("levels")
        took = time.perf_counter() - began
        terminal.type("q")
        terminal.drain()
    return took


def first_state(path: Path) -> float:
    """Seconds until the session's state is in them."""
    began = time.perf_counter()
    with Terminal("attach", str(path)) as terminal:
        terminal.until("FINISHED")
        took = time.perf_counter() - began
        terminal.type("q")
        terminal.drain()
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["PILOTAGE_HOME"] = place
        path = Path(place) / "demo" / DB_NAME
        path.parent.mkdir()
        shutil.copyfile(RECORDED / "demo" / DB_NAME, path)
        figures = {}
        for name, measure in {
            "pilotage --help": help_text,
            "cockpit, first paint": lambda: first_paint(path),
            "cockpit, whole demo session shown": lambda: first_state(path),
        }.items():
            measure()  # once to warm the file cache and the bytecode
            taken = sorted(measure() for _ in range(options.runs))
            figures[name] = (taken[0], statistics.median(taken), taken[-1])
    if options.json:
        print(json.dumps(figures))
        return
    for name, (low, median, high) in figures.items():
        print(f"{name:<36} {low:6.3f} {median:6.3f} {high:6.3f}")


if __name__ == "__main__":
    main()
