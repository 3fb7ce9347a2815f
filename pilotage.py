"""The launcher of Pilotage and its command line; the commands are in ``tui/commands``.

Exit codes: 0 = what was asked for holds, 1 = it does not hold, 2 = bad input. Every command
that prints a result has ``--json``, which prints one object instead: the result, or
``{"error": "the sentence"}``, which also goes to standard error.
"""

from __future__ import annotations

import os
import sys

# `core`, `sessions` and `tui` are common names, and `click` is too: a research project next to
# which we are started may have its own, and PYTHONPATH=. would put them first. So our own come
# first, and what PYTHONPATH names comes last (it may be where our dependencies are).
ROOT = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120


def _real(entry: str) -> str:
    try:
        return os.path.realpath(entry)
    except OSError:  # the working directory was deleted
        return entry


_THEIRS = {_real(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)} - {ROOT}
sys.path[:] = [
    ROOT,
    *(p for p in sys.path if _real(p) not in _THEIRS and p != ROOT),
    *(p for p in sys.path if _real(p) in _THEIRS),
]

import click  # noqa: E402

from core.version import __version__  # noqa: E402
from tui.commands import (  # noqa: E402
    bench,
    diagnose,
    init,
    machine,
    records,
    reference,
    supervise,
    verify,
)
from tui.commands.base import CONTEXT, Commands, no_cockpit, no_terminal  # noqa: E402


@click.group(cls=Commands, context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="pilotage")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Supervise a coding agent that migrates a PyTorch project from GPU to TPU.

    Shows the agent's diffs, the runs and the measured levels side by side, lets you approve,
    redirect and record interventions, and keeps everything in one append-only log.

    \b
    Start here:
      pilotage doctor              what this machine has, what is missing
      pilotage demo                a whole migration on this machine, in a few minutes
      pilotage init PROJECT        read a project of your own, and write its pilotage.toml
      pilotage run PROJECT         supervise its migration
      pilotage                     the list of sessions

    A SESSION is an id, the beginning of one, or the path of a session.db file.
    Sessions are kept in $PILOTAGE_HOME (default: the data directory of your platform).
    """
    if ctx.invoked_subcommand is None:
        if no_cockpit() or no_terminal():
            click.echo(ctx.get_help())
            return
        from tui.app import run_home

        run_home()


for command in (
    supervise.demo,
    init.init,
    supervise.run,
    supervise.attach,
    supervise.replay,
    records.sessions,
    records.export,
    records.check,
    records.rebuild,
    verify.verify,
    reference.reference,
    bench.bench,
    diagnose.diagnose,
    machine.doctor,
    machine.recorder,
    machine.screenshots,
):
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="pilotage")


if __name__ == "__main__":
    main()
