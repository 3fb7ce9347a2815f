"""Which function evaluates which check of :data:`core.levels.CHECKS`."""

from __future__ import annotations

from collections.abc import Callable

from core.levels import CHECKS
from core.verify.subject import Subject, Verdict

Evaluator = Callable[[Subject], Verdict]
EVALUATORS: dict[str, Evaluator] = {}


def check(id: str) -> Callable[[Evaluator], Evaluator]:
    """Register a function as the evaluator of one check; each check has exactly one."""

    def register(function: Evaluator) -> Evaluator:
        if id not in CHECKS:
            raise ValueError(f"there is no check {id}")
        if id in EVALUATORS:
            raise ValueError(f"two evaluators for {id}")
        EVALUATORS[id] = function
        return function

    return register
