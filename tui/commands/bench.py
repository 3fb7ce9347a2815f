"""Commands that measure what Pilotage itself costs."""

from __future__ import annotations

import sys

import click

from tui.commands.base import DOES_NOT_HOLD, HOLDS, json_option, python_option, show


@click.group(short_help="Measure what Pilotage costs a run.")
def bench() -> None:
    """Measure what Pilotage itself costs a run, on this machine."""


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
    execution or transfer more. Takes three to seven minutes on two idle cores.
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
