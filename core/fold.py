"""The registry of the fold: which function takes in which kind of event."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.events import Body, Event

if TYPE_CHECKING:
    from core.state import SessionState

Handler = Callable[["SessionState", Event, Any], None]
HANDLERS: dict[type[Body], Handler] = {}


def handles(*kinds: type[Body]) -> Callable[[Handler], Handler]:
    """Register a function as the fold's handler of some kinds; each kind has exactly one."""

    def register(function: Handler) -> Handler:
        for kind in kinds:
            if kind in HANDLERS:
                raise ValueError(f"two handlers for {kind.KIND}")
            HANDLERS[kind] = function
        return function

    return register
