"""Which changes need the operator's word, by ``[guard]`` of the configuration."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from core.config.sections import ASKED_BY_DEFAULT
from core.guard.kinds import KINDS
from core.guard.tag import Tag
from core.text import clean

QUOTED = 6
"""Tags that a question quotes; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``ask``: kinds of tag, or ``all``; ``protect``: globs of paths. See ``[guard]``."""

    ask: tuple[str, ...] = ASKED_BY_DEFAULT
    protect: tuple[str, ...] = ()

    def asks(self, tag: Tag) -> bool:
        """Whether a tag needs the operator's word; a guess does as a sure one does."""
        return "all" in self.ask or tag.kind in self.ask or tag.kind == "protected"

    def protected(self, path: str) -> str:
        """The glob that a path falls under, ``""`` where none does."""
        return next((glob for glob in self.protect if matches(path, glob)), "")

    def needing(self, tags: Iterable[Tag], paths: Iterable[str]) -> list[Tag]:
        """Of a change's tags those that need the operator's word, and one for each protected path."""
        found = [
            Tag(
                "protected",
                f"protected by {clean(glob)}",
                clean(path),
                1,
                why=KINDS["protected"].why,
            )
            for path in dict.fromkeys(paths)
            if (glob := self.protected(path))
        ]
        return found + [tag for tag in tags if self.asks(tag)]


def matches(path: str, glob: str) -> bool:
    """Whether a path relative to the project falls under a glob.

    ``*`` also stands for slashes; a name without a slash means any file of that name, and a
    directory everything below it.
    """
    path, glob = path.strip("/"), glob.removeprefix("./").strip("/")
    if fnmatch.fnmatchcase(path, glob) or fnmatch.fnmatchcase(path, f"{glob}/*"):
        return True
    if glob.startswith("**/") and fnmatch.fnmatchcase(path, glob[3:]):
        return True
    return "/" not in glob and fnmatch.fnmatchcase(path.rsplit("/", 1)[-1], glob)


def told(tags: list[Tag]) -> str:
    """The tags as lines of a question."""
    lines = [tag.sentence for tag in tags[:QUOTED]]
    if len(tags) > QUOTED:
        lines.append(f"and {len(tags) - QUOTED} more")
    return "\n".join(lines)
