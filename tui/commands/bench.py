"""Commands that measure what Pilotage itself costs."""

from __future__ import annotations

import sys

import click

from tui.commands.base import DOES_NOT_HOLD, HOLDS, given, json_option, python_option, show


@click.group(short_help="Measure what Pilotage costs a run, and what it detects.")
def bench() -> None:
    """Measure what Pilotage itself costs a run on this machine, and which faults it detects."""


@bench.command(short_help="The probe on against off: step time, compiles, transfers.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "xla", "all"]),
    default="all",
    help="torch on the CPU, torch_xla on the CPU through PJRT, or both (default).",
)
@click.option(
    "--model",
    "names",
    type=click.Choice(["mlp", "transformer", "cnn"]),
    multiple=True,
    help="Only this model; may be given several times (default: all three).",
)
@click.option(
    "--steps",
    type=click.IntRange(10, 100_000),
    help="Steps with the probe, and as many without, for each model (default: 400).",
)
@click.option("--quick", is_flag=True, help="60 steps: a rougher figure in a fraction of the time.")
@python_option
@json_option
def probe(
    device: str,
    names: tuple[str, ...],
    steps: int | None,
    quick: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """Compare training steps with the probe and without it.

    One process trains a model, and steps with the probe and without it take turns, ten at a time.
    It holds if the median step takes at most 1.02 times as long with the probe, for steps of 20 ms
    or more, and if XLA's own counters, compared between two processes, show no compilation,
    execution or transfer more. Takes about six minutes on two idle cores.
    """
    from core.bench import probe as measuring
    from core.bench import report as reporting

    report = measuring.measure(
        python or sys.executable,
        measuring.DEVICES if device == "all" else [d for d in measuring.DEVICES if d == device],
        [m for m in (*measuring.MODELS, measuring.SHORT) if not names or m.name in names],
        steps=steps or (measuring.QUICK_STEPS if quick else measuring.STEPS),
        say=lambda text: click.echo(text, err=True),
    )
    show(reporting.as_json(report), reporting.describe(report), as_json)
    raise click.exceptions.Exit(HOLDS if report.holds else DOES_NOT_HOLD)


@bench.command(short_help="Known faults against the ladder, and against simpler methods.")
@click.option(
    "--projects",
    "folder",
    type=click.Path(),
    metavar="DIR",
    help="Folder of projects with their faults (default: tests/faults of the checkout).",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Only this project, or PROJECT/VARIANT; may be given several times.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Commands at a time.",
)
@click.option(
    "--keep",
    type=click.Path(),
    metavar="DIR",
    help="Keep copies, bundles, answers and sessions (PROJECT/VARIANT/home) in this new directory.",
)
@click.option(
    "--limit",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Of one recording or verification; what takes longer is ended, and an error.",
)
@python_option
@json_option
def faults(
    folder: str | None,
    only: tuple[str, ...],
    jobs: int,
    keep: str | None,
    limit: float,
    python: str | None,
    as_json: bool,
) -> None:
    """Verify projects with a known fault each, and faithful migrations of the same projects.

    Of each project the original is recorded once. Each variant is a copy with its patches, which
    `pilotage verify` measures against that. It holds if every fault is refused at the level that is
    expected of it, or at a lower one, and no check fails on a faithful migration. What three simpler
    methods would have noticed in the same runs stands in the same table.

    \b
    Examples:
      pilotage bench faults
      pilotage bench faults --only charlm --only ddp4/clip-before-reduce
      pilotage bench faults --projects ~/our-faults --json
    """
    from core.bench import fault_report as reporting
    from core.bench import faults as measuring
    from core.bench.fault_projects import find_projects
    from core.config.reading import program
    from core.recorder.stopping import stoppable

    place = given(folder).absolute() if folder else measuring.PROJECTS
    if python is not None:
        python = program(python)
    with stoppable("bench"):
        report = measuring.measure(
            find_projects(place, only),
            jobs=jobs,
            keep=given(keep).absolute() if keep else None,
            python=python,
            limit_s=limit,
            say=lambda text: click.echo(text, err=True),
        )
    show(reporting.as_json(report), reporting.describe(report), as_json)
    raise click.exceptions.Exit(HOLDS if report.holds else DOES_NOT_HOLD)
