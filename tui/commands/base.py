"""What every command has: the group with its errors, exit codes, output as text or one object."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

HOLDS, DOES_NOT_HOLD, BAD_INPUT = 0, 1, 2

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


WANTS_JSON = "pilotage.json"
"""Key of the context's ``meta``: whether the answer has to be one JSON object, errors too."""


class Commands(click.Group):
    """The group of all commands; an error we foresee is one sentence, any other goes to a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WANTS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:
            if not _of_printing(error):
                raise
            # Python writes what is left in its buffer when it ends, and would print a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo(f"pilotage: The output can't be written: {error.strerror}.", err=True)
            sys.exit(DOES_NOT_HOLD)

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
            if _of_printing(error):
                raise  # to ``main``
            from core.crash import write_report

            fail(write_report(error), DOES_NOT_HOLD)


def _of_printing(error: BaseException) -> bool:
    """Whether standard output took no more, which says nothing about the command's work."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return (
        isinstance(error, OSError)
        and frame is not None
        and frame.tb_frame.f_globals.get("__name__") == "click.utils"
    )


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


def no_cockpit() -> str:
    """Why this installation can't show the cockpit, as a sentence; "" where it can.

    A machine that only records references is installed without textual.
    """
    from importlib.util import find_spec

    try:
        there = find_spec("textual") is not None
    except ValueError:  # something else stands under its name
        there = False
    return "" if there else "The cockpit needs textual, which is not installed here."


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


def need_terminal(instead: str) -> None:
    if lacks := no_cockpit():
        fail(f"{lacks} {instead}")
    if why := no_terminal():
        fail(f"The cockpit needs a terminal, and {why}. {instead}")


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a result: the documented object, or the same as text."""
    if as_json:
        import json

        click.echo(utf8(json.dumps(result, indent=2, sort_keys=True, ensure_ascii=False)))
    else:
        click.echo(text)


def given(path: str) -> Path:
    """A path of the command line, ``~`` expanded.

    ``Path.expanduser`` raises where ``~name`` is nobody, and ``Path``'s questions where a name is
    too long; these and those of ``os.path`` just find nothing there.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def utf8(text: str) -> str:
    """A JSON text that UTF-8 can hold: the bytes of a file name that are none are escaped."""
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


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
