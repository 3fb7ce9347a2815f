"""Commands on the sessions that are at rest: list, export, verify, rebuild."""

from __future__ import annotations

from pathlib import Path

import click

from tui.commands.base import DOES_NOT_HOLD, HOLDS, fail, json_option, session_argument, show


@click.command(short_help="List the sessions.")
@json_option
def sessions(as_json: bool) -> None:
    """List the sessions: state, measured and claimed level, attempts, last activity."""
    from sessions.catalog import as_rows, describe, listing

    entries = listing()
    show({"sessions": as_rows(entries)}, describe(entries), as_json)


@click.command(short_help="Write a table of a session: CSV, JSON Lines, Markdown.")
@session_argument
@click.argument("what", default="interventions")
@click.option(
    "--format", "fmt", type=click.Choice(["csv", "jsonl", "markdown"]), default="csv",
    show_default=True,
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File (default: print it).")
@json_option
def export(session: str, what: str, fmt: str, output: str | None, as_json: bool) -> None:
    """Export a table of a session as CSV, JSON Lines or Markdown.

    WHAT: interventions (the default), attempts, checks, findings, runs, levels, claims, usage
    or asks.

    Every row says which session, event and chain hash it comes from; exporting the same log
    twice gives the same bytes.

    \b
    Examples:
      pilotage export melora interventions > interventions.csv
      pilotage export melora attempts --format jsonl -o attempts.jsonl
    """
    from sessions.export import as_object, export_file
    from sessions.home import find

    if as_json:
        if output:
            fail("--json prints an object; with -o, choose a --format instead.")
        show(as_object(find(session), what), "", as_json)
        return
    export_file(find(session), what, fmt, Path(output) if output else None)


@click.command(short_help="Verify a session's log and its verdicts.")
@session_argument
@json_option
def check(session: str, as_json: bool) -> None:
    """Verify a session: hash chain, triggers, tables, and that the log supports its verdicts.

    Exit code 0 only if everything holds. The file is not changed.
    """
    from sessions.audit import audit, describe
    from sessions.home import find

    result = audit(find(session))
    show(result, describe(result), as_json)
    raise click.exceptions.Exit(HOLDS if result["holds"] else DOES_NOT_HOLD)


@click.command(short_help="Make the derived tables anew from the log.")
@session_argument
@json_option
def rebuild(session: str, as_json: bool) -> None:
    """Make the derived tables of a session anew from its log (for sqlite-utils, datasette)."""
    from sessions.derived import rebuild as rebuild_tables
    from sessions.home import find

    counts = rebuild_tables(find(session))
    text = "\n".join(f"{name:<22} {count:>8} rows" for name, count in counts.items())
    show({"tables": counts}, text, as_json)
