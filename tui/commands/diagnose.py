"""The command that reads saved logs."""

from __future__ import annotations

import json
import sys

import click

from tui.commands.base import BAD_INPUT, fail, json_option, show, utf8


@click.command(short_help="Say what a saved log shows of a failure.")
@click.argument("logfiles", metavar="LOGFILE...", nargs=-1)
@click.option("--list", "list_them", is_flag=True, help="List the detectors that read a log.")
@json_option
def diagnose(logfiles: tuple[str, ...], list_them: bool, as_json: bool) -> None:
    """Say what saved logs of runs show: an error, a failure that raised none, or no sign.

    LOGFILE may be any run's output, also packed (gz, bz2, xz), and - for standard input. Of a
    large file the first and last lines are read, and those between that hold a telling word.

    A log is silent if it shows a sign of failure and no error that ended the run. Categories:
    C1 environment, C2 CUDA and device assumptions, C3 library interactions, C4 lazy execution,
    C5 operators and numerics, C6 memory.

    With --json one object per log: file, category (null: no sign), silent, findings. For one
    log it is indented, for several each is a line of its own (JSON Lines).

    Exit code 0 if every log could be read, 2 if one could not.

    \b
    Examples:
      pilotage diagnose train.log
      pilotage diagnose runs/*.log --json > findings.jsonl
      kubectl logs trainer-0 | pilotage diagnose -
    """
    from core import diagnose as logs
    from core.errors import PilotageError

    if list_them:
        show({"detectors": logs.detectors()}, logs.describe_detectors(), as_json)
        return
    if not logfiles:
        fail("Name at least one log file, or - for standard input.")
    unread = False
    for i, name in enumerate(logfiles):
        try:
            if name == "-" and sys.stdin is None:
                raise PilotageError("Standard input is closed: there is no log to read.")
            result = logs.diagnose(name)
        except PilotageError as error:
            unread = True
            click.echo(f"pilotage: {error}", err=True)
            if not as_json:
                continue
            result = logs.unread(name, error)
        if as_json and len(logfiles) > 1:
            click.echo(utf8(json.dumps(result, sort_keys=True, ensure_ascii=False)))
        else:
            show(result, ("\n" if i and not as_json else "") + logs.describe(result), as_json)
    if unread:
        raise click.exceptions.Exit(BAD_INPUT)
