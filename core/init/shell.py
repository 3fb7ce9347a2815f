"""Commands in launch scripts, Makefiles and README blocks, read word by word and never executed.

Variables that are set in the same file are put in; what can't be known (``$1``, ``$(...)``) is
kept as it stands and named in ``Entry.open``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from core.init.facts import Entry

MAX_LINES = 5_000
MAX_COMMAND = 8_000
"""Characters of one command, its continued lines included."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^}]*))?\}|(\w+))")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_WRAPPERS = {"nohup", "time", "exec", "sudo", "env", "stdbuf", "nice", "xvfb-run", "command", "@"}
_RUNNERS = {"poetry": "run", "uv": "run", "pipenv": "run", "pdm": "run", "rye": "run"}

#: Options of the launchers that take no value; any other option takes one.
_FLAGS = frozenset(
    "--standalone --use_env --use-env -m --module --no_python --no-python --run_path --run-path "
    "--multi_gpu --multi-gpu --cpu --use_deepspeed --use-deepspeed --use_fsdp --use-fsdp --tpu "
    "--mps --debug --same_network --same-network --no_ssh --force_multi --quiet -q --no_local_rank "
    "--tpu_use_cluster --use_megatron_lm --legacy".split()
)


@dataclass(frozen=True, slots=True)
class Line:
    """A command of a script, continued lines joined; ``number`` is that of its first line."""

    number: int
    text: str


@dataclass(slots=True)
class Variables:
    """What is set so far in a script."""

    known: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    cwd: str = ""

    def fill(self, text: str) -> str:
        """``text`` with what is known put in; a default of ``${X:-y}`` counts where X is not set."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            if name in self.known:
                return self.known[name]
            return match[2] if match[2] is not None else match[0]

        for _ in range(4):  # values may name other variables
            new = _VARIABLE.sub(value, text)
            if new == text or len(new) > MAX_COMMAND:
                break
            text = new
        return text[:MAX_COMMAND]


def join_lines(text: str) -> Iterator[Line]:
    """The lines of a script with backslashes at their ends followed."""
    start, parts = 0, ""
    for number, line in enumerate(text.split("\n")[:MAX_LINES], 1):
        start = start or number
        stripped = line.rstrip()
        if stripped.endswith("\\") and len(parts) < MAX_COMMAND:
            parts += stripped[:-1] + " "
            continue
        yield Line(start, (parts + stripped).strip()[:MAX_COMMAND])
        start, parts = 0, ""
    if parts:
        yield Line(start, parts.strip()[:MAX_COMMAND])


def commands(text: str, path: str, kind: str = "launcher") -> Iterator[Entry]:
    """The commands of a shell script that start Python, in their order."""
    variables = Variables()
    for line in join_lines(text):
        for part in _parts(line.text):
            entry = _command(part, variables, f"{path}:{line.number}", kind)
            if entry is not None:
                yield entry


def _parts(text: str) -> list[str]:
    """The commands of one line: ``a; b && c`` are three, a pipe's first alone counts."""
    if re.match(r"for\s+\w+\s+in\s", text):
        head, _, rest = text.partition(";")
        return [head, *_parts(rest.strip())]
    if "$(" in text or "`" in text:
        return [text]
    quoted = 0
    parts, now = [], ""
    for index, sign in enumerate(text):
        if sign in "'\"" and (not quoted or text[quoted - 1] == sign):
            quoted = 0 if quoted else index + 1
        if not quoted and (sign == ";" or text.startswith(("&&", "||"), index)):
            parts.append(now)
            now = ""
        else:
            now += sign
    bare = [p.strip().lstrip("&|").strip() for p in [*parts, now] if p.strip(" &|")]
    return [re.sub(r"^(?:(?:if|elif|then|do|else|while|until|!|\{)\s+)+", "", p) for p in bare]


def _command(text: str, variables: Variables, source: str, kind: str) -> Entry | None:
    if match := re.match(r"for\s+(\w+)\s+in\s+(.*)", text):
        words = _split(variables.fill(match[2]))
        if words:
            variables.known[match[1]] = words[0]
        return None
    export = re.match(r"(?:export|declare\s+-\w+|local|readonly)\s+(.*)", text)
    body = export[1] if export else text
    if match := _ASSIGN.fullmatch(body.strip()):
        words = _split(variables.fill(match[2]))
        if len(words) <= 1:
            variables.known[match[1]] = words[0] if words else ""
            if export:
                variables.exported[match[1]] = variables.known[match[1]]
            return None
    words = _split(variables.fill(text))
    if words[:1] == ["cd"] and len(words) == 2:
        # `cd $(dirname $0)/..` and the like go to where scripts are started from anyway.
        plain = re.fullmatch(r"(?:\./)?[\w.-]+(?:/[\w.-]+)*/?", words[1])
        variables.cwd = "" if plain is None or ".." in words[1] else words[1].strip("./")
        return None
    entry = parse(words, source, kind)
    if entry is None:
        return None
    env = {**variables.exported, **dict(entry.env)}
    return replace(entry, env=tuple(env.items()), cwd=variables.cwd)


