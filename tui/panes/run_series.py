"""Numbers of a run that the run pane shows, gathered as the step records come. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.levels import last
from core.records_view import count, number, trainer
from core.state import SessionState
from core.state_parts import Run

RATE_STEPS = 20
"""Steps over which the rate is averaged: long enough to be steady, short enough to follow."""


@dataclass(slots=True)
class RunSeries:
    """Loss by step, compiles and rate of one run so far. Only new records are looked at."""

    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    compiles: int | None = None
    last_step: int = 0
    last_loss: float | None = None
    _times: list[float] = field(default_factory=list)
    _seen: int = 0
    _first_id: int = 0
    _trainer: tuple[object, object] | None = None

    def follow(self, run: Run) -> None:
        """Take in the step records that came since the last call; one trainer's only."""
        first = id(run.steps[0]) if run.steps else 0
        if len(run.steps) < self._seen or first != self._first_id:
            # Another state of the run (a replay went back): begin again.
            self.__init__()  # type: ignore[misc]
            self._first_id = first
        self._trainer = self._trainer or trainer(run)
        for record in run.steps[self._seen :]:
            if self._trainer and (record.get("pid"), record.get("tid")) != self._trainer:
                continue
            self._take(record)
        self._seen = len(run.steps)

    def _take(self, record: dict[str, object]) -> None:
        step = count(record.get("n"))
        if step:
            self.last_step = step
        loss = number(record.get("loss"))
        if loss is not None and step:
            self.steps.append(float(step))
            self.losses.append(loss)
            self.last_loss = loss
        compiled = count(record.get("compiles"))
        if compiled is not None:
            self.compiles = (self.compiles or 0) + compiled
        took = number(record.get("dt"))
        if took is not None and took > 0:
            self._times.append(took)
            del self._times[:-RATE_STEPS]

    @property
    def rate(self) -> float | None:
        """Steps per second over the last steps, or null while none was timed."""
        total = sum(self._times)
        return len(self._times) / total if total > 0 else None


def reference_for(state: SessionState, run: Run) -> Run | None:
    """The run whose loss is drawn beside that of ``run``: the reference of its own kind."""
    started = run.started
    if started.purpose == "parity":
        if started.of == "reference":
            return None
        found = state.runs_for("parity", "reference")
    elif started.purpose == "reference":
        return None
    else:
        found = state.runs_for("reference")
    return last(found, lambda r: r.ok_exit)
