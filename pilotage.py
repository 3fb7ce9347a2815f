"""The command line of Pilotage: one short function per command, each importing what it needs.

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

from pathlib import Path  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

import click  # noqa: E402

from core.version import __version__  # noqa: E402

HOLDS, DOES_NOT_HOLD, BAD_INPUT = 0, 1, 2

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


WANTS_JSON = "pilotage.json"
"""Key of the context's ``meta``: whether the answer has to be one JSON object, errors too."""


class Commands(click.Group):
    """The group of all commands; an error we foresee is one sentence, any other goes to a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WANTS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from core.errors import PilotageError

        try:
            return super().invoke(ctx)
        except PilotageError as error:
            fail(str(error), getattr(error, "exit_code", BAD_INPUT))
        except click.ClickException as error:
            _error_object(error.format_message())
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader (a pager, head) has seen enough.
            sys.stderr.close()
            ctx.exit(HOLDS)
        except Exception as error:
            from core.crash import write_report

            fail(write_report(error), DOES_NOT_HOLD)


def fail(sentence: str, code: int = BAD_INPUT) -> NoReturn:
    """Print one sentence on standard error and end with ``code``."""
    click.echo(f"pilotage: {sentence}", err=True)
    _error_object(sentence)
    raise click.exceptions.Exit(code)


def _error_object(sentence: str) -> None:
    """The error as the one object that ``--json`` promises, where it was asked for."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(WANTS_JSON):
        import json

        click.echo(json.dumps({"error": sentence}, ensure_ascii=True))


