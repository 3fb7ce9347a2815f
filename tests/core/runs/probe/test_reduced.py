"""A reduction makes other gradients; those that were read before a clip stay what they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.runs.probe.pilotage_probe import steps, threads
from core.runs.probe.pilotage_probe.cycle import open_cycle


@pytest.fixture
def thread() -> Iterator[threads.Thread]:
    found = threads.current()
    found.open = found.pending = None
    yield found
    found.open = found.pending = None


@pytest.mark.parametrize("clipped", [False, True])
def test_a_reduction_after_the_clip_leaves_the_norm_before_it(
    thread: threads.Thread, clipped: bool
) -> None:
    cycle = open_cycle(thread)
    cycle.note("B")
    cycle.grads = {1: 2.0}
    if clipped:  # xm.optimizer_step reduces behind torch's clipping by value, which returns no norm
        cycle.clips.append({"fn": "clip_grad_value_"})
    steps.on_reduce((), {}, None)
    assert cycle.events == ["B", "R"]
    assert cycle.grads == ({1: 2.0} if clipped else None)
