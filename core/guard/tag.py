"""What the guard collects (facts) and what it says (tags)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

MAX_VALUE = 160
"""Characters of a value that a tag keeps."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One change that may change what is trained, measured or believed.

    ``kind`` is one of :data:`core.guard.kinds.KINDS`. ``line`` counts in the new file for ``side``
    ``new``, and in the old one for ``old``, where the new one has no such line any more. ``before`` and
    ``after`` are values as the code has them, ``""`` where there is none. ``sure``: by the syntax
    trees; else it is a guess, and ``why`` says from what. ``category`` is that of a finding (C1 to
    C6) or ``""``.
    """

    kind: str
    title: str
    path: str
    line: int
    before: str = ""
    after: str = ""
    sure: bool = True
    why: str = ""
    category: str = ""
    side: str = "new"

    @property
    def sentence(self) -> str:
        """``train.py:41 clipping: clip_grad_norm_ max_norm, 1 -> 5``, for a question or a list."""
        change = ""
        if self.before and self.after:
            change = f", {self.before} -> {self.after}"
        elif self.before or self.after:
            change = f", {self.before or self.after}"
        guess = "" if self.sure else " (a guess)"
        return f"{self.path}:{self.line} {self.kind}: {self.title}{change}{guess}"

    def to_json(self) -> dict[str, Any]:
        """The tag as an event stores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tag | None:
        """The tag of a stored event; None where a stranger's event is none."""
        values: dict[str, Any] = {}
        for item in fields(cls):
            value = data.get(item.name, item.default)
            wanted = {"int": int, "bool": bool}.get(str(item.type), str)
            if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
                return None
            values[item.name] = value
        return cls(**values)


class Arg(NamedTuple):
    """One value of a fact: the kind of tag that its change gets, and the value as text.

    Names of the program stand between ``NAME`` and ``END`` in the text, so that a renamed one can
    be told from another one.
    """

    kind: str
    text: str
    sure: bool = True


NAME, END, ATTRIBUTE_END = "\x01", "\x02", "\x03"


@dataclass(slots=True)
class Fact:
    """Something that the code says about training.

    ``group`` is what it can be compared with; ``kind`` is the kind of tag that its coming or going
    gets; ``presence`` says whether that is told: ``sure``, ``guess``, ``gone`` (going is told, coming
    is a guess), ``quiet`` (no). ``owner`` is the variable or key that it belongs to and ``scope`` the
    function; both help to find the other version of the same fact.
    """

    group: str
    kind: str
    label: str
    line: int
    args: dict[str, Arg] = field(default_factory=dict)
    presence: str = "sure"
    owner: str = ""
    scope: str = ""


@dataclass(slots=True)
class Facts:
    """All facts of one version of one file.

    ``names`` are the identifiers of the file and ``bound`` those that it makes itself, attributes
    with a dot in front; ``lines`` are the lines of its text, to say which of them the other version has too.
    """

    facts: list[Fact] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
