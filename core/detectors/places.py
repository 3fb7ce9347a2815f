"""Where in the program a graph was compiled or a value was read, by PyTorch/XLA's own reports.

They come as signal records of kind ``xla_compile`` (``core.runs.xla_files``): a cause, the line of
the project, and the frames above it, innermost first. One report is written for each compilation;
a read that needs no new graph leaves none.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

from core import records_view as view
from core.body import JSON
from core.detectors.base import Look

#: Reports looked at, the latest; places named.
MAX_REPORTS, MAX_PLACES = 50, 2
_FRAME = re.compile(r"(?P<name>.{1,200}) \((?P<file>.{1,400}):(?P<line>\d{1,7})\)")
#: Frames of the library and of the probe say how, not where.
_OURS = ("/torch_xla/", "/torch/", "pilotage_probe", "<pilotage probe")


def reports(at: Look, *, reads: bool | None = None) -> list[JSON]:
    """The latest reports of compilations; with ``reads`` those that a read of a value caused, or not."""
    latest = (
        s
        for s in reversed(at.run.signals)
        if s.get("k") == "xla_compile" and s.get("kind") == "compilation"
    )
    found = list(islice(latest, MAX_REPORTS))
    if reads is None:
        return found
    return [r for r in found if (r.get("cause_kind") == "value read") == reads]


def place(at: Look, report: JSON) -> str:
    """Such as ``train.py:40 in step``, by way of an installed package where one asked for it."""
    frames = report.get("frames")
    named = [_named(at, str(f)) for f in frames] if isinstance(frames, list) else []
    named = [n for n in named if n]
    own = _named(at, str(report.get("at") or ""))
    inner = named[0] if named else ""
    if own and inner and inner != own:
        return f"{own}, by way of {inner}"
    return own or inner


def _named(at: Look, frame: str) -> str:
    found = _FRAME.fullmatch(frame)
    if found is None or any(part in found["file"] for part in _OURS):
        return ""
    file = found["file"].rpartition("site-packages/")[2]
    if at.run.started.cwd:
        file = file.removeprefix(at.run.started.cwd.rstrip("/") + "/")
    name = "" if found["name"] == "<module>" else f" in {found['name']}"
    return f"{file}:{found['line']}{name}"


def compiled_at(at: Look) -> list[str]:
    """The places that the latest compilations were made for, the most frequent first."""
    found = reports(at)
    places = Counter(
        (place(at, r), "a read of a value" if r.get("cause_kind") == "value read" else "")
        for r in found
    )
    return [
        f"compiled at {where}{f' for {why}' if why else ''}: {times} of the last {len(found)}"
        for (where, why), times in places.most_common(MAX_PLACES)
        if where
    ]


def read_at(at: Look, steps: list[JSON]) -> list[str]:
    """The places that read: by the probe's own word, else those whose reads compiled a graph.

    Reports are asked only where a step executes more than once: a read behind the sync compiles
    nothing, and a report that some other read has left would point at the wrong line.
    """
    seen = Counter(_short(at, str(s["read_at"])) for s in steps if s.get("read_at"))
    told = [
        f"a value is read at {where}, in {times} of the {len(steps)} steps"
        for where, times in seen.most_common(MAX_PLACES)
    ]
    total, known = view.per_step(steps, "executes")
    if not known or total / known < 1.5:
        return told
    places = Counter(where for r in reports(at, reads=True) if (where := place(at, r)))
    return told + [
        f"a value is read at {where}"
        for where, _ in places.most_common(MAX_PLACES)
        if where not in seen
    ]


def _short(at: Look, path: str) -> str:
    """A path as the project's own, without the name of the module's body."""
    cwd = at.run.started.cwd
    short = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
    return short.removesuffix(" in <module>")
