"""Commands on references: record one as a file, look at it, compare two, import one."""

from __future__ import annotations

from pathlib import Path

import click

from core.version import __version__
from tui.commands.base import (
    DOES_NOT_HOLD,
    HOLDS,
    fail,
    given,
    json_option,
    python_option,
    session_argument,
    show,
)

_FILE = click.Path()


@click.group(short_help="The untouched project's runs as one file.")
def reference() -> None:
    """Record the untouched project where it belongs, and take its runs elsewhere as one file.

    A bundle holds the step records, the metric, the minutes, the machine and its packages, and,
    for parity, the initial weights, the first batches and what each module put out. It is data:
    opening one executes nothing.

    \b
    Examples:
      pilotage reference record ~/melora -o melora.pilotage     on the GPU machine
      pilotage reference show melora.pilotage
      pilotage verify ~/melora-tpu --reference melora.pilotage  on the TPU machine
    """


@reference.command(short_help="Run the untouched project and write its bundle.")
@click.argument("project", type=click.Path(), default=".")
@click.option("-o", "--output", type=_FILE, required=True, metavar="FILE", help="Bundle to write.")
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0, 2**32 - 1),
    multiple=True,
    metavar="N",
    help="Run in full once with each seed; may be given several times.",
)
@click.option(
    "--cuda-on-cpu",
    is_flag=True,
    help="No GPU here: send CUDA calls to the CPU. No measure of time or dollars.",
)
@click.option(
    "--budget",
    "budget_mb",
    type=click.IntRange(1, 1_000_000),
    metavar="MB",
    help="MiB of tensors from each rank (default: 256); of what does not fit, a sample is kept.",
)
@click.option(
    "--repeats",
    type=click.IntRange(0, 20),
    metavar="N",
    help="N more parity runs against its own tensors: the reference's own variation.",
)
@click.option("--keep", is_flag=True, help="Keep the session that it was recorded in.")
@python_option
@json_option
def record(
    project: str,
    output: str,
    seeds: tuple[int, ...],
    cuda_on_cpu: bool,
    budget_mb: int | None,
    repeats: int | None,
    keep: bool,
    python: str | None,
    as_json: bool,
) -> None:
    """Run the untouched PROJECT by [reference] of its pilotage.toml, and write one portable FILE.

    It runs in full (with each seed) and once more as a short parity run whose tensors are kept.
    What goes on is told on standard error. A git repository is run as its HEAD is, any other
    directory as it stands. FILE appears when it is whole.

    Seeds take the place of {seed} in the command, as in "python train.py --seed {seed}"; where it
    has none, they are in the environment as PILOTAGE_SEED, which the project then has to read.

    \b
    Examples:
      pilotage reference record ~/melora -o melora.pilotage
      pilotage reference record . -o m.pilotage --seed 0 --seed 1 --seed 2 --repeats 2
      pilotage reference record . -o m.pilotage --cuda-on-cpu       no GPU at hand
      pilotage reference record . -o m.pilotage --budget 2000       a large model

    Neither the cockpit nor torch is needed in Pilotage's own Python: see README.
    Exit code 1: the project itself failed; its last lines are shown, and nothing is written unless
    only a parity run failed. 2: bad input.
    """
    from core.config import load
    from core.reference.opening import Bundle
    from core.reference.recording import with_options
    from core.reference.wording import as_json as bundle_json
    from core.reference.wording import describe
    from sessions.references import record_reference

    if len(set(seeds)) < len(seeds):
        fail("--seed names one seed twice.")
    config = with_options(
        load(Path(project), python=python, agent=False),
        seeds=[*seeds],
        cuda_on_cpu=cuda_on_cpu,
        repeats=repeats,
        budget_mb=budget_mb,
    )
    file = given(output)
    manifest, _ = record_reference(
        config, __version__, file, keep=keep, say=lambda text: click.echo(text, err=True)
    )
    with Bundle(file) as bundle:
        data = bundle_json(bundle)
    show(data, describe(data), as_json)
    if any(run.exit_code != 0 for run in manifest.runs):
        raise click.exceptions.Exit(DOES_NOT_HOLD)


@reference.command("show", short_help="What a bundle holds.")
@click.argument("file", type=_FILE)
@json_option
def show_bundle(file: str, as_json: bool) -> None:
    """Say what a bundle holds: project, machine, runs, metric, tensors, and its size.

    All of it is checked first, to the byte; nothing in it is executed.

    \b
    Examples:
      pilotage reference show melora.pilotage
      pilotage reference show melora.pilotage --json    packages and members too
    """
    from core.reference.opening import Bundle
    from core.reference.wording import as_json as bundle_json
    from core.reference.wording import describe

    with Bundle(given(file)) as bundle:
        bundle.check()
        data = bundle_json(bundle)
    show(data, describe(data), as_json)


@reference.command(short_help="Two bundles beside each other.")
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
@json_option
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare two bundles: machine, packages, metric, steps, weights, outputs of the modules.

    Exit code 0 where they agree (the parity runs within the default tolerances, and the metric), 1
    where not. Of tensors of more than 65,536 elements a sample is compared.

    \b
    Examples:
      pilotage reference compare a100.pilotage t4.pilotage
      pilotage reference compare before.pilotage after.pilotage --json
    """
    from core.reference import comparing
    from core.reference.wording import describe_comparison

    data = comparing.compare(given(first), given(second))
    show(data, describe_comparison(data), as_json)
    raise click.exceptions.Exit(HOLDS if data["agree"] else DOES_NOT_HOLD)


@reference.command("import", short_help="Put the runs of a bundle into a session.")
@session_argument
@click.argument("file", type=_FILE)
@click.option(
    "--force",
    metavar="REASON",
    default="",
    help="Take it although it was recorded of another project; the reason goes on record.",
)
@json_option
def import_(session: str, file: str, force: str, as_json: bool) -> None:
    """Make the runs of a bundle the reference of a session; they count from then on.

    Nothing is changed where the bundle is damaged, of a newer version, or of another project. A
    new session takes a bundle by itself: [reference] bundle = "melora.pilotage" in pilotage.toml.

    \b
    Examples:
      pilotage reference import melora-1130-a7f3 melora.pilotage
      pilotage reference import melora other.pilotage --force "renamed, and rewritten since"
    """
    from sessions.home import find
    from sessions.references import import_reference

    done = import_reference(find(session), given(file), force)
    data = {"bundle": done.bundle, "sha256": done.sha256, "runs": done.runs, "notes": done.notes}
    text = f"Imported {len(done.runs)} runs of the reference: {', '.join(done.runs)}."
    show(data, "\n".join([text, *done.notes]), as_json)
