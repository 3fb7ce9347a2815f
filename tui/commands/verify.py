"""The command that verifies: code, or a session, against its reference, without a terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from core.version import __version__
from tui.commands.base import DOES_NOT_HOLD, HOLDS, fail, given, json_option, python_option, show


@click.command(short_help="Measure code against its reference, for CI.")
@click.argument("what", metavar="PROJECT|SESSION", required=False, default=".")
@click.option(
    "--reference",
    "bundle",
    type=click.Path(),
    metavar="FILE",
    help="Bundle of the untouched project, made by `reference record`.",
)
@click.option(
    "--baseline",
    type=click.Path(),
    metavar="DIR",
    help="The untouched project, where there is no bundle: it is run first.",
)
@click.option(
    "--level",
    type=int,
    metavar="N",
    help="Level that has to hold, 0 to 4 (default: 3, the same goal is reached).",
)
@click.option("--force", metavar="REASON", default="", help="Take a bundle of another project.")
@click.option("--keep", is_flag=True, help="Keep the session, to look at it in the cockpit.")
@python_option
@json_option
def verify(
    what: str,
    bundle: str | None,
    baseline: str | None,
    level: int | None,
    force: str,
    keep: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """Run migrated code, measure it against its reference, and say whether the level holds.

    PROJECT is a directory with the migrated code and its pilotage.toml (default: this one). It
    is copied, as it stands, and not touched. SESSION is one that is there: its present code is
    verified, and runs that are on record are not made again.

    Exit code 0: every level up to --level holds; 1: it does not; 2: bad input. What goes on is
    told on standard error.

    \b
    Examples:
      pilotage verify . --reference ~/melora.pilotage
      pilotage verify migrated/ --baseline original/ --json
      pilotage verify melora-1130-a7f3 --level 1
    """
    from core.verification import describe

    def say(line: str) -> None:
        click.echo(line, err=True)

    if _is_project(what):
        result = _project(what, bundle, baseline, level, force, keep, python, say)
    else:
        from sessions.home import find
        from sessions.verifying import verify_session

        if bundle or baseline or keep or python:
            fail(
                f"{what} is no directory with a pilotage.toml, so it is taken for a session, which "
                "has its reference and its Python: leave out --reference, --baseline, --keep and "
                "--python, or name the directory of the migrated code."
            )
        result = verify_session(find(what), level=level, say=say)
    show(result, describe(result), as_json)
    raise click.exceptions.Exit(HOLDS if result["holds"] else DOES_NOT_HOLD)


def _is_project(what: str) -> bool:
    from core.config.reading import FILE_NAME

    path = given(what)
    return (
        path.name.endswith(".toml")
        or (os.path.isdir(path) and not os.path.exists(path / "session.db"))  # noqa: PTH110, PTH112
        or os.path.isfile(path / FILE_NAME)  # noqa: PTH113
    )


def _project(
    what: str,
    bundle: str | None,
    baseline: str | None,
    level: int | None,
    force: str,
    keep: bool,
    python: str | None,
    say: Any,
) -> dict[str, Any]:
    from core.config import load
    from sessions.verifying import verify_project

    if bundle and baseline:
        fail("Give --reference or --baseline: either is the reference.")
    if bundle and not os.path.isfile(given(bundle)):  # noqa: PTH113
        fail(
            f"There is no file {bundle}. --reference names a bundle, which `pilotage reference "
            "record` makes."
        )
    config = load(what, python=python, agent=False, bundle=bundle)
    named = config.reference.bundle
    chosen = Path(named) if named and not baseline else None
    if chosen is None and not baseline:
        fail(
            "There is nothing to measure against: name the bundle of the untouched project with "
            "--reference FILE (`pilotage reference record` makes one), or the untouched project "
            "itself with --baseline DIR."
        )
    untouched = given(baseline).absolute() if baseline else None
    if untouched is not None and not os.path.isdir(untouched):  # noqa: PTH112
        fail(f"There is no directory {untouched}. --baseline names the untouched project.")
    return verify_project(
        config,
        __version__,
        level=level,
        say=say,
        bundle=chosen,
        baseline=untouched,
        force=force,
        keep=keep,
    )