def _split(text: str) -> list[str]:
    """The words up to the first pipe, redirection or end of the command."""
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in lexer:
            if word and set(word) <= set("|&;<>"):
                if words and words[-1] in ("1", "2") and ">" in word:
                    words.pop()
                break
            words.append(word)
    except ValueError:
        return []
    return words


def parse(words: list[str], source: str, kind: str) -> Entry | None:
    """The entry that a list of words means, where they start a Python program.

    ``python``, ``torchrun``, ``accelerate launch``, ``deepspeed`` and ``python -m
    torch.distributed.launch`` are known, behind ``srun``, ``nohup`` and their like, and behind
    ``NAME=value``.
    """
    env: dict[str, str] = {}
    words = [w for w in words if not re.fullmatch(r"\$(?:[@*]|\{[@*](?::\d+)?\})", w)]
    while words:
        first = words[0].lstrip("@-") if kind == "makefile" else words[0]
        match = _ASSIGN.fullmatch(first)
        if match and not first.startswith("-"):
            env[match[1]] = match[2]
        elif first in _WRAPPERS:
            pass
        elif first == "srun":
            words = [first, *_options(words[1:])[1]]
        elif first in _RUNNERS and words[1:2] == [_RUNNERS[first]]:
            words = words[1:]
        elif first == "conda" and words[1:2] == ["run"]:
            words = [first, *_options(words[2:])[1]]
        else:
            break
        words = words[1:]
    if not words:
        return None
    program = words[0].lstrip("@-").rsplit("/", 1)[-1]
    launcher: list[str] = []
    rest = words[1:]
    if _PYTHON.fullmatch(words[0].lstrip("@-")) or words[0] in ("$(PYTHON)", "$PYTHON"):
        while rest and rest[0] in ("-u", "-O", "-B", "-s", "-E", "-I"):
            rest = rest[1:]
        if rest[:1] == ["-m"] and rest[1:2] in (
            ["torch.distributed.launch"],
            ["torch.distributed.run"],
        ):
            options, rest = _options(rest[2:])
            launcher = ["python", "-m", words[words.index("-m") + 1], *options]
        elif rest[:1] == ["-m"] and rest[1:3] == ["accelerate.commands.launch"]:
            options, rest = _options(rest[2:])
            launcher = ["accelerate", "launch", *options]
        elif not rest or rest[0] == "-c":
            return None
    elif program == "torchrun":
        options, rest = _options(rest)
        launcher = ["torchrun", *options]
    elif program == "accelerate" and rest[:1] == ["launch"]:
        options, rest = _options(rest[1:])
        launcher = ["accelerate", "launch", *options]
    elif program == "deepspeed":
        options, rest = _options(rest)
        launcher = ["deepspeed", *options]
    else:
        return None
    module = bool(launcher) and bool({"-m", "--module"} & set(launcher[2:] or launcher[1:]))
    if module and rest[:1] != ["-m"]:
        rest = ["-m", *rest]
        launcher = [w for i, w in enumerate(launcher) if w not in ("-m", "--module") or i < 2]
    if not rest or not _is_program(rest):
        return None
    missing = tuple(w for w in rest if "$" in w or "`" in w or re.fullmatch(r"<.*>|\[.*\]", w))
    return Entry(
        ("python", *rest), source, kind, tuple(env.items()), tuple(launcher),
        _processes(launcher), open=missing,
    )  # fmt: skip


def _is_program(rest: list[str]) -> bool:
    if rest[0] == "-m":
        tools = (
            "pip",
            "venv",
            "pytest",
            "unittest",
            "http.server",
            "build",
            "black",
            "ruff",
            "mypy",
        )
        return len(rest) > 1 and rest[1] not in tools
    return rest[0].endswith(".py")


def _options(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of a launcher, and what follows them."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        index += 1 if "=" in word or word in _FLAGS else 2
    return words[:index], words[index:]


def _processes(launcher: list[str]) -> int | None:
    if not launcher:
        return None
    names = (
        "--nproc_per_node",
        "--nproc-per-node",
        "--num_processes",
        "--num-processes",
        "--num_gpus",
    )
    for index, word in enumerate(launcher):
        name, _, value = word.partition("=")
        if name in names:
            value = value or (launcher[index + 1] if index + 1 < len(launcher) else "")
            return int(value) if value.isdecimal() and len(value) < 6 else None
    return None
