"""The base of all event bodies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Body:
    """Base of all event bodies; subclasses set ``KIND`` and, when changed, ``VERSION``."""

    KIND: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1

    def payload(self) -> JSON:
        """The body as a JSON object, without kind and version (the envelope has those)."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
