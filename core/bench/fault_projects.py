"""Reading the projects of the fault bench: ``project.toml``, its patches, and what is expected.

A folder is a project if it has a ``project.toml``::

    project/            the original, whole
    project.toml        title, [reference], [target], [metric], [criteria], [parity], [recorder] as
                        in pilotage.toml; [[faithful]] and [[fault]]
    faithful/x.patch    unified diff on project/: a faithful migration
    faults/x.patch      unified diff on the result of its base: the fault made in it

``[[faithful]]`` has ``name`` and ``patch``, and may have ``about``, ``precision``, ``command``,
``env`` (added to the target's) and ``chips``. ``[[fault]]`` has ``name``, ``patch``, ``kind`` and
``level`` (0 to 4: the level that must refuse it), and may have ``base`` (a faithful one; the first,
if it is not named), ``category``, ``about`` and all that a faithful one may have.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config import reading
from core.config.source import Source
from core.errors import PilotageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "project.toml"
ORIGINAL = "project"
TABLES = ("project", "reference", "target", "parity", "metric", "criteria", "recorder")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CATEGORIES = ("", "C1", "C2", "C3", "C4", "C5", "C6")
_SHARED = {"name": str, "patch": str, "about": str, "precision": str, "command": str, "chips": int}
_OF_FAULT = {**_SHARED, "kind": str, "level": int, "base": str, "category": str}
_MAX_BYTES = 1 << 20


class ProjectError(PilotageError):
    """A project of the bench can't be used; the sentence names the file and the entry."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One migration of a project: a faithful one, or one with a fault.

    ``patches`` are applied to the original in their order. ``level`` is the one that must refuse
    a fault, None of a faithful one; ``tables`` is the variant's whole ``pilotage.toml``.
    """

    project: str
    name: str
    patches: tuple[Path, ...]
    kind: str = ""
    level: int | None = None
    category: str = ""
    about: str = ""
    base: str = ""
    tables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """``project/variant``."""
        return f"{self.project}/{self.name}"

    @property
    def faithful(self) -> bool:
        """Whether no check may fail."""
        return self.level is None


@dataclass(frozen=True, slots=True)
class Project:
    """One project with its variants, the faithful ones first."""

    name: str
    title: str
    original: Path
    variants: tuple[Variant, ...]
    tables: Mapping[str, Any] = field(default_factory=dict)


def find_projects(folder: Path, only: Iterable[str] = ()) -> list[Project]:
    """The projects below ``folder``, by name; ``only``: names of projects or ``project/variant``.

    Raises :class:`ProjectError` where there is none, where a file is wrong, or a name unknown.
    """
    if not os.path.isdir(folder):  # noqa: PTH112  # Path's own raises for a name that is too long
        raise ProjectError(
            f"There is no folder {folder}. The projects of the fault bench are in tests/faults of "
            "a checkout of Pilotage, and not in an installed package: name a folder with "
            "--projects DIR."
        )
    wanted = list(only)
    places = sorted(p.parent for p in folder.glob(f"*/{FILE}") if p.is_file())
    if not places:
        raise ProjectError(f"There is no project in {folder}: none of its folders has a {FILE}.")
    asked = {name.partition("/")[0] for name in wanted}
    names = {place.name for place in places}
    for name in sorted(asked - names):
        raise ProjectError(
            f"There is no project {name!r} in {folder}; there is: {', '.join(sorted(names))}."
        )
    projects = [read_project(place) for place in places if not wanted or place.name in asked]
    return [_chosen(project, wanted) for project in projects]


def _chosen(project: Project, wanted: list[str]) -> Project:
    mine = [name for name in wanted if name.partition("/")[0] == project.name]
    if not mine or project.name in mine:
        return project
    known = {variant.id: variant for variant in project.variants}
    for name in mine:
        if name not in known:
            raise ProjectError(f"There is no variant {name!r}; there is: {', '.join(known)}.")
    chosen = tuple(v for v in project.variants if v.id in mine)
    return Project(project.name, project.title, project.original, chosen, project.tables)


def read_project(place: Path) -> Project:
    """The project in a folder. Raises :class:`ProjectError`, or ConfigError for its settings."""
    file = place / FILE
    data, source = _data(file)
    known = {"title", "faithful", "fault", *TABLES}
    for key in data:
        if key not in known:
            raise ProjectError(f"{file}: there is no {key!r}; known: {', '.join(sorted(known))}.")
    if not isinstance(data.get("title"), str):
        raise ProjectError(f"{file}: title is missing: what the project is, in a few words.")
    if not (place / ORIGINAL).is_dir():
        raise ProjectError(f"{file}: beside it there has to be the original, in {ORIGINAL}/.")
    tables = {name: data[name] for name in TABLES if name in data}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ProjectError(f"{file}: {name} has to be a table, begun by [{name}].")
    tables["project"] = {"title": data["title"], **tables.get("project", {})}
    for name in ("reference", "target", "metric"):
        if not isinstance(tables.get(name), dict):
            raise ProjectError(f"{file}: the table [{name}] is missing, as in pilotage.toml.")
    variants: dict[str, Variant] = {}
    for kind in ("faithful", "fault"):
        rows = data.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ProjectError(f"{file}: {kind} has to be tables, each begun by [[{kind}]].")
        for number, row in enumerate(rows, 1):
            where = f"{file}: [[{kind}]] {row.get('name') or number}"
            variant = _variant(place, tables, variants, row, where, kind == "fault")
            if variant.name in variants:
                raise ProjectError(f"{where}: the name is taken by another variant.")
            variants[variant.name] = variant
    if not variants:
        raise ProjectError(f"{file}: there is no [[faithful]] and no [[fault]] in it.")
    for variant in variants.values():
        reading.build({**variant.tables, "agent": {"driver": "manual"}}, source)
    return Project(
        place.name, data["title"], place / ORIGINAL, tuple(variants.values()), _settings(tables)
    )


def _data(file: Path) -> tuple[dict[str, Any], Source]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ProjectError(f"{file} is larger than {_MAX_BYTES} bytes: that is no {FILE}.")
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(text), Source(str(file), text)
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, or no TOML
        raise ProjectError(f"{file} is no TOML: {error}.") from error


def _variant(
    place: Path,
    tables: Mapping[str, Any],
    known: Mapping[str, Variant],
    row: Mapping[str, Any],
    where: str,
    fault: bool,
) -> Variant:
    fields = _OF_FAULT if fault else _SHARED
    for key, value in row.items():
        if key == "env":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ProjectError(f"{where}: env has to be a table of texts.")
        elif key not in fields:
            raise ProjectError(f"{where}: there is no {key!r}; known: env, {', '.join(fields)}.")
        elif type(value) is not fields[key]:
            word = "a text" if fields[key] is str else "a whole number"
            raise ProjectError(f"{where}: {key} has to be {word}, not {value!r}.")
    for key in ("name", "patch", *(("kind", "level") if fault else ())):
        if key not in row:
            raise ProjectError(f"{where}: {key} is missing.")
    name = row["name"]
    if not _NAME.fullmatch(name):
        raise ProjectError(f"{where}: a name has letters, digits, '.', '_' and '-' only.")
    patch = place / row["patch"]
    if not patch.resolve().is_relative_to(place.resolve()) or not patch.is_file():
        raise ProjectError(f"{where}: there is no patch {row['patch']} in {place}.")
    patches: tuple[Path, ...] = (patch,)
    base: Variant | None = None
    if fault:
        base = _base(known, row, where)
        patches = (*base.patches, patch)
    return Variant(
        project=place.name,
        name=name,
        patches=patches,
        kind=row.get("kind", ""),
        level=row["level"] if fault else None,
        category=row.get("category", ""),
        about=row.get("about", ""),
        base=base.name if base else "",
        tables=_with(base.tables if base else _settings(tables), row),
    )


def _base(known: Mapping[str, Variant], row: Mapping[str, Any], where: str) -> Variant:
    if not 0 <= row["level"] <= 4:
        raise ProjectError(f"{where}: level has to be 0 to 4, not {row['level']}.")
    if row.get("category", "") not in _CATEGORIES:
        raise ProjectError(f"{where}: category has to be C1 to C6, not {row['category']!r}.")
    bases = {name: v for name, v in known.items() if v.faithful}
    if not bases:
        raise ProjectError(f"{where}: there is no [[faithful]] migration that it can be made on.")
    name = row.get("base", next(iter(bases)))
    if name not in bases:
        raise ProjectError(f"{where}: there is no base {name!r}; there is: {', '.join(bases)}.")
    return bases[name]


def _settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The project's ``pilotage.toml``: a copy that is no repository of git."""
    return {"project": {**tables.get("project", {}), "path": ".", "copy": True}, **_rest(tables)}


def _rest(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: table for name, table in tables.items() if name != "project"}


def _with(tables: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    target = dict(tables["target"])
    for key in ("precision", "command", "chips"):
        if key in row:
            target[key] = row[key]
    if "env" in row:
        target["env"] = {**target.get("env", {}), **row["env"]}
    return {**tables, "target": target}


# --- writing pilotage.toml -----------------------------------------------------------------------


def to_toml(tables: Mapping[str, Any]) -> str:
    """Tables of texts, numbers, lists and tables as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
        lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    raise ProjectError(f"{value!r} has no place in a pilotage.toml.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    """A basic string: ``\\uXXXX`` for whatever may not stand in one."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'
