"""The command that reads a project and writes a configuration to start from."""

from __future__ import annotations

from pathlib import Path

import click

from tui.commands.base import json_option, show


@click.command(short_help="Read a project and write its pilotage.toml.")
@click.argument("project", type=click.Path(), default=".")
@click.option(
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write here (default: pilotage.toml in the project's directory).",
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@click.option("--dry-run", is_flag=True, help="Print the configuration, and write nothing.")
@click.option(
    "--scan-only",
    is_flag=True,
    help="Print the risk scan and its places, no more (with --json: all of them).",
)
@click.option(
    "--python",
    metavar="PATH",
    help="Python that the project runs in (default: looked for, first in the project).",
)
@json_option
def init(
    project: str,
    output: str | None,
    force: bool,
    dry_run: bool,
    scan_only: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """Read a project and write a commented pilotage.toml that a session can start with.

    Looks for the command that trains, the line that prints the metric, the project's Python, its
    seeds and data, and says of each value where it was found. The risk scan lists the places a
    migration to TPU will touch, by category. No code of the project is imported or executed; a
    Python that is found in it is asked for its versions.

    \b
    Examples:
      pilotage init ~/melora
      pilotage init . --dry-run          print it first
      pilotage init . --scan-only        what will need work, and why
      pilotage init . --output m.toml --python ~/envs/melora/bin/python
    """
    from core.init import as_json as init_as_json
    from core.init import describe, draft, place_of, read_project, write
    from core.init.read import InitError
    from core.invocation import command
    from core.risk import list_files, scan
    from core.risk.describe import describe as describe_scan

    root = Path(project)
    if scan_only:
        if not root.expanduser().is_dir():
            raise InitError(f"{root} is no directory: give the directory of a project.")
        found = scan(list_files(root.expanduser().resolve()))
        show(found.to_json(), describe_scan(found), as_json)
        return
    at = place_of(root, output)
    if at.exists() and not (force or dry_run):
        raise InitError(
            f"{at} is there already: --force overwrites it, --output writes another file."
        )
    facts, listing, scripts = read_project(root, python or "")
    made = draft(facts, scripts, at)
    risks = scan(listing)
    if dry_run and not as_json:
        click.echo(made.text, nl=False)
        return
    if not dry_run:
        write(made.text, at, force)
    written = not dry_run
    show(
        init_as_json(made, risks, at, written),
        describe(made, risks, at, written, command()),
        as_json,
    )
