"""Commands about this machine, and those that Pilotage calls itself."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tui.commands.base import DOES_NOT_HOLD, HOLDS, json_option, python_option, show


@click.command(short_help="Say what is there and what is missing.")
@python_option
@json_option
def doctor(python: str | None, as_json: bool) -> None:
    """Say what is there and what is missing for a migration, and what to do about it."""
    from core.doctor import as_json as lines_as_json
    from core.doctor import describe, examine, holds
    from sessions.home import home

    lines = examine(python or sys.executable, home())
    show(lines_as_json(lines), describe(lines), as_json)
    raise click.exceptions.Exit(HOLDS if holds(lines) else DOES_NOT_HOLD)


@click.command(hidden=True)
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
def recorder(directory: str) -> None:
    """Record the session in DIRECTORY (started by `run`, `demo` and `run --resume`)."""
    from sessions.opening import record

    record(Path(directory))


@click.command(hidden=True)
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--session", help="A finished session to draw (default: the recorded demo).")
def screenshots(directory: str, session: str | None) -> None:
    """Draw the pictures of the README from a session of the real app (`make screenshots`)."""
    from tui.pictures import draw

    for path in draw(Path(directory), session):
        click.echo(path)
