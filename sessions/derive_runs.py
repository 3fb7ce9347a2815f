"""Rows of what was sampled and said of runs, event by event: what the fold thins out or drops."""

from __future__ import annotations

import math
from typing import Any

from core.events import (
    Event,
    HostSampled,
    RunElided,
    RunResumed,
    RunSampled,
    RunSignalled,
    RunStalled,
)

TABLES = ("run_sample", "host_sample", "chip_sample", "run_note")


def rows_of(event: Event, at: str | None) -> list[tuple[str, tuple[Any, ...]]]:
    """The rows of one event of a run, each with its table; ``at`` is its time in ISO 8601."""
    body, run, seq = event.body, event.run_id, event.seq
    if isinstance(body, RunSampled):
        row = (seq, at, run, _number(body.rss_mb), _number(body.swap_mb), body.processes)
        return [("run_sample", row)]
    if isinstance(body, HostSampled):
        figures = (
            body.cpu_pct, body.load1, body.mem_used_mb, body.mem_total_mb, body.swap_used_mb,
            body.disk_free_mb,
        )  # fmt: skip
        found = [("host_sample", (seq, at, run, *map(_number, figures)))]
        found += [("chip_sample", (seq, at, run, *_chip(chip))) for chip in body.chips]
        return found + _note(event, at, "telemetry", body.note)
    if isinstance(body, RunElided):
        return _note(event, at, "output not stored", body.text)
    if isinstance(body, RunStalled):
        kind = "silent compile" if body.alive else "stalled"
        return _note(event, at, kind, f"no output and no step for {body.seconds:.0f} s")
    if isinstance(body, RunResumed):
        return _note(event, at, "went on", f"after {body.seconds:.0f} s")
    if isinstance(body, RunSignalled):
        found = []
        for record in body.records:
            said = record.get("k")
            if said in ("unwatched", "notice") and isinstance(record.get("text"), str):
                found += _note(event, at, str(said), record["text"])
        return found
    return []


def _note(event: Event, at: str | None, kind: str, text: str) -> list[tuple[str, tuple[Any, ...]]]:
    return [("run_note", (event.seq, at, event.run_id, kind, text))] if text else []


def _chip(chip: dict[str, Any]) -> tuple[Any, ...]:
    pids = chip.get("pids")
    held = ", ".join(str(pid) for pid in pids) if isinstance(pids, list) else None
    number, kind = chip.get("chip"), chip.get("kind")
    return (
        number if type(number) is int and abs(number) < 2**63 else None,
        kind if isinstance(kind, str) else None,
        _number(chip.get("hbm_used_mb")),
        _number(chip.get("hbm_total_mb")),
        _number(chip.get("duty_pct")),
        held,
    )


def _number(value: Any) -> float | None:
    """A finite number, or null: SQLite has no nan, and a stranger's file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
