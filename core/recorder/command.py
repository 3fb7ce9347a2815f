"""The command of a run: which Python, which words, which environment."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.config import SessionConfig
from core.process import run_pythonpath
from core.workspace import Workspace

_SHELL = re.compile(r"[|&;<>()$`\\\n*?~#]|^\s*[A-Za-z_]\w*=")
"""What makes a command one for the shell; anything else is split into words and started as such."""


@dataclass(frozen=True, slots=True)
class Command:
    """``text`` as it was configured, ``words`` as it is executed (a text: by ``/bin/sh``)."""

    text: str
    words: list[str] | str
    python: str
    env: Mapping[str, str]

    @classmethod
    def reference(cls, config: SessionConfig, files: Workspace, seed: int | None = None) -> Command:
        """The reference's command on the untouched project.

        ``seed`` takes the place of ``{seed}`` in it, and in the values of its environment.
        """
        ref = config.reference
        text, env = ref.command, dict(ref.env)
        if seed is not None:
            text = text.replace("{seed}", str(seed))
            env = {name: value.replace("{seed}", str(seed)) for name, value in env.items()}
        return _command(config, files, text, env, files.reference_root)

    @classmethod
    def target(cls, config: SessionConfig, files: Workspace, command: str = "") -> Command:
        """The target's command, or another one with the target's environment."""
        text = command.strip() or config.target.command
        return _command(config, files, text, config.target.env, files.root)


def python_of(config: SessionConfig) -> str:
    """The interpreter of the runs; the one Pilotage runs in where none is named."""
    return config.project.python or sys.executable


def base_env(config: SessionConfig, files: Workspace, root: Path) -> dict[str, str]:
    """What every run in the checkout ``root`` gets: the operator's ``PYTHONPATH``, and a ``PATH``
    on which the tools of the project's Python (``torchrun`` ...) come first."""
    # Two versions of a module that have one size and are a second apart look the same to the
    # bytecode cache: a run must never execute the code of the tree before.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    if path := run_pythonpath(files.project, root / files.prefix):
        env["PYTHONPATH"] = path
    place = Path(python_of(config)).parent
    if place.is_absolute():
        env["PATH"] = os.pathsep.join([str(place), os.environ.get("PATH", os.defpath)])
    return env


def _command(
    config: SessionConfig, files: Workspace, text: str, env: Mapping[str, str], root: Path
) -> Command:
    python = python_of(config)
    full = {**base_env(config, files, root), **env}
    text = text.strip()
    first, _, rest = text.partition(" ")
    if _SHELL.search(text):
        line = f"{shlex.quote(python)} {rest}" if first == "python" else text
        return Command(text, line, python, full)
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote: the shell says what is wrong with it
        return Command(text, text, python, full)
    if words[0] == "python":
        words[0] = python
    return Command(text, words, python, full)
