"""Reading ``pilotage.toml`` into a :class:`SessionConfig`: names and types, then values."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.config.checks import check
from core.config.sections import SECTIONS, ConfigError, SessionConfig
from core.config.source import Source
from core.errors import PilotageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "pilotage.toml"
"""The configuration's name where only its directory is given."""

_LARGEST = 2**53
"""Above it a float is no whole number any more; every count and limit is far below."""


_MAX_BYTES = 1 << 20
"""Of a configuration; what is larger is another file, such as a device that never ends."""


def load(
    path: Path | str,
    *,
    python: str | None = None,
    speed: float | None = None,
    script: str | None = None,
    agent: bool = True,
    bundle: str | None = None,
) -> SessionConfig:
    """The configuration in a ``pilotage.toml`` (or of a directory with one), paths absolute.

    ``python``, ``speed`` and ``script`` replace what the file says; their paths are relative
    to the working directory. Without ``agent`` nobody works on the code: ``[agent]`` is not looked
    at, and the driver is ``manual``. ``bundle`` is one to import as the reference. Raises :class:`ConfigError` with file, line and what to do.
    """
    file = _given(path)
    if os.path.isdir(file):  # noqa: PTH112  # Path's own raises for a name that is too long
        file = file / FILE_NAME
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{file} is too large for a configuration. Give a pilotage.toml.")
        text = raw.decode("utf-8-sig")  # some editors begin a file with a mark
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise ConfigError(
            f"There is no configuration {file}. `pilotage init PROJECT` writes one."
        ) from None
    except OSError as err:
        raise ConfigError(f"{file} can't be read: {err.strerror or err}.") from err
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        raise ConfigError(
            f"{file}, line {line}: this is not UTF-8, which TOML has to be. Save it as UTF-8."
        ) from err
    source = Source(str(file), text)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(_not_toml(file, str(err))) from err
    except RecursionError as err:  # thousands of brackets in each other
        raise ConfigError(f"{file}: this is not TOML: it is nested too deeply.") from err
    except ValueError as err:  # what int() refuses, and tomllib lets through
        raise ConfigError(f"{file}: a number in it has thousands of digits.") from err
    if not agent:
        data["agent"] = {"driver": "manual"}
    if bundle is not None and isinstance(data.setdefault("reference", {}), dict):
        data["reference"]["bundle"] = str(_given(bundle))
    config = build(data, source)
    if python is not None:
        python = program(python)
        config = replace(config, project=replace(config.project, python=python))
    if speed is not None:
        config = replace(config, agent=replace(config.agent, speed=float(speed)))
    if script is not None:
        config = replace(config, agent=replace(config.agent, script=str(_given(script))))
    return _absolute(config, file.parent, source)


def _given(path: Path | str) -> Path:
    """A path of the command line, absolute."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as err:
        raise ConfigError(f"{path} names a home directory that is not known: {err}") from err


def program(python: str) -> str:
    """The ``--python`` of a command line: a path, absolute, or a name that is on the ``PATH``.

    Raises :class:`ConfigError` for what can't be started.
    """
    found = str(_given(python)) if "/" in python else python
    if not found or shutil.which(found) is None:
        raise ConfigError(f"--python: there is no program {python!r} that can be started.")
    return found


def _not_toml(file: Path, what: str) -> str:
    """A syntax error as a sentence that begins with the place, as that of any other mistake."""
    where = str(file)
    if match := re.search(r" *\(at line (\d+), column \d+\)$", what):
        what, where = what[: match.start()], f"{file}, line {match[1]}"
    what = what.replace(" (at end of document)", " at the end of the file").rstrip(".")
    return f"{where}: this is not TOML: {what}."


def build(data: dict[str, Any], source: Source) -> SessionConfig:
    """The configuration that ``data`` means; raises :class:`ConfigError` with the line."""
    parts: dict[str, Any] = {}
    for section, value in data.items():
        if section not in SECTIONS and section != "criteria":
            known = [*SECTIONS, "criteria"]
            raise source.error(
                section,
                "",
                f"there is no section [{section}].{_meant(section, known, '[{}]')} "
                f"The sections are {', '.join(known)}.",
            )
        if not isinstance(value, dict):
            raise source.error(section, "", f"{section} has to be a section, as in [{section}].")
        if section == "criteria":
            parts[section] = _criteria(value, source)
        else:
            parts[section] = _section(section, value, source)
    config = SessionConfig(**parts)
    check(config, source)
    return config


def _section(section: str, data: dict[str, Any], source: Source) -> Any:
    cls = SECTIONS[section]
    fields = {f.name: str(f.type) for f in dataclasses.fields(cls)}
    values = {}
    for key, value in data.items():
        if key not in fields:
            raise source.error(
                section,
                key,
                f"[{section}] has no key {key!r}.{_meant(key, fields)} "
                f"Its keys are {', '.join(fields)}.",
            )
        values[key] = _typed(section, key, value, fields[key], source)
    return cls(**values)


def _meant(word: str, known: Iterable[str], form: str = "{}") -> str:
    """``" Did you mean x?"`` where one of ``known`` is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f" Did you mean {form.format(near[0])}?" if near else ""


