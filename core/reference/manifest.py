"""What a bundle says of itself, ``manifest.json``: its types, read without trust."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.body import JSON
from core.errors import PilotageError
from core.text import clean

FORMAT = 1
"""Of the file. A change that a reader of this release would misread gets the next number."""

MANIFEST = "manifest.json"

MEMBER = re.compile(
    r"manifest\.json|runs/[1-9][0-9]{0,3}\.jsonl"
    r"|capture/[1-9][0-9]{0,3}/rank[0-9]{1,4}/(?:index\.json|[a-z]{1,32}\.safetensors)"
)
"""Every name that a member may have: none of them can leave a directory."""

_SHA = re.compile(r"[0-9a-f]{64}")
_MAX_TEXT = 20_000
_MAX_ITEMS = 20_000


class BundleError(PilotageError):
    """A bundle can't be made, read or used; the sentence names the file."""


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """Which project it is. ``named``: the title was given, and is not just its directory's name.

    ``commit`` is ``""`` where it is no git repository.
    ``tree`` is the git tree that was run, ``dirty`` whether the checkout had changes that are not
    part of it (``note`` says which). ``lines`` are short hashes of lines of its Python code, a
    sample of ``lines_of`` in all, by which a changed copy of the project is known.
    """

    title: str = ""
    named: bool = False
    commit: str = ""
    tree: str = ""
    dirty: bool = False
    note: str = ""
    lines: list[str] = field(default_factory=list)
    lines_of: int = 0


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine: ``memory_mb`` is MiB, ``gpu`` has one text for each (name, memory, driver)."""

    cpu: str = ""
    cores: int = 0
    memory_mb: int = 0
    gpu: list[str] = field(default_factory=list)
    system: str = ""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run in the bundle. ``n`` counts from 1; its events are ``runs/<n>.jsonl``.

    ``ranks`` are those whose tensors are in ``capture/<n>/``; ``why`` says why there are none
    where a parity run should have some. ``against`` is the run (its ``n``, 0: none) whose tensors
    it was fed. ``metric`` is None where none was found, or it was no finite number.
    """

    n: int
    purpose: str = ""
    of: str = ""
    seed: int | None = None
    seconds: float = 0.0
    exit_code: int | None = None
    steps: int = 0
    metric: float | None = None
    precision: str = ""
    against: int = 0
    ranks: list[int] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One file in the bundle: SHA-256 and size of its content as it is unpacked."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of it. ``made`` is UTC (ISO 8601), ``k`` the optimizer steps of a parity run.

    ``seeding`` says how the seeds went in: ``command`` (it contains ``{seed}``), ``environment``
    (``PILOTAGE_SEED``, which the project has to read) or ``""``. ``time`` is ``""`` where minutes
    are a measure, else why they are none. ``minutes`` and ``metric`` are of the first full run.
    """

    format: int = FORMAT
    pilotage: str = ""
    made: str = ""
    project: ProjectFacts = field(default_factory=ProjectFacts)
    command: str = ""
    env: dict[str, str] = field(default_factory=dict)
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=Hardware)
    cuda_on_cpu: bool = False
    time: str = ""
    device: str = ""
    k: int = 0
    precision: str = ""
    seeds: list[int] = field(default_factory=list)
    seeding: str = ""
    minutes: float = 0.0
    metric_name: str = ""
    metric: float | None = None
    higher_is_better: bool = True
    budget_mb: int = 0
    runs: list[RunFacts] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)

    def to_json(self) -> JSON:
        """As a JSON object; the steps of a parity run are ``K`` there."""
        data = dataclasses.asdict(self)
        data["K"] = data.pop("k")
        return data

    def text(self) -> bytes:
        """The content of ``manifest.json``."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True, allow_nan=False).encode()

    @property
    def captured(self) -> list[RunFacts]:
        """The runs whose tensors are in the bundle."""
        return [run for run in self.runs if run.ranks]


def read_manifest(raw: bytes, name: str) -> Manifest:
    """The manifest in ``raw``; ``name`` is the bundle's, for the sentence.

    Raises :class:`BundleError` for one that is of a newer format, or no manifest.
    """
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise BundleError(
            f"{name} can't be used: its manifest is not JSON. It was changed or damaged after it "
            "was made; record it again."
        ) from err
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is not int or number < 1:
        raise BundleError(f"{name} is no reference bundle: its manifest names no format.")
    if number > FORMAT:
        by = clean(str(data.get("pilotage", "")))[:40]
        raise BundleError(
            f"{name} was made by a newer version of Pilotage{f' ({by})' if by else ''}: its format "
            f"is {number}, and this one reads up to {FORMAT}. Update Pilotage, or record it again "
            "with this version."
        )
    try:
        made = _Reading(data)
        manifest = made.manifest()
    except (_Wrong, RecursionError) as err:
        raise BundleError(
            f"{name} can't be used: its manifest has no usable {err}. It was not written by "
            "`pilotage reference record`, or was changed since."
        ) from err
    for member in manifest.members:
        if not MEMBER.fullmatch(member) or member == MANIFEST:
            raise BundleError(f"{name} can't be used: it has no place for {clean(member)[:80]!r}.")
    return manifest


