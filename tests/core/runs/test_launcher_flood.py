"""Floods of output: bounded memory, whatever the shape, and the true number of lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from core.runs.items import Ended, Output, Progress
from core.runs.launcher import Launcher
from tests.core.runs.test_launcher import ROOT, play, said, spec

# What the recorder does with a run's output but for the log itself, in a process of its own.
CONSUMER = """
import asyncio, json, resource, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from core import events as ev
from core.recorder.output_limit import OutputLimit
from core.run_lines import LogLine, RunLines
from core.runs.launcher import Ended, Launcher, Output, RunSpec

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    lines, limit, stored = RunLines(), OutputLimit(20_000_000), 0
    before = peak()
    handle = await Launcher().start(RunSpec("flood", sys.argv[2], Path("/")))
    async for item in handle:
        if isinstance(item, Output):
            bodies = limit.take(item, time.monotonic())
        elif isinstance(item, Ended):
            bodies = limit.finish()
        else:
            continue
        for body in bodies:
            if isinstance(body, ev.RunOutput):
                lines.extend(LogLine(1, body.stream, text) for text in body.lines)
                stored += sum(map(len, body.lines))
            elif isinstance(body, ev.RunElided):
                lines.elide(body.lines)
    print(json.dumps([len(lines), stored, peak() - before, handle.ended.exit_code]))

asyncio.run(main())
"""
FLOOD = r"""
import os
block = b"x" * 65536
for _ in range(1600): os.write(1, block)          # 100 MB without a newline
os.write(1, b"\n")
line = b"y" * 9999 + b"\n"
for _ in range(1000): os.write(1, line * 10)      # 100 MB in lines of 10 kB
for start in range(0, 100000, 1000):              # and many short ones
    os.write(1, b"".join(b"line %d\n" % i for i in range(start, start + 1000)))
"""


def test_200_megabytes_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    program = tmp_path / "flood.py"
    program.write_text(FLOOD)
    command = f"{sys.executable} {program}"
    done = subprocess.run(
        [sys.executable, "-c", CONSUMER, str(ROOT), command],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines, stored, grown_mib, code = json.loads(done.stdout)
    assert lines == 1 + 10_000 + 100_000 and code == 0
    assert stored < 22_000_000
    assert grown_mib < 90


async def test_100_megabytes_without_a_newline_are_one_line_that_says_so(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(1600): os.write(1, b'x' * 65536)"
    items, end = await play(spec(tmp_path, [sys.executable, "-c", code]))
    (line,) = said(items, "stdout")
    assert line.endswith(f"… [cut: {1600 * 65536 - 16384} more bytes]") and len(line) < 17_000
    assert end.exit_code == 0


async def test_a_tqdm_bar_is_progress_while_it_goes_and_one_line_at_its_end(tmp_path: Path) -> None:
    bar = (
        "import sys, time, os\n"
        "for i in range(101):\n"
        "    sys.stderr.write(f'\\r\\x1b[32m{i:3d}%\\x1b[0m|{\"█\" * (i // 10)}| {i}/100 [loss=0.5]')\n"
        "    sys.stderr.flush()\n"
        "    while i == 50 and not os.path.exists('go'): time.sleep(0.02)\n"
        "sys.stderr.write('\\n')\n"
    )
    handle = await Launcher().start(spec(tmp_path, [sys.executable, "-c", bar]))
    progress, lines = [], []
    async for item in handle:
        if isinstance(item, Progress) and item.text.startswith(" 50%"):
            progress.append(item)
            (tmp_path / "go").touch()
        if isinstance(item, Output):
            lines += item.lines
    assert progress[0].text == " 50%|█████| 50/100 [loss=0.5]"
    assert lines == ["100%|██████████| 100/100 [loss=0.5]"]
    assert isinstance(handle.ended, Ended) and handle.ended.exit_code == 0
