"""The fault bench: does the ladder refuse every known fault, and no faithful migration?

For each project its original is recorded once (``pilotage reference record``); each variant is a
copy with its patches, verified against that bundle by ``pilotage verify``. Nothing is told to these
commands of what is expected, and they are the ones that everybody uses.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.bench.fault_judging import Judged, failed, holds, judge
from core.bench.fault_projects import Project, Variant
from core.bench.fault_runs import (
    ROOT,
    Processes,
    StepFailed,
    record_reference,
    verify_variant,
)
from core.errors import PilotageError

PROJECTS = ROOT / "tests" / "faults"
LIMIT_S = 600.0
"""Seconds that one recording or one verification may take."""

Say = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What the bench found; ``references`` are seconds by project, ``seconds`` the whole time."""

    rows: list[Judged] = field(default_factory=list)
    references: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    jobs: int = 1
    python: str = ""
    cpus: int = 0

    @property
    def holds(self) -> bool:
        """See :func:`core.bench.fault_judging.holds`."""
        return holds(self.rows)


def measure(
    projects: Sequence[Project],
    *,
    jobs: int,
    keep: Path | None,
    python: str | None,
    say: Say,
    limit_s: float = LIMIT_S,
    processes: Processes | None = None,
) -> Report:
    """Record, verify and judge every variant, ``jobs`` commands at a time.

    ``keep``: a new or empty directory for copies, bundles and answers, which otherwise go when it
    ends. A project whose reference can't be recorded has all its variants in error, and the others
    go on. Raises PilotageError where ``keep`` can't be used.
    """
    report = Report(jobs=jobs, python=python or "", cpus=os.cpu_count() or 0)
    processes = processes or Processes()
    began = time.monotonic()
    with _folder(keep) as place:
        bench = _Bench(place, limit_s, python, processes, keep is not None)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                _go(projects, bench, pool, report, say)
            except BaseException:
                processes.stop()
                pool.shutdown(cancel_futures=True)
                raise
    order = {v.id: i for i, v in enumerate(v for p in projects for v in p.variants)}
    report.rows.sort(key=lambda row: order[row.variant.id])
    report.seconds = time.monotonic() - began
    return report


@dataclass(frozen=True, slots=True)
class _Bench:
    place: Path
    limit_s: float
    python: str | None
    processes: Processes
    keep: bool

    def reference(self, project: Project) -> tuple[Path, float]:
        place = self.place / project.name / "reference"
        return record_reference(self.processes, project, place, self.limit_s, self.python)

    def variant(self, project: Project, variant: Variant, bundle: Path) -> Judged:
        began = time.monotonic()
        place = self.place / project.name / variant.name
        try:
            result, seconds = verify_variant(
                self.processes,
                project,
                variant,
                bundle,
                place,
                self.limit_s,
                self.python,
                self.keep,
            )
        except StepFailed as error:
            return failed(variant, str(error), time.monotonic() - began)
        return judge(variant, result, seconds)


def _go(
    projects: Sequence[Project],
    bench: _Bench,
    pool: ThreadPoolExecutor,
    report: Report,
    say: Say,
) -> None:
    total = sum(len(p.variants) for p in projects)
    references: dict[Future[tuple[Path, float]], Project] = {}
    variants: dict[Future[Judged], Variant] = {}
    waiting = list(projects)

    def done(row: Judged) -> None:
        report.rows.append(row)
        said = f": {row.check} {row.said}" if row.check else f": {row.said}" if row.said else ""
        say(
            f"[{len(report.rows)}/{total}] {row.variant.id} {row.verdict}{said} ({row.seconds:.0f} s)"
        )

    # One recording ahead of the verifications, so that these never wait long for one.
    while waiting or references or variants:
        if waiting and not references and len(variants) <= report.jobs:
            project = waiting.pop(0)
            say(f"{project.name}: recording the reference ...")
            references[pool.submit(bench.reference, project)] = project
        pending: list[Future[Any]] = [*references, *variants]
        finished, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in finished:
            if future in variants:
                variants.pop(future)
                done(future.result())
                continue
            project = references.pop(future)
            try:
                bundle, seconds = future.result()
            except StepFailed as error:
                for variant in project.variants:
                    done(failed(variant, f"No reference: {error}"))
                continue
            report.references[project.name] = seconds
            say(f"{project.name}: reference recorded in {seconds:.0f} s")
            for variant in project.variants:
                variants[pool.submit(bench.variant, project, variant, bundle)] = variant


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        place = Path(tempfile.mkdtemp(prefix="pilotage-faults-"))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as error:
        raise PilotageError(f"{keep} can't be used: {error.strerror or error}.") from error
    if used:
        raise PilotageError(f"{keep} is not empty: name a new directory with --keep.")
    yield keep.absolute()
