"""From what a launcher reports to events of the log."""

from __future__ import annotations

from typing import Any

from core import events as ev
from core.runs.launcher import Ended, Records, RunHandle
from core.runs.records import Malformed, to_json


def record_events(item: Records) -> list[ev.Body]:
    """Probe records as events: steps in one, all others before them in another."""
    steps: list[Any] = []
    others: list[Any] = []
    for record in item.records:
        if isinstance(record, Malformed):
            others.append({"k": "malformed", "reason": record.reason, "text": record.text})
        else:
            data = to_json(record)
            (steps if data["k"] == "step" else others).append(data)
    bodies: list[ev.Body] = []
    if others:
        bodies.append(ev.RunSignalled(others))
    if steps:
        bodies.append(ev.RunStepped(steps))
    return bodies


async def end_and_drain(handle: RunHandle) -> None:
    """End what is still running where nobody can write it down any more (a log that is lost)."""
    if handle.ended is not None:
        return
    await handle.stop(0.5)
    async for _ in handle:
        pass


def end_event(item: Ended, why: str) -> ev.RunEnded:
    """The end of a run; ``why`` says by whom it was stopped, where it was."""
    text = item.text
    if item.reason == "stopped" and why:
        text = why
    elif item.swept:
        many = "es" * (item.swept > 1)
        text += f"{' ' * bool(text)}It left {item.swept} process{many} running, which were ended."
    return ev.RunEnded(
        reason=item.reason,
        exit_code=item.exit_code if item.reason == "exited" else None,
        signal=item.signal,
        duration_s=item.duration_s,
        max_rss_mb=item.max_rss_mb,
        text=text,
    )