_NAMES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list of texts",
    "list[int]": "a list of whole numbers",
    "dict[str, str]": "a table of texts",
    "dict[str, Any]": "a table",
}


def _typed(section: str, key: str, value: Any, spec: str, source: Source) -> Any:
    ok = {
        "str": lambda: isinstance(value, str),
        "int": lambda: _whole(value),
        "float": lambda: type(value) in (int, float) and abs(value) <= _LARGEST,
        "bool": lambda: isinstance(value, bool),
        "list[str]": lambda: isinstance(value, list) and all(isinstance(v, str) for v in value),
        "list[int]": lambda: isinstance(value, list) and all(_whole(v) for v in value),
        "dict[str, Any]": lambda: isinstance(value, dict),
        "dict[str, str]": lambda: (
            isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        ),
    }[spec]()
    if not ok:
        raise source.error(
            section, key, f"{key} in [{section}] has to be {_NAMES[spec]}, not {_shown(value)}."
        )
    return float(value) if spec == "float" else value


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= _LARGEST


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as it is written in the file
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _criteria(data: dict[str, Any], source: Source) -> dict[str, Any]:
    from core.levels import Criteria

    known = [f.name for f in dataclasses.fields(Criteria)]
    for key in data:
        if key not in known:
            raise source.error(
                "criteria",
                key,
                f"[criteria] has no key {key!r}.{_meant(key, known)} "
                f"Its keys are {', '.join(known)}.",
            )
        value = data[key]
        if type(value) in (int, float) and not abs(value) <= _LARGEST:
            raise source.error(
                "criteria", key, f"{key} in [criteria] can't be {_shown(value)}: it is no limit."
            )
        if key == "parity_steps" and value == 0:
            why = "parity_steps in [criteria] has to be 1 or more: with none nothing is compared."
            raise source.error("criteria", key, why)
        try:
            Criteria.from_json({key: data[key]})
        except (PilotageError, TypeError, ValueError) as err:
            raise source.error("criteria", key, f"[criteria] can't be used: {err}") from err
    return data


def _absolute(config: SessionConfig, base: Path, source: Source) -> SessionConfig:
    # os.path's questions say no where Path's raise: a name that is too long, a closed directory.
    project = Path(os.path.realpath(_place(base, "project", "path", config.project.path, source)))
    if not os.path.isdir(project):  # noqa: PTH112
        raise source.error("project", "path", f"the project directory {project} is not there.")
    if os.fsencode(project).decode("utf-8", "replace") != str(project):
        raise source.error(
            "project",
            "path",
            f"the project directory {project} has a name that is not UTF-8, which no session can "
            "keep. Rename it.",
        )
    for name in config.project.link:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise source.error(
                "project", "link", f"link {name!r} has to be a path inside the project."
            )
        if not os.path.exists(project / name):  # noqa: PTH110
            raise source.error("project", "link", f"link {name!r}: there is no {project / name}.")
    python = config.project.python
    if "/" in python:  # a bare name such as python3.10 is looked up when a run starts
        file = _place(base, "project", "python", python, source)
        if not os.path.isfile(file):  # noqa: PTH113
            raise source.error("project", "python", f"there is no Python at {file}.")
        python = str(file)  # not resolved: a virtual environment's python is a link
    bundle = config.reference.bundle
    if bundle:
        bundle = str(_place(base, "reference", "bundle", bundle, source))
        if not os.path.isfile(bundle):  # noqa: PTH113
            raise source.error("reference", "bundle", f"the bundle {bundle} is not there.")
    script = config.agent.script
    if script:
        script = str(_place(base, "agent", "script", script, source))
        if not os.path.isfile(script):  # noqa: PTH113
            raise source.error("agent", "script", f"the script {script} is not there.")
    return replace(
        config,
        project=replace(
            config.project,
            path=str(project),
            python=python,
            title=config.project.title or project.name,
        ),
        reference=replace(config.reference, bundle=bundle),
        agent=replace(config.agent, script=script),
    )


def _place(base: Path, section: str, key: str, value: str, source: Source) -> Path:
    """The path that a key of the file means, absolute."""
    if "\0" in value:
        raise source.error(
            section, key, f"{key} in [{section}] has a NUL character, which no path can."
        )
    try:
        return (base / Path(value).expanduser()).absolute()
    except RuntimeError:  # ~name, and there is no such user
        raise source.error(
            section, key, f"{key} in [{section}] is {value}, and no such home directory is known."
        ) from None
