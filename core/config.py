"""The configuration of a session: ``pilotage.toml``, checked key by key.

Paths in the file are relative to the file. What is stored with the session (``to_json``) has
them absolute, so that a recorder started anywhere later means the same files.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import PilotageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DRIVERS = ("scripted",)
"""Agent drivers of this release."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TARGET_KIND = re.compile(r"xla-cpu|tpu-v[0-9]+[a-z]*(-[0-9]+)?")

_LARGEST = 2**53
"""Above it a float is no whole number any more; every count and limit is far below."""


class ConfigError(PilotageError):
    """A configuration can't be used; the sentence names file, line and key."""


@dataclass(frozen=True, slots=True)
class Project:
    """What is migrated.

    ``python`` is the interpreter of the runs (``""``: the one Pilotage runs in). With ``copy``
    the session works on a private copy of the directory instead of a worktree of its git
    repository. ``outputs`` are gitignore patterns of what runs write, besides ``OUTPUTS`` of
    :mod:`core.workspace`; ``link`` are paths below ``path`` that git does not hold (data sets)
    and that the worktrees get a symbolic link to.
    """

    title: str = ""
    path: str = "."
    python: str = ""
    copy: bool = False
    outputs: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Reference:
    """The untouched project, run once: its command, what is added to its environment, its device."""

    command: str = ""
    env: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the migrated project has to run: ``xla-cpu``, ``tpu-v5e-4`` ...; and by what command."""

    kind: str = "xla-cpu"
    chips: int = 1
    command: str = ""
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """The project's own metric: the last line of output that ``pattern`` matches, first group.

    ``points`` turns a difference of the metric into points (100 for a share of 1).
    """

    name: str = ""
    pattern: str = ""
    higher_is_better: bool = True
    points: float = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Keys of the price table; ``""`` is an unknown price, which is never counted as zero.

    ``override``: by key, US dollars an hour, or a table with ``usd_per_hour`` and ``scope``
    (``chip`` or ``instance``), which a key that the table has not needs.
    """

    reference: str = ""
    target: str = ""
    override: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agent:
    """Who migrates. ``speed`` divides the pauses of a scripted agent; 0 leaves them out."""

    driver: str = "scripted"
    script: str = ""
    speed: float = 1.0
    verify_on_claim: bool = True


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator's price, in US dollars an hour; 0 is *not counted*."""

    rate_usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorder:
    """How long the recorder stays up once the agent has ended, and its limits.

    ``grace_s``: seconds without a sign of any operator until it stops (default 10 minutes).
    ``run_limit_s``: a run that takes longer is stopped (0: no limit); ``shell_limit_s``
    likewise for one shell command.
    """

    grace_s: float = 600.0
    run_limit_s: float = 0.0
    shell_limit_s: float = 600.0


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Everything a session is opened with. ``criteria`` are tolerances: see ``core.levels``."""

    project: Project = field(default_factory=Project)
    reference: Reference = field(default_factory=Reference)
    target: Target = field(default_factory=Target)
    metric: Metric = field(default_factory=Metric)
    criteria: dict[str, Any] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)
    agent: Agent = field(default_factory=Agent)
    operator: Operator = field(default_factory=Operator)
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def title(self) -> str:
        """The session's title: the one given, else the name of the project's directory."""
        return self.project.title or Path(self.project.path).name

    def to_json(self) -> dict[str, Any]:
        """The configuration as a JSON object of the same shape as the file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SessionConfig:
        """The configuration out of ``to_json``; raises :class:`ConfigError`."""
        return _build(data, _Source("the session's configuration", ""))


SECTIONS: dict[str, type] = {
    "project": Project,
    "reference": Reference,
    "target": Target,
    "metric": Metric,
    "prices": Prices,
    "agent": Agent,
    "operator": Operator,
    "recorder": Recorder,
}


