"""Facts of configuration files, shell scripts and requirements."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from core.guard.kinds import environment_kind, setting_kind
from core.guard.tag import Arg, Fact, Facts
from core.guard.values import number

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_REQUIREMENTS = re.compile(
    r"(^|/)(requirements[^/]*\.(txt|in)|constraints[^/]*\.txt|environment[^/]*\.ya?ml|setup\.cfg|pipfile)$"
)
_SHELL = re.compile(r"\.(sh|bash|zsh|slurm|sbatch)$|(^|/)(dockerfile[^/]*|makefile|justfile)$")
_PIN = re.compile(
    r"^[ \t]*-?[ \t]*[\"']?([A-Za-z0-9][\w.-]{0,80})(\[[^\]]{0,80}\])?\s{0,4}((?:[=<>!~]{1,3}|@|==?)\s{0,4}[^#;\"']{1,120})?[\"']?,?\s*(?:[#;].*)?$"
)
_YAML = re.compile(r"^(\s*)(?:-\s+)?([\"']?[\w.\-]{1,80}[\"']?)\s*:\s*(.*)$")
_INI = re.compile(r"^\s*([\w.\-]{1,80})\s*[=:]\s*(.*)$")
_TPU = re.compile(
    r"torch([-_]?(xla|vision|audio|text|tpu))?|libtpu.*|jax(lib)?|cupy.*|nvidia.*|apex|triton|pytorch.*|cudatoolkit|bitsandbytes|flash[-_]attn|xformers",
    re.IGNORECASE,
)
_FLAG = re.compile(r"^--?([A-Za-z][\w.\-]{0,80})(?:=(.*))?$", re.DOTALL)
_PAIR = re.compile(r"^\+{0,2}([A-Za-z_][\w.]{0,80})=(.*)$", re.DOTALL)


def is_config(path: str) -> bool:
    """Whether a file is of a form that is read here."""
    lower = path.lower()
    suffixes = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".gin", ".env")
    return lower.endswith(suffixes) or bool(_REQUIREMENTS.search(lower) or _SHELL.search(lower))


def config_facts(path: str, text: str) -> Facts:
    """The settings that a file has; never raises: a file in mid-edit is read line by line."""
    lower = path.lower()
    lines = text.replace("\r\n", "\n").split("\n")
    facts = Facts(lines=lines)
    if _REQUIREMENTS.search(lower):
        facts.facts += _pins(lines)
    elif _SHELL.search(lower):
        facts.facts += _shell(lines)
    elif lower.endswith(".json"):
        facts.facts += _tree(lines, _loaded(json.loads, text), '"{}"')
    elif lower.endswith(".toml"):
        data = _loaded(tomllib.loads, text)
        facts.facts += _tree(lines, data, "{}")
        facts.facts += _project(lines, data)
    else:
        facts.facts += _keys(lines)
    return facts


def _loaded(load: Any, text: str) -> Any:
    try:
        return load(text)
    except (ValueError, RecursionError):
        return None


def _fact(
    name: str, value: str, line: int, presence: str = "quiet", owner: str = ""
) -> Iterator[Fact]:
    if kind := setting_kind(name):
        sure = kind not in ("dataset", "architecture") or bool(re.fullmatch(r"[-\d.e]+", value))
        yield Fact(
            "setting", kind, name, line, {"value": Arg(kind, value, sure)}, presence, owner or name
        )


def _value(text: str) -> str:
    """A scalar as it is compared: quotes and comments gone, ``1.0`` as ``1``, ``1e-3`` as ``0.001``."""
    text = re.sub(r"\s+#.*$", "", text).strip().rstrip(",").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    try:
        return (
            str(number(float(text)))
            if re.fullmatch(r"[-+]?[\d._]+(e[-+]?\d+)?", text, re.I)
            else text
        )
    except ValueError:
        return text


def _tree(lines: list[str], data: Any, form: str) -> Iterator[Fact]:
    """The leaves of a JSON or TOML tree, each with the first line that names its key."""
    if data is None:
        yield from _keys(lines)
        return
    places: dict[str, list[int]] = {}
    for at, line in enumerate(lines, 1):
        for word in set(re.findall(r"[\w.\-]+", line[:400])):
            places.setdefault(word, []).append(at)
    used: dict[str, int] = {}
    todo: list[tuple[str, Any]] = [("", data)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, dict):
            todo += [
                (f"{path}.{k}" if path else str(k), v) for k, v in reversed(list(value.items()))
            ]
        elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
            todo += [(f"{path}.{n}", v) for n, v in reversed(list(enumerate(value)))]
        else:
            key = path.rsplit(".", 1)[-1]
            lines_of = places.get(key, [1])
            place = lines_of[min(used.get(key, 0), len(lines_of) - 1)]
            used[key] = used.get(key, 0) + 1
            text = (
                str(number(value)) if isinstance(value, float) else json.dumps(value, default=str)
            )
            presence = (
                "guess" if not path.startswith(("project.", "tool.", "build-system")) else "quiet"
            )
            yield from _fact(key, _value(text), place, presence, path)


def _keys(lines: list[str]) -> Iterator[Fact]:
    """``key: value`` and ``key = value``, with the keys that are around it by their indentation."""
    around: list[tuple[int, str]] = []
    for at, line in enumerate(lines, 1):
        match = _YAML.match(line[:600])
        if match is None or line.lstrip().startswith("#"):
            if found := _INI.match(line[:600]):
                yield from _fact(found[1], _value(found[2]), at, "guess")
            continue
        indent, key, value = len(match[1]), match[2].strip("\"'"), _value(match[3])
        while around and around[-1][0] >= indent:
            around.pop()
        owner = ".".join([*(k for _, k in around), key])
        if value in ("", "|", ">", "{", "["):
            around.append((indent, key))
            continue
        if key.isupper() and (kind := environment_kind(key)):
            yield Fact("environment", kind, key, at, {"value": Arg(kind, value)}, "sure", key)
        yield from _fact(key, value, at, "guess", owner)


def _pins(lines: list[str]) -> Iterator[Fact]:
    for at, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        match = _PIN.match(line[:400])
        if match:
            yield _pin(match[1], "".join((match[3] or "").split()), at)


def _pin(name: str, version: str, at: int) -> Fact:
    name = name.lower().replace("_", "-")
    device = bool(_TPU.fullmatch(name))
    args = {"version": Arg("dependencies", version or "any", not device)}
    return Fact(f"pin:{name}", "dependencies", name, at, args, "guess", name)


def _project(lines: list[str], data: Any) -> Iterator[Fact]:
    """The dependencies of a ``pyproject.toml``."""
    project = data.get("project") if isinstance(data, dict) else None
    found = project.get("dependencies") if isinstance(project, dict) else None
    for item in found if isinstance(found, list) else []:
        match = _PIN.match(str(item)[:400])
        if match:
            line = next((n for n, text in enumerate(lines, 1) if str(item) in text), 1)
            yield _pin(match[1], "".join((match[3] or "").split()), line)


def _shell(lines: list[str]) -> Iterator[Fact]:
    """Variables and flags of commands; a command that goes over several lines is one."""
    at = 0
    while at < len(lines):
        start, parts = at, [lines[at]]
        while parts[-1].rstrip().endswith("\\") and at + 1 < len(lines):
            parts[-1] = parts[-1].rstrip()[:-1]
            at += 1
            parts.append(lines[at])
        at += 1
        if parts[0].lstrip().startswith("#"):
            continue
        words: list[tuple[str, int]] = []
        for offset, part in enumerate(parts):
            words += [(word, start + offset + 1) for word in _words(part[:8_000])]
        yield from _words_facts(words)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that goes on
        return text.split()


def _words_facts(words: list[tuple[str, int]]) -> Iterator[Fact]:
    for index, (word, line) in enumerate(words):
        following = words[index + 1][0] if index + 1 < len(words) else ""
        if match := _FLAG.match(word):
            value = match[2]
            if value is None:
                value = "" if following.startswith("--") or not following else following
            name = f"--{match[1]}"
            yield from _fact(name, _value(value) or "given", line, "sure")
        elif match := _PAIR.match(word):
            name, value = match[1], _value(match[2])
            kind = environment_kind(name) if name.isupper() else setting_kind(name)
            if kind:
                group = "environment" if name.isupper() else "setting"
                yield Fact(group, kind, name, line, {"value": Arg(kind, value)}, "sure", name)
        elif word in ("ENV", "export") and following.isupper() and index + 2 < len(words):
            if kind := environment_kind(following):
                yield Fact("environment", kind, following, line, {"value": Arg(kind, words[index + 2][0])}, "sure",
                           following)  # fmt: skip
