"""Commands that supervise a migration or look at one in the cockpit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from core.version import __version__
from tui.commands.base import (
    DOES_NOT_HOLD,
    HOLDS,
    fail,
    json_option,
    need_terminal,
    no_cockpit,
    no_terminal,
    python_option,
    session_argument,
    show,
    speed_option,
)


@click.command(short_help="Play a real migration of a small project.")
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


@click.command(short_help="Start a migration and open the cockpit on it.")
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
    if only_say or as_json or no_cockpit() or no_terminal():
        from core.invocation import command

        text = f"Session {name} is being recorded. `{command()} attach {name}` opens the cockpit."
        show({"session": name, "path": str(path)}, text, as_json)
        return
    from tui.app import run_console

    run_console(path)


@click.command(short_help="Open the cockpit on a session.")
@session_argument
def attach(session: str) -> None:
    """Open the cockpit on a session that is being recorded (or was).

    Several cockpits may watch one session. Leaving one (q) stops nothing.
    """
    from sessions.home import find

    path = find(session)
    need_terminal(f"`pilotage replay {session} --json` prints where the session stands.")
    from tui.app import run_console

    run_console(path)


@click.command(short_help="Play a recorded session in the cockpit.")
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
    need_terminal("--json prints the state instead.")
    from tui.app import run_console

    run_console(path, replay=True, speed=speed, position=position)
