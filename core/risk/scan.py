"""The risk scan: every rule over every file of a project that is only read."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.risk import cuda, lazy, libraries, training
from core.risk.module import Module, Unreadable, notebook_code
from core.risk.plain import KERNEL_FILE, OLD_PIN, OLD_PYTHON, kind_of, scan_plain
from core.risk.rules import CATEGORIES, RULES, Rule
from core.risk.tree import Listing
from core.text import clean

__all__ = ["CATEGORIES", "RULES", "Hit", "Scan", "scan"]

_REGISTERED = (cuda, lazy, libraries, training)  # importing them is what fills RULES

MAX_HITS = 20_000
"""Places that are kept; a project with more is counted on, and said so."""

TIME_LIMIT_S = 60.0
"""Seconds of processor time after which no further file is looked at."""

MAX_SOURCE = 200
"""Characters of a source line that are kept."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place that will need work. ``cell`` is a notebook's cell, and ``line`` then counts in
    it; ``source`` is the cleaned text of the line."""

    rule: str
    category: str
    path: str
    line: int
    source: str
    sure: bool
    note: str = ""
    cell: int = 0

    @property
    def place(self) -> str:
        """``train.py:12``, ``demo.ipynb cell 3:2``."""
        return f"{self.path} cell {self.cell}:{self.line}" if self.cell else self._plain

    @property
    def _plain(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(slots=True)
class Scan:
    """All hits, by category, rule, certainty and place; ``notes`` say what was not looked at."""

    hits: list[Hit] = field(default_factory=list)
    files: int = 0
    notes: list[str] = field(default_factory=list)

    def count(self, category: str, sure: bool | None = None) -> int:
        """The hits of one category."""
        return sum(h.category == category and sure in (None, h.sure) for h in self.hits)

    def to_json(self) -> dict[str, object]:
        """Everything, for ``--json``."""
        return {
            "files": self.files,
            "counts": {
                c: {
                    "title": CATEGORIES[c],
                    "sure": self.count(c, True),
                    "guess": self.count(c, False),
                }
                for c in CATEGORIES
            },
            "hits": [
                {
                    "category": h.category,
                    "rule": h.rule,
                    "file": h.path,
                    "line": h.line,
                    **({"cell": h.cell} if h.cell else {}),
                    "source": h.source,
                    "sure": h.sure,
                    "why": RULES[h.rule].why,
                    "do": RULES[h.rule].todo,
                    **({"note": h.note} if h.note else {}),
                }
                for h in self.hits
            ],
            "notes": list(self.notes),
        }


def scan(listing: Listing) -> Scan:
    """Look at every file of a listing. Nothing is imported or executed; nothing is raised."""
    done = Scan()
    until = time.process_time() + TIME_LIMIT_S
    broken: list[str] = []
    for path in listing.files:
        if time.process_time() > until:
            done.notes.append(
                f"The scan was ended after {TIME_LIMIT_S:g} s: the rest is not in it."
            )
            break
        if len(done.hits) >= MAX_HITS:
            done.notes.append(f"Over {MAX_HITS:,} places were found: the rest is not listed.")
            break
        try:
            done.hits += _scan_file(listing, path, done)
        except Unreadable as err:
            broken.append(f"{clean(path)} {err}")
    if broken:
        more = f", and {len(broken) - 5} more" if len(broken) > 5 else ""
        done.notes.append("Not scanned: " + "; ".join(broken[:5]) + more + ".")
    order = list(RULES)
    done.hits.sort(
        key=lambda h: (h.category, not h.sure, order.index(h.rule), h.path, h.cell, h.line)
    )
    done.notes = [*done.notes, *(clean(n) for n in listing.notes)]
    return done


def _scan_file(listing: Listing, path: str, done: Scan) -> list[Hit]:
    lower = path.lower()
    if lower.rsplit("/", 1)[-1] == "pilotage.toml":
        return []  # our own words about it
    if lower.endswith((".cu", ".cuh")):
        done.files += 1
        return [_hit(KERNEL_FILE, path, 0, "", True)]
    python, notebook = lower.endswith(".py"), lower.endswith(".ipynb")
    if not (python or notebook or kind_of(path)):
        return []
    text = listing.text(path)
    if text is None:
        return []
    done.files += 1
    if python:
        return list(_scan_python(path, text))
    if notebook:
        return _scan_notebook(path, text)
    lines = text.split("\n")
    found = scan_plain(path, text)
    return _unique(_hit(f.rule, path, f.line, lines[f.line - 1], f.sure, f.text) for f in found)


_WORDS = (
    *("torch", "cuda", "CUDA", "nvidia", "NCCL", "lightning", "transformers", "accelerate"),
    *("GPUtil", "pynvml", "py3nvml", "nvitop", "gpustat"),
    *libraries.CUDA_ONLY,
    *libraries.OWN_KERNELS,
)


def _scan_python(path: str, text: str) -> list[Hit]:
    name = path.rsplit("/", 1)[-1]
    if name != "setup.py" and not any(word in text for word in _WORDS):
        return []  # no rule has anything to say, and parsing is what takes the time
    module = Module(path, text)
    hits = _hits(module, path, 0)
    if name == "setup.py":
        hits += _setup(module, path)
    return _unique(hits)


def _scan_notebook(path: str, text: str) -> list[Hit]:
    """All cells as one program, so that the imports of one hold for the next."""
    cells = notebook_code(text)
    joined = "\n".join(source for _, source in cells)
    starts: list[tuple[int, int]] = []  # first line of each cell in the joined text, its number
    line = 1
    for number, source in cells:
        starts.append((line, number))
        line += source.count("\n") + 1
    hits = []
    for hit in _hits(Module(path, joined), path, 0):
        first, number = max(s for s in starts if s[0] <= max(1, hit.line))
        place = {"line": hit.line - first + 1, "cell": number}
        hits.append(
            Hit(
                hit.rule,
                hit.category,
                path,
                source=hit.source,
                sure=hit.sure,
                note=hit.note,
                **place,
            )
        )
    return _unique(hits)


def _hits(module: Module, path: str, offset: int) -> list[Hit]:
    hits = []
    for rule in RULES.values():
        if rule.look is None:
            continue
        for found in rule.look(module):
            line = getattr(found.node, "lineno", 0)
            hits.append(_hit(rule, path, line, module.source(line), found.sure, found.text))
    return hits


def _setup(module: Module, path: str) -> Iterator[Hit]:
    """Requirements in ``setup.py``: every text that reads like one, and ``python_requires``."""
    for node, text in module.strings:
        line = getattr(node, "lineno", 0)
        parent = module.parents.get(node)
        if isinstance(parent, ast.keyword) and parent.arg == "python_requires":
            text = f"python_requires = {text}"
        elif isinstance(parent, ast.keyword) or "\n" in text or " " in text.strip():
            continue
        for found in scan_plain("requirements.txt", text):
            if found.rule in (OLD_PIN, OLD_PYTHON):
                yield _hit(found.rule, path, line, module.source(line), found.sure, found.text)


def _hit(rule: Rule, path: str, line: int, source: str, sure: bool, note: str = "") -> Hit:
    text = clean(source[: 2 * MAX_SOURCE].strip())[:MAX_SOURCE]
    return Hit(rule.name, rule.category, clean(path), line, text, sure, note)


def _unique(hits: Iterator[Hit] | list[Hit]) -> list[Hit]:
    """One hit a rule and line; a sure one rather than a guess."""
    best: dict[tuple[str, int, int], Hit] = {}
    for hit in hits:
        key = (hit.rule, hit.cell, hit.line)
        if key not in best or (hit.sure and not best[key].sure):
            best[key] = hit
    return list(best.values())