class _Wrong(Exception):
    """The message is the key."""


class _Reading:
    """Takes values out of a JSON object, each of its type or not at all."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def manifest(self) -> Manifest:
        return Manifest(
            format=self.whole("format"),
            pilotage=self.text("pilotage"),
            made=self.text("made"),
            project=self.part("project").project(),
            command=self.text("command"),
            env=self.texts("env"),
            python=self.text("python"),
            packages=self.texts("packages"),
            hardware=self.part("hardware").hardware(),
            cuda_on_cpu=self.flag("cuda_on_cpu"),
            time=self.text("time"),
            device=self.text("device"),
            k=self.whole("K"),
            precision=self.text("precision"),
            seeds=self.wholes("seeds"),
            seeding=self.text("seeding"),
            minutes=self.number("minutes"),
            metric_name=self.text("metric_name"),
            metric=self.maybe("metric"),
            higher_is_better=self.flag("higher_is_better"),
            budget_mb=self.whole("budget_mb"),
            runs=self.runs(),
            members=self.members(),
        )

    def project(self) -> ProjectFacts:
        return ProjectFacts(
            title=self.text("title"),
            named=self.flag("named"),
            commit=self.text("commit"),
            tree=self.text("tree"),
            dirty=self.flag("dirty"),
            note=self.text("note"),
            lines=self.words("lines"),
            lines_of=self.whole("lines_of"),
        )

    def hardware(self) -> Hardware:
        return Hardware(
            cpu=self.text("cpu"),
            cores=self.whole("cores"),
            memory_mb=self.whole("memory_mb"),
            gpu=self.words("gpu"),
            system=self.text("system"),
        )

    def runs(self) -> list[RunFacts]:
        found = [self._part("runs", row).run() for row in self._list("runs")]
        if [run.n for run in found] != [*range(1, len(found) + 1)]:
            raise _Wrong("runs")
        if any(not 0 <= run.against < run.n for run in found):
            raise _Wrong("runs")
        return found

    def run(self) -> RunFacts:
        seed, code = self._data.get("seed"), self._data.get("exit_code")
        if not all(x is None or type(x) is int for x in (seed, code)):
            raise _Wrong("runs")
        return RunFacts(
            n=self.whole("n"),
            purpose=self.text("purpose"),
            of=self.text("of"),
            seed=seed,
            seconds=self.number("seconds"),
            exit_code=code,
            steps=self.whole("steps"),
            metric=self.maybe("metric"),
            precision=self.text("precision"),
            against=self.whole("against"),
            ranks=self.wholes("ranks"),
            why=self.text("why"),
        )

    def members(self) -> dict[str, Member]:
        table = self._data.get("members")
        if not isinstance(table, dict) or len(table) > _MAX_ITEMS:
            raise _Wrong("members")
        found = {}
        for name, row in table.items():
            part = self._part("members", row)
            sha = part.text("sha256")
            if not _SHA.fullmatch(sha):
                raise _Wrong("members")
            found[name] = Member(sha, part.whole("bytes"))
        return found

    # --- values ------------------------------------------------------------------------------

    def part(self, key: str) -> _Reading:
        return self._part(key, self._data.get(key))

    def _part(self, key: str, value: Any) -> _Reading:
        if not isinstance(value, dict):
            raise _Wrong(key)
        return _Reading(value)

    def text(self, key: str) -> str:
        value = self._data.get(key)
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise _Wrong(key)
        return value

    def whole(self, key: str) -> int:
        value = self._data.get(key)
        if type(value) is not int or not 0 <= value < 2**63:
            raise _Wrong(key)
        return value

    def number(self, key: str) -> float:
        value = self.maybe(key)
        if value is None:
            raise _Wrong(key)
        return value

    def maybe(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not abs(value) < 1e300 or math.isnan(value):
            raise _Wrong(key)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._data.get(key)
        if not isinstance(value, bool):
            raise _Wrong(key)
        return value

    def texts(self, key: str) -> dict[str, str]:
        value = self._data.get(key)
        if not isinstance(value, dict) or len(value) > _MAX_ITEMS:
            raise _Wrong(key)
        if not all(isinstance(v, str) and len(v) <= _MAX_TEXT for v in value.values()):
            raise _Wrong(key)
        return value

    def words(self, key: str) -> list[str]:
        value = self._list(key)
        if not all(isinstance(v, str) and len(v) <= _MAX_TEXT for v in value):
            raise _Wrong(key)
        return value

    def wholes(self, key: str) -> list[int]:
        value = self._list(key)
        if not all(type(v) is int and 0 <= v < 2**63 for v in value):
            raise _Wrong(key)
        return value

    def _list(self, key: str) -> list[Any]:
        value = self._data.get(key)
        if not isinstance(value, list) or len(value) > _MAX_ITEMS:
            raise _Wrong(key)
        return value
