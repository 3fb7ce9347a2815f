"""From what a launcher reports to events of the log."""

from __future__ import annotations

from typing import Any

from core import events as ev
from core.runs.launcher import Ended, Records, Resumed, RunHandle, Stalled
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


def stall_event(item: Stalled) -> ev.RunStalled:
    """A run without a sign of life."""
    return ev.RunStalled(
        seconds=item.seconds,
        limit_s=item.limit_s,
        last_line=item.last_line,
        last_step=item.last_step,
        doing=item.doing,
        alive=item.alive,
        at=item.at,
    )


def resumed_events(item: Resumed, finding_id: str) -> list[ev.Body]:
    """A sign of life again; ``finding_id`` is the open finding of the stall, or ``""``."""
    bodies: list[ev.Body] = [ev.RunResumed(item.seconds)]
    if finding_id:
        text = f"The run went on after {item.seconds:.0f} s."
        bodies.append(ev.FindingResolved(finding_id, text))
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
        text = f"{why} {item.text}".strip()
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
        cause=item.cause,
    )