def load(
    path: Path | str,
    *,
    python: str | None = None,
    speed: float | None = None,
    script: str | None = None,
) -> SessionConfig:
    """The configuration in a ``pilotage.toml`` (or of a directory with one), paths absolute.

    ``python``, ``speed`` and ``script`` replace what the file says; their paths are relative
    to the working directory. Raises :class:`ConfigError` with file, line and what to do.
    """
    file = Path(path).expanduser().absolute()
    if file.is_dir():
        file = file / "pilotage.toml"
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except FileNotFoundError:
        raise ConfigError(
            f"There is no configuration {file}. The README shows one to start from."
        ) from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{file} can't be read: {err}.") from err
    source = _Source(str(file), text)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(f"{file} is not TOML: {err}.") from err
    config = _build(data, source)
    if python is not None:
        if "/" in python:
            python = str(Path(python).expanduser().absolute())
        config = replace(config, project=replace(config.project, python=python))
    if speed is not None:
        config = replace(config, agent=replace(config.agent, speed=float(speed)))
    if script is not None:
        script = str(Path(script).expanduser().absolute())
        config = replace(config, agent=replace(config.agent, script=script))
    return _absolute(config, file.parent, source)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a configuration came from, to say where a mistake is."""

    name: str
    text: str

    def error(self, section: str, key: str, what: str) -> ConfigError:
        line = self._line(section, key)
        where = f"{self.name}, line {line}" if line else self.name
        return ConfigError(f"{where}: {what}")

    def _line(self, section: str, key: str) -> int:
        """Line of ``key`` in ``[section]``, else of the section, else 0."""
        now, section_line = "", 0
        for number, line in enumerate(self.text.splitlines(), 1):
            if match := re.match(r"\s*\[+\s*([^\]\s]+)\s*\]+", line):
                now = match[1]
                if now == section:
                    section_line = number
            name = re.match(r"\s*[\"']?([A-Za-z0-9_.-]+)[\"']?\s*=", line)
            if not name:
                continue
            full = f"{now}.{name[1]}" if now else name[1]
            if full == f"{section}.{key}" or (not now and key == "" and name[1] == section):
                return number
        return section_line


def _build(data: dict[str, Any], source: _Source) -> SessionConfig:
    parts: dict[str, Any] = {}
    for section, value in data.items():
        if section not in SECTIONS and section != "criteria":
            known = ", ".join([*SECTIONS, "criteria"])
            raise source.error(
                section, "", f"there is no section [{section}]. The sections are {known}."
            )
        if not isinstance(value, dict):
            raise source.error(section, "", f"{section} has to be a section, as in [{section}].")
        if section == "criteria":
            parts[section] = _criteria(value, source)
        else:
            parts[section] = _section(section, value, source)
    config = SessionConfig(**parts)
    _check(config, source)
    return config


def _section(section: str, data: dict[str, Any], source: _Source) -> Any:
    cls = SECTIONS[section]
    fields = {f.name: str(f.type) for f in dataclasses.fields(cls)}
    values = {}
    for key, value in data.items():
        if key not in fields:
            known = ", ".join(fields)
            raise source.error(
                section, key, f"[{section}] has no key {key!r}. Its keys are {known}."
            )
        values[key] = _typed(section, key, value, fields[key], source)
    return cls(**values)


_NAMES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list of texts",
    "dict[str, str]": "a table of texts",
    "dict[str, Any]": "a table",
}


def _typed(section: str, key: str, value: Any, spec: str, source: _Source) -> Any:
    ok = {
        "str": lambda: isinstance(value, str),
        "int": lambda: type(value) is int and abs(value) <= _LARGEST,
        "float": lambda: type(value) in (int, float) and abs(value) <= _LARGEST,
        "bool": lambda: isinstance(value, bool),
        "list[str]": lambda: isinstance(value, list) and all(isinstance(v, str) for v in value),
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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _criteria(data: dict[str, Any], source: _Source) -> dict[str, Any]:
    from core.levels import Criteria

    try:
        Criteria.from_json(data)
    except (PilotageError, TypeError, ValueError) as err:
        bad = next((k for k in data if k in str(err)), "")
        raise source.error("criteria", bad, f"[criteria] can't be used: {err}") from err
    return data


def _check(config: SessionConfig, source: _Source) -> None:
    """Values that have the right type and are still wrong."""
    for section, part in (("reference", config.reference), ("target", config.target)):
        if not part.command.strip():
            raise source.error(
                section, "command", f"[{section}] needs a command: how the project is started."
            )
        if "\0" in part.command:
            raise source.error(
                section, "command", f"command in [{section}] has a NUL character, which none can."
            )
        for name, value in part.env.items():
            if "\0" in value:
                raise source.error(
                    section, "env", f"{name} in env of [{section}] has a NUL character."
                )
            if not _ENV_NAME.fullmatch(name):
                raise source.error(
                    section, "env", f"{name!r} in env of [{section}] is no variable name."
                )
    if not _TARGET_KIND.fullmatch(config.target.kind):
        raise source.error(
            "target",
            "kind",
            f"there is no target kind {config.target.kind!r}: use xla-cpu or tpu-<type>-<chips>, "
            "such as tpu-v5e-4.",
        )
    if config.target.chips < 1:
        raise source.error("target", "chips", "chips in [target] has to be 1 or more.")
    if config.metric.pattern:
        try:
            groups = re.compile(config.metric.pattern).groups
        except re.error as err:
            raise source.error(
                "metric", "pattern", f"pattern in [metric] is no regular expression: {err}."
            ) from err
        if not groups:
            raise source.error(
                "metric", "pattern", "pattern in [metric] needs a group ( ) around the number."
            )
    if config.metric.points <= 0:
        raise source.error("metric", "points", "points in [metric] has to be above 0.")
    _check_prices(config.prices, source)
    if config.agent.driver not in DRIVERS:
        raise source.error(
            "agent",
            "driver",
            f"there is no driver {config.agent.driver!r}. Drivers: {', '.join(DRIVERS)}.",
        )
    if config.agent.driver == "scripted" and not config.agent.script:
        raise source.error("agent", "script", "the scripted driver needs a script in [agent].")
    for section, key, number in (
        ("agent", "speed", config.agent.speed),
        ("operator", "rate_usd_per_hour", config.operator.rate_usd_per_hour),
        ("recorder", "grace_s", config.recorder.grace_s),
        ("recorder", "run_limit_s", config.recorder.run_limit_s),
        ("recorder", "shell_limit_s", config.recorder.shell_limit_s),
    ):
        if number < 0:
            raise source.error(section, key, f"{key} in [{section}] can't be below 0.")


def _check_prices(prices: Prices, source: _Source) -> None:
    from core.money import price_table

    shipped = price_table()
    for key, row in prices.override.items():
        table = row if isinstance(row, dict) else {"usd_per_hour": row}
        rate = table.get("usd_per_hour")
        good = isinstance(rate, int | float) and not isinstance(rate, bool) and rate >= 0
        scope = table.get("scope", shipped[key].scope if key in shipped else "")
        if not good or scope not in ("chip", "instance", "instance/8"):
            raise source.error(
                "prices.override",
                key,
                f"the price of {key!r} needs usd_per_hour of 0 or more, and a scope, chip or "
                "instance, where the price table has no such key.",
            )
    for side, key in (("reference", prices.reference), ("target", prices.target)):
        if key and key not in shipped and key not in prices.override:
            known = ", ".join(sorted(shipped))
            raise source.error("prices", side, f"there is no price {key!r}. Prices: {known}.")


def _absolute(config: SessionConfig, base: Path, source: _Source) -> SessionConfig:
    project = (base / Path(config.project.path).expanduser()).resolve()
    if not project.is_dir():
        raise source.error("project", "path", f"the project directory {project} is not there.")
    for name in config.project.link:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise source.error(
                "project", "link", f"link {name!r} has to be a path inside the project."
            )
        if not (project / name).exists():
            raise source.error("project", "link", f"link {name!r}: there is no {project / name}.")
    python = config.project.python
    if "/" in python:  # a bare name such as python3.10 is looked up when a run starts
        file = base / Path(python).expanduser()
        if not file.is_file():
            raise source.error("project", "python", f"there is no Python at {file}.")
        python = str(file.absolute())  # not resolved: a virtual environment's python is a link
    script = config.agent.script
    if script:
        script = str((base / Path(script).expanduser()).absolute())
        if not Path(script).is_file():
            raise source.error("agent", "script", f"the script {script} is not there.")
    return replace(
        config,
        project=replace(
            config.project,
            path=str(project),
            python=python,
            title=config.project.title or project.name,
        ),
        agent=replace(config.agent, script=script),
    )
