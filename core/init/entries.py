"""The candidates for the reference's command, and their ranking.

A candidate's score is the sum of what follows; the highest is taken, and the first found of
equal ones.

===================================================================  =====
a launch script (``*.sh``)                                              60
a Makefile target                                                       50
a code block of a README                                                45
a console script of the package                                         40
a Python file with ``if __name__ == "__main__"``, or that trains or
reads its command line as it is loaded                                  30
what it starts trains (a backward, ``trainer.train()``, ``.fit()``)     40
the file it starts is not in the project                               -60
``train``, ``finetune``, ``pretrain``, ``fit`` in its name              25
the name of a tool: eval, test, predict, export, download ...          -40
an example, a test, a benchmark or docs by its directory               -30
at the top of the project                                               10
a distributed or multi-node name (``slurm``, ``multinode``)            -10
names the CPU as its device, on a machine without a GPU                 20
each word that is not known (``$1``, ``<path>``), at most three        -15
a required option that the command does not give                       -15
===================================================================  =====
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from core.init.facts import Entry
from core.init.script import Script, Scripts, name_words
from core.init.shell import Line, commands, join_lines, parse
from core.risk.tree import Listing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = {"launcher": 60, "makefile": 50, "readme": 45, "console script": 40, "main": 30}
"""Where a command was found, and what that is worth."""

GOOD = {"train", "training", "finetune", "finetuning", "pretrain", "fit", "trainer", "run", "main"}
TOOL = set(
    "eval evaluate evaluation test tests predict prediction inference infer export convert download "
    "prepare preprocess preprocessing data dataset plot visualize demo serve setup install "
    "benchmark bench profile generate sample tokenize build clean lint format upload".split()
)
ASIDE = {"examples", "example", "tests", "test", "benchmarks", "docs", "doc", "tools", "legacy"}

MAX_ENTRIES = 60
"""Candidates that are kept."""

MAX_SCRIPTS = 3_000
"""Python files that are looked at for a main block."""


def find_entries(listing: Listing, scripts: Scripts, gpu: bool = True) -> list[Entry]:
    """All candidates, the best first; the module says by what rule.

    ``gpu``: whether this machine has one.
    """
    found: dict[tuple[object, ...], Entry] = {}
    for entry in _candidates(listing, scripts):
        entry = replace(entry, script=entry.script or scripts.file_of(entry.words, entry.cwd))
        entry = _score(entry, scripts, gpu)
        key = (entry.words, entry.launcher)
        if key not in found or entry.score > found[key].score:
            found[key] = entry
        if len(found) >= 10 * MAX_ENTRIES:
            break
    order = sorted(found.values(), key=lambda e: -e.score)
    return order[:MAX_ENTRIES]


def _candidates(listing: Listing, scripts: Scripts) -> Iterator[Entry]:
    by_depth = sorted(listing.files, key=lambda f: (f.count("/"), f))
    for path in by_depth:
        name = path.rsplit("/", 1)[-1].lower()
        if name.endswith((".sh", ".bash", ".slurm", ".sbatch")):
            if (text := listing.text(path)) is not None:
                yield from commands(text, path)
        elif name in ("makefile", "gnumakefile"):
            if (text := listing.text(path)) is not None:
                yield from _makefile(text, path)
        elif name.startswith("readme") and name.endswith((".md", ".rst", ".txt", "readme")):
            if (text := listing.text(path)) is not None:
                yield from _readme(text, path)
        elif name == "pyproject.toml":
            if (text := listing.text(path)) is not None:
                yield from _console_scripts(text, path)
        elif name == "setup.cfg":
            if (text := listing.text(path)) is not None:
                yield from _setup_cfg(text, path)
    python = [f for f in by_depth if f.endswith(".py")][:MAX_SCRIPTS]
    for path in python:
        # Parsing all of a large project takes long.
        if not path.endswith("__main__.py") and not _MAY_START.search(listing.text(path) or ""):
            continue
        script = scripts.get(path)
        if script is not None and script.main:
            yield _of_main(script)


_MAY_START = re.compile(r"__main__|parse_args|\.backward\(|\.fit\(|\.train\(")


def _of_main(script: Script) -> Entry:
    words: tuple[str, ...] = ("python", script.path)
    parts = script.path.removesuffix(".py").split("/")
    if parts[-1] == "__main__" and len(parts) > 1:
        words = ("python", "-m", ".".join(parts[:-1]))
    elif len(parts) > 1 and any(
        name.startswith((".", f"{parts[0]}.")) for _, name in script.module.imports
    ):
        words = ("python", "-m", ".".join(parts))  # it imports its own package
    return Entry(words, f"{script.path}:{script.main}", "main", script=script.path)


def _makefile(text: str, path: str) -> Iterator[Entry]:
    lines = list(join_lines(text))
    variables: dict[str, str] = {}
    for line in lines:
        if match := re.match(r"([A-Za-z_]\w{0,80})[ \t]*[:?]?=", line.text):
            variables.setdefault(match[1], line.text[match.end() :].strip()[:2_000])
    target = ""
    for line in lines:
        if match := re.match(r"([\w.-]+)\s*:(?!=)", line.text):
            target = match[1]
        raw = re.sub(r"\$[({](\w+)[)}]", lambda m: variables.get(m[1], m[0]), line.text)
        for entry in commands(raw.lstrip("@-"), path, "makefile"):
            yield replace(entry, source=f"{path}:{line.number} (target {target})")


def _readme(text: str, path: str) -> Iterator[Entry]:
    """Commands in fenced or indented blocks; a prompt sign in front is left out."""
    fenced = ""
    block: list[Line] = []
    lines = text.split("\n")[:20_000]
    for number, line in enumerate(lines, 1):
        mark = re.match(r"\s*(```|~~~)\s*(\w*)", line)
        if mark:
            fenced = "" if fenced else (mark[2].lower() or "text")
            continue
        inside = fenced in ("bash", "sh", "shell", "console", "text", "zsh", "shellsession")
        if inside or (not fenced and re.match(r"(?: {4}|\t)\s*\S", line)):
            block.append(Line(number, re.sub(r"^\s*[$>%]\s+", "", line.strip())))
        else:
            yield from _block(block, path)
            block = []
    yield from _block(block, path)


def _block(block: list[Line], path: str) -> Iterator[Entry]:
    if not block:
        return
    joined = "\n".join(line.text for line in block)
    for entry in commands(joined, path, "readme"):
        offset = int(entry.source.rsplit(":", 1)[1])
        yield replace(entry, source=f"{path}:{block[0].number + offset - 1}")


def _console_scripts(text: str, path: str) -> Iterator[Entry]:
    try:
        data: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    lines = text.split("\n")
    tables = [data.get("project"), (data.get("tool") or {}).get("poetry")]
    for table in tables:
        scripts = table.get("scripts") if isinstance(table, dict) else None
        for name, target in (scripts or {}).items() if isinstance(scripts, dict) else ():
            if isinstance(target, str) and ":" in target:
                at = next((i for i, ln in enumerate(lines, 1) if target in ln), 0)
                yield Entry(
                    ("python", "-m", target.split(":")[0]),
                    f"{path}:{at} ({name})",
                    "console script",
                )


def _setup_cfg(text: str, path: str) -> Iterator[Entry]:
    inside = False
    for number, line in enumerate(text.split("\n")[:5_000], 1):
        if line.strip().startswith("console_scripts"):
            inside = True
        elif inside and (match := re.match(r"\s+([\w.-]+)\s*=\s*([\w.]+):\w+", line)):
            yield Entry(
                ("python", "-m", match[2]), f"{path}:{number} ({match[1]})", "console script"
            )
        elif line.strip() and not line[:1].isspace():
            inside = False


def _score(entry: Entry, scripts: Scripts, gpu: bool) -> Entry:
    score, why = KINDS[entry.kind], [f"{entry.kind} {KINDS[entry.kind]}"]

    def add(points: int, reason: str) -> None:
        nonlocal score
        score += points
        why.append(f"{reason} {points:+d}")

    script = scripts.get(entry.script) if entry.script else None
    if not entry.script:
        add(-60, "its file is not in the project")
    elif any(s.trains for s in scripts.closure(entry.script)[:40]):
        add(40, "it trains")
    origin = entry.source.split(":")[0] if entry.kind in ("launcher", "main") else ""
    start = " ".join(entry.words[1:3]) if entry.words[1:2] == ("-m",) else entry.words[1]
    words = name_words(start.rsplit("/", 1)[-1]) | name_words(origin.rsplit("/", 1)[-1])
    if words & GOOD:
        add(25, "by its name")
    if words & TOOL:
        add(-40, "named as a tool")
    if words & {"slurm", "multinode", "sbatch"}:
        add(-10, "for a cluster")
    if not gpu and re.search(r"device[= ]cpu\b", " ".join(entry.words)):
        add(20, "for the CPU, and there is no GPU here")
    directories = name_words("/".join((entry.script or start).split("/")[:-1]))
    if directories & ASIDE:
        add(-30, "by its directory")
    if entry.script and "/" not in entry.script:
        add(10, "at the top")
    if entry.open:
        add(-15 * min(3, len(entry.open)), "words that are not known")
    if script is not None and entry.kind != "console script" and missing(entry, scripts):
        add(-15, "a required option is not given")
    return replace(entry, score=score, why=tuple(why))


def missing(entry: Entry, scripts: Scripts) -> list[str]:
    """The required options of the script that the command does not give."""
    script = scripts.get(entry.script) if entry.script else None
    if script is None:
        return []
    given = {w.split("=")[0] for w in entry.words}
    positional = [o for o in script.options.values() if o.required and not o.name.startswith("-")]
    start = 3 if entry.words[1:2] == ("-m",) else 2
    free = [w for w in entry.words[start:] if not w.startswith("-")]
    absent = [o.name for o in positional[len(free) :]]
    for option in script.options.values():
        if option.required and option.name.startswith("-") and option.name not in given:
            absent.append(option.name)
    return absent


def text_of(words: tuple[str, ...]) -> str:
    """The words as one line that a shell reads as the same words; ``$NAME`` stays a variable."""
    return " ".join(w if re.fullmatch(r"[\w$./:=,+@%{}-]+", w) else shlex.quote(w) for w in words)


__all__ = ["find_entries", "missing", "parse", "text_of"]
