"""Judges an attempt of made-up records: healthy ones (``tests/core/scene.py``), changed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.body import JSON
from core.events import FindingOpened
from core.findings import detect
from tests.core.scene import Scene, signal_records, step_records

Change = Callable[[list[JSON], list[JSON]], object]


def nothing(steps: list[JSON], signals: list[JSON]) -> None:
    """Change nothing: a healthy run."""


def attempt(
    change: Change = nothing,
    count: int = 40,
    *,
    before: Change = nothing,
    ranks: int = 1,
    reference: bool = True,
    lines: Sequence[str] = (),
    config: JSON | None = None,
    **started: object,
) -> dict[str, FindingOpened]:
    """The findings of an attempt of ``count`` steps, each on ``ranks`` ranks.

    ``before`` changes the records of the reference run that it is held against, if there is one.
    """
    scene = Scene(**(config or {}))
    if reference:
        steps, signals = step_records(count, xla=False), signal_records(count, xla=False)
        before(steps, signals)
        scene.run("reference", steps=steps, signals=signals)
    scene.snapshot("t1")
    steps = []
    signals = []
    for rank in range(ranks):
        who: JSON = {"pid": 7 + rank, "tid": 7 + rank} | ({"rank": rank} if ranks > 1 else {})
        part: JSON = {"samples": 32 // ranks}
        steps += [{**record, **who, **part} for record in step_records(count, xla=True)]
        signals += [{**record, **who} for record in signal_records(count, xla=True)]
    steps.sort(key=lambda record: (record["n"], record["pid"]))
    change(steps, signals)
    run_id = scene.start("attempt", **started)
    scene.records(run_id, steps, signals)
    scene.output(run_id, *lines)
    scene.end(run_id)
    return {f.detector: f for f in detect(scene.state, run_id)}


def each(**fields: object) -> Change:
    """Set fields of every step; a callable is asked with the step's record."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            for name, value in fields.items():
                step[name] = value(step) if callable(value) else value

    return change


def kinds(found: dict[str, FindingOpened]) -> set[tuple[str, str]]:
    """Name and category of each finding."""
    return {(f.detector, f.category) for f in found.values()}
