"""Checking the drafted configuration by the rules of every other one, and writing it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from core.config.reading import FILE_NAME, build
from core.config.source import Source
from core.init.facts import Project
from core.init.read import InitError
from core.init.render import Draft
from core.init.script import Scripts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def place_of(project: Path, output: str | None) -> Path:
    """The file that is written: ``pilotage.toml`` in the project, or ``output`` (a directory
    means the file in it)."""
    if output is None:
        return project.expanduser().absolute() / FILE_NAME
    path = Path(output).expanduser().absolute()
    return path / FILE_NAME if path.is_dir() else path


def draft(project: Project, scripts: Scripts, at: Path) -> Draft:
    """The configuration for a project; raises :class:`core.config.ConfigError` were it not good."""
    made = Draft(project, scripts, at)
    build(tomllib.loads(made.text), Source(str(at), made.text))
    return made


def write(text: str, at: Path, force: bool) -> None:
    """Write the file as a whole or not at all; an existing one only with ``force``.

    Raises :class:`InitError`.
    """
    if at.is_dir():
        raise InitError(f"{at} is a directory: give a file with --output.")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{at.name}.", dir=at.parent)
    except OSError as err:
        raise InitError(
            f"{at} can't be written: {err.strerror or err}. Give another place with --output."
        ) from err
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # noqa: PTH101
        if force:
            os.replace(name, at)  # noqa: PTH105
        else:
            os.link(name, at)  # fails where the file is there, even if it came just now
    except FileExistsError:
        raise InitError(
            f"{at} is there already: --force overwrites it, --output writes another file."
        ) from None
    except OSError as err:
        raise InitError(f"{at} can't be written: {err.strerror or err}.") from err
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
