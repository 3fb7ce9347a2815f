"""The words by which the rest of the product knows what is special about a reference run."""

from __future__ import annotations

from core.state_parts import Run

CUDA_ON_CPU = "cpu (cuda redirected)"
"""``target`` of a reference run whose CUDA calls were redirected to the host's CPU."""

NO_TIME = "its CUDA calls ran on the host's CPU"
"""Why, as a clause."""

BY_BUNDLE = "bundle"
"""``by`` of a run that was imported."""


def no_time(run: Run) -> str:
    """Why the time a reference run took says nothing, as a clause; ``""`` where it does."""
    return NO_TIME if run.started.target == CUDA_ON_CPU else ""
