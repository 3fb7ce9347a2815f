"""What a flood of output costs the recorder: its memory, its time and the size of the log.

    python tests/benchmarks/bench_output.py [--mb N] [--lines N] [--json]

Three runs of a real recorder process on a program that prints nothing but output: so many MB in
lines of 200 bytes, 100 MB without one newline, and so many short lines. ``peak`` is the largest
resident memory of the recorder (VmHWM), ``log`` the size of session.db, ``kept`` the lines that
the state holds at the end of those that were printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from core.process import start_recorder  # noqa: E402
from core.state import fold  # noqa: E402
from sessions.log import EventLog  # noqa: E402
from tests.core.recorder.recording import make  # noqa: E402

LINES = """
import os
line = b"step 0000 loss 0.4321 " + b"x" * 177 + b"\\n"
block = line * 500
for _ in range(%d): os.write(1, block)
"""
BAR = """
import os
block = b"x" * 65536
for _ in range(1600): os.write(1, block)
os.write(1, b"\\n")
"""
SHORT = """
import os
for start in range(0, %d, 1000):
    os.write(1, b"".join(b"line %%d\\n" %% i for i in range(start, start + 1000)))
"""


def measure(program: str) -> dict[str, float]:
    """One session whose target is ``program``; the reference prints nothing."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["PILOTAGE_HOME"] = str(Path(place, "home"))
        quiet = (
            "import sys\nif len(sys.argv) > 1: exec(open('flood.py').read())\nprint('acc 0.9')\n"
        )
        config = "[recorder]\ngrace_s = 0.1\n"
        files = {"train.py": quiet, "flood.py": program}
        path = make(Path(place), "[[step]]\nrun = true\n", files, config)
        began = time.perf_counter()
        recorder = start_recorder(path.parent)
        peak = 0
        while recorder.poll() is None:
            try:
                text = Path(f"/proc/{recorder.pid}/status").read_text()
                peak = max(peak, int(text.partition("VmHWM:")[2].split()[0]))
            except (OSError, IndexError, ValueError):
                pass
            time.sleep(0.05)
        took = time.perf_counter() - began
        with EventLog.read(path) as log:
            state = fold(log.events())
        run = state.attempts[0]
        assert run.ok_exit, run.ended
        return {
            "seconds": round(took, 1),
            "run_s": round(run.seconds or 0, 1),
            "peak_mib": round(peak / 1024),
            "log_mb": round(path.stat().st_size / 1e6, 1),
            "lines": len(run.lines),
            "kept": len(run.lines) - run.lines.missing,
            "elided_lines": run.elided_lines,
        }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=int, default=1000, help="MB of the first program")
    parser.add_argument("--lines", type=int, default=5_000_000, help="lines of the last one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    programs = {
        "nothing": "",
        f"{options.mb} MB in lines of 200 bytes": LINES % (options.mb * 10),
        "100 MB without a newline": BAR,
        f"{options.lines:,} short lines": SHORT % options.lines,
    }
    found = {name: measure(program) for name, program in programs.items()}
    if options.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"{name}: " + ", ".join(f"{k} {v:,}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
