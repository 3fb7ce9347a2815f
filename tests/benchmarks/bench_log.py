"""How fast the event log is. Prints a Markdown table for BENCHMARKS.md, or JSON.

    python tests/benchmarks/bench_log.py --events 20000 --dir /path/on/the/disk/to/measure

`append` makes one transaction per batch with synchronous=FULL, redaction, hash chain, triggers
and the decoding of what it returns included, so it is the rate of acknowledged events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.events import AgentSaid, Event, MarkerPlaced, NewEvent, RunOutput
from core.redact import redact
from core.state import fold
from sessions.chain import breaks
from sessions.check import check
from sessions.derived import rebuild
from sessions.log import EventLog
from sessions.rows import SELECT

LINE = "step 120 | loss 0.4123 | grad norm 0.98 | 1.9 it/s | tokens/s 5123 | https://x.y/z"


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def appends(directory: Path, events: int) -> Iterator[tuple[str, float, str]]:
    for batch in (1, 100, 1000):
        count = min(events, 3000) if batch == 1 else events
        new = [NewEvent(AgentSaid(f"{i} {'x' * 190}"), "agent") for i in range(count)]
        with EventLog.create(directory / f"batch{batch}" / "session.db") as log:
            took = seconds(
                lambda log=log, new=new, batch=batch: [
                    log.append(*new[i : i + batch]) for i in range(0, len(new), batch)
                ]
            )
        yield f"append, 220 bytes each, batch {batch}", count / took, "events/s"
    chunk = NewEvent(RunOutput("stdout", [LINE] * 500), "recorder", run_id="r")
    chunks = [NewEvent(chunk.body, "recorder", run_id="r") for _ in range(100)]
    with EventLog.create(directory / "chunks" / "session.db") as log:
        took = seconds(lambda: [log.append(c) for c in chunks])
    yield "append, run output, chunks of 500 lines", 100 * 500 / took, "lines/s"


def reads(path: Path, events: int) -> Iterator[tuple[str, float, str]]:
    with EventLog.read(path) as log:
        stored: list[Event] = []
        yield "read and decode", events / seconds(lambda: stored.extend(log.events())), "events/s"
        yield "fold", events / seconds(lambda: fold(stored)), "events/s"
        walk = seconds(lambda: list(breaks(log.connection.execute(f"{SELECT} ORDER BY seq"))))
        yield "verify the chain", events / walk, "events/s"
    yield "rebuild the derived tables", events / seconds(lambda: rebuild(path)), "events/s"
    yield "check, derived tables included", events / seconds(lambda: check(path)), "events/s"


def redaction() -> Iterator[tuple[str, float, str]]:
    text = "\n".join([LINE] * 500)
    took = seconds(lambda: [redact(text) for _ in range(200)]) / 200
    yield "redact log text", len(text) / took / 1e6, "MB/s"


async def latency(path: Path, rate: int, span_s: float) -> list[float]:
    """Milliseconds from the append of an event to its sight in a reader that follows."""
    seen: list[float] = []
    with EventLog.create(path) as writer, EventLog.read(path) as reader:

        async def watch() -> None:
            async for some in reader.follow(0, interval=0.05):
                now = time.monotonic_ns() // 1000
                seen.extend((now - e.mono_us) / 1000 for e in some)

        task = asyncio.create_task(watch())
        end = time.monotonic() + span_s
        while time.monotonic() < end:
            writer.append(*(NewEvent(MarkerPlaced("x" * 150), "r") for _ in range(rate // 10)))
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.2)
        task.cancel()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="events per measurement")
    parser.add_argument("--dir", type=Path, help="directory on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        directory = Path(name)
        rows = list(appends(directory, args.events))
        rows += reads(directory / "batch1000" / "session.db", args.events)
        rows += redaction()
        seen = asyncio.run(latency(directory / "latency" / "session.db", 1000, 5.0))
        for title, value in (
            ("median", statistics.median(seen)),
            ("99th percentile", statistics.quantiles(seen, n=100)[98]),
        ):
            rows.append((f"append to sight in a reader, 1,000 events/s, {title}", value, "ms"))
    if args.json:
        print(json.dumps({name: {"value": value, "unit": unit} for name, value, unit in rows}))
        return
    print("| what | measured |\n| --- | --- |")
    for name, value, unit in rows:
        print(f"| {name} | {value:,.0f} {unit} |")


if __name__ == "__main__":
    main()