def no_terminal() -> str:
    """Why the cockpit can't be shown here, as a clause; "" where it can.

    It reads standard input and draws on standard error.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        return "this is none"
    if os.environ.get("TERM") == "dumb":
        return "TERM=dumb says that this one can only print lines"
    encoding = sys.__stderr__.encoding if sys.__stderr__ else ""
    if encoding.lower().replace("-", "") != "utf8":
        return f"this one is used with the encoding {encoding}: set LANG=C.UTF-8"
    return ""


def _need_terminal(instead: str) -> None:
    if why := no_terminal():
        fail(f"The cockpit needs a terminal, and {why}. {instead}")


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a result: the documented object, or the same as text."""
    if as_json:
        import json

        click.echo(json.dumps(result, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        click.echo(text)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
session_argument = click.argument("session")
python_option = click.option(
    "--python",
    metavar="PATH",
    help="Python that runs are started with (default: the one of the configuration, else this).",
)
speed_option = click.option(
    "--speed",
    type=click.FloatRange(0.01, 1000),
    help="Pace of a scripted agent: 2 halves its pauses. Runs take the time they take.",
)


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
      pilotage run pilotage.toml   supervise a migration of your own
      pilotage                     the list of sessions

    A SESSION is an id, the beginning of one, or the path of a session.db file.
    Sessions are kept in $PILOTAGE_HOME (default: the data directory of your platform).
    """
    if ctx.invoked_subcommand is None:
        if no_terminal():
            click.echo(ctx.get_help())
            return
        from tui.app import run_home

        run_home()


@cli.command(short_help="Play a real migration of a small project.")
@click.option("--headless", is_flag=True, help="Play it without a terminal, operator included.")
@click.option("--script", type=click.Path(dir_okay=False), help="Another agent script (TOML).")
@click.option(
    "--keep/--no-keep",
    default=True,
    help="Keep the session afterwards, as is the default (headless).",
)
@python_option
@speed_option
@json_option
def demo(
    headless: bool,
    script: str | None,
    keep: bool,
    python: str | None,
    speed: float | None,
    as_json: bool,
) -> None:
    """Supervise a real migration of a small project, from the first failure to a measured L3.

    A scripted agent migrates a digit classifier that was written for a GPU to torch_xla. Its
    edits, runs and the measured levels are real; only the agent's words are scripted. Needs
    torch, torch_xla and scikit-learn in the Python of the runs; takes three to five minutes on two idle cores.

    \b
    Examples:
      pilotage demo                      in the cockpit
      pilotage demo --headless --json    without a terminal; exit 0 if the log supports the result
      pilotage demo --script mine.toml   with other steps: the verdicts follow what they do
    """
    from core.config import load
    from sessions.opening import demo_config

    config = load(demo_config(), python=python, speed=speed, script=script)
    _need_for_demo(config.project.python or sys.executable)
    _supervise(config, headless=headless, attach=True, as_json=as_json, keep=keep)


def _need_for_demo(python: str) -> None:
    """Refuse to play a demo none of whose runs could run."""
    from core.doctor import lacking

    lacks = lacking(python, ("torch", "torch_xla", "scikit-learn"))
    if lacks:
        fail(
            f"The demo's runs need torch, torch_xla and scikit-learn, but {lacks}. "
            "Run `make demo` in a checkout, install 'pilotage[xla]', or name a Python that has "
            "them with --python; `pilotage doctor` says more."
        )


@cli.command(short_help="Start a migration and open the cockpit on it.")
@click.argument("config", type=click.Path(), required=False, default="pilotage.toml")
@click.option("--headless", is_flag=True, help="No cockpit: the script's operator answers.")
@click.option("--no-attach", is_flag=True, help="Start the recorder, print the session, leave.")
@click.option("--resume", metavar="SESSION", help="Start the recorder of a session again.")
@python_option
@speed_option
@json_option
def run(
    config: str,
    headless: bool,
    no_attach: bool,
    resume: str | None,
    python: str | None,
    speed: float | None,
    as_json: bool,
) -> None:
    """Start a migration's recorder and open the cockpit on it.

    CONFIG is a pilotage.toml, or a directory that has one. The recorder is a process of its
    own: it goes on when you leave the cockpit or the line drops, and `pilotage attach` comes
    back to it.

    \b
    Examples:
      pilotage run ~/melora/pilotage.toml
      pilotage run . --no-attach
      pilotage run --resume melora-1130-a7f3    after a crash or a reboot
    """
    if resume is not None:
        from sessions.home import find
        from sessions.opening import start

        if headless or python is not None or speed is not None:
            fail(
                "A session goes on with the configuration it was opened with: "
                "--resume takes no --headless, --python or --speed."
            )
        path = find(resume)
        start(path)
        _attach(path, no_attach, as_json)
        return
    from core.config import load

    _supervise(
        load(Path(config), python=python, speed=speed),
        headless=headless,
        attach=not no_attach,
        as_json=as_json,
    )


def _supervise(
    config: Any, *, headless: bool, attach: bool, as_json: bool, keep: bool = True
) -> None:
    from core.agents.drivers import check_driver
    from sessions.opening import create, play_headless, start

    check_driver(config)
    path = create(config, __version__)
    if headless:
        from sessions.report import describe, result_of

        play_headless(path, say=lambda line: click.echo(line, err=True))
        result = result_of(path, finished=True)
        show(result, describe(result), as_json)
        if not keep:
            import shutil

            shutil.rmtree(path.parent)
        raise click.exceptions.Exit(HOLDS if result["holds"] else DOES_NOT_HOLD)
    start(path)
    _attach(path, not attach, as_json)


def _attach(path: Path, only_say: bool, as_json: bool) -> None:
    name = path.parent.name
    if only_say or as_json or no_terminal():
        from core.invocation import command

        text = f"Session {name} is being recorded. `{command()} attach {name}` opens the cockpit."
        show({"session": name, "path": str(path)}, text, as_json)
        return
    from tui.app import run_console

    run_console(path)


@cli.command(short_help="Open the cockpit on a session.")
@session_argument
def attach(session: str) -> None:
    """Open the cockpit on a session that is being recorded (or was).

    Several cockpits may watch one session. Leaving one (q) stops nothing.
    """
    from sessions.home import find

    path = find(session)
    _need_terminal(f"`pilotage replay {session} --json` prints where the session stands.")
    from tui.app import run_console

    run_console(path)


@cli.command(short_help="Play a recorded session in the cockpit.")
@session_argument
@click.option("--speed", type=click.FloatRange(0.5, 64), default=4.0, show_default=True)
@click.option("--at", "position", type=click.IntRange(0), help="Start at this event number.")
@json_option
def replay(session: str, speed: float, position: int | None, as_json: bool) -> None:
    """Play a session in the cockpit as it was recorded: pause, step, jump, any speed.

    With --json: no cockpit; prints the state at the position (default: the end).
    """
    from sessions.home import find

    path = find(session)
    if as_json:
        from sessions.report import describe, result_of

        result = result_of(path, upto=position)
        show(result, describe(result), as_json)
        raise click.exceptions.Exit(HOLDS if result["holds"] else DOES_NOT_HOLD)
    _need_terminal("--json prints the state instead.")
    from tui.app import run_console

    run_console(path, replay=True, speed=speed, position=position)


@cli.command(short_help="List the sessions.")
@json_option
def sessions(as_json: bool) -> None:
    """List the sessions: state, measured and claimed level, attempts, last activity."""
    from sessions.catalog import as_rows, describe, listing

    entries = listing()
    show({"sessions": as_rows(entries)}, describe(entries), as_json)


@cli.command(short_help="Write a table of a session: CSV, JSON Lines, Markdown.")
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


@cli.command(short_help="Verify a session's log and its verdicts.")
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


@cli.command(short_help="Make the derived tables anew from the log.")
@session_argument
@json_option
def rebuild(session: str, as_json: bool) -> None:
    """Make the derived tables of a session anew from its log (for sqlite-utils, datasette)."""
    from sessions.derived import rebuild as rebuild_tables
    from sessions.home import find

    counts = rebuild_tables(find(session))
    text = "\n".join(f"{name:<22} {count:>8} rows" for name, count in counts.items())
    show({"tables": counts}, text, as_json)


@cli.command(short_help="Say what is there and what is missing.")
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


@cli.command(hidden=True)
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
def recorder(directory: str) -> None:
    """Record the session in DIRECTORY (started by `run`, `demo` and `run --resume`)."""
    from sessions.opening import record

    record(Path(directory))


@cli.command(hidden=True)
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--session", help="A finished session to draw (default: the recorded demo).")
def screenshots(directory: str, session: str | None) -> None:
    """Draw the pictures of the README from a session of the real app (`make screenshots`)."""
    from tui.pictures import draw

    for path in draw(Path(directory), session):
        click.echo(path)


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="pilotage")


if __name__ == "__main__":
    main()
