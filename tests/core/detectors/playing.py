"""Runs a program of ``programs/`` as the recorder runs an attempt, and folds what comes of it.

The launcher and the probe are the real ones; the session around the run is a test's. As the
recorder does, the detectors are asked again and again while the run goes on, and what they once
saw stays on record.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core import events as ev
from core.body import Body
from core.events import FindingOpened
from core.findings import detect
from core.recorder.items import end_and_drain, end_event, record_events
from core.runs.launcher import Ended, Launcher, Output, Records, Reports, RunSpec
from core.state import SessionState
from core.state_parts import Run
from tests.core.scene import Scene

PROGRAMS = Path(__file__).resolve().parent / "programs"
#: The compiler's optimisations are not what is tried here, and cost most of the time.
ENV = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"} | {
    "OMP_NUM_THREADS": "1"
}
LIMIT_S = 120.0


def command(program: str, *arguments: str, ranks: int = 1) -> str:
    """The command that runs a program of ``programs/``, under torchrun for several ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    start = [sys.executable, *(torchrun if ranks > 1 else ()), f"{program}.py"]
    return shlex.join([*start, *arguments])


@dataclass
class Played:
    """A run that has ended: its session, and every finding that was open at any time."""

    scene: Scene
    run_id: str
    bodies: list[Body]
    opened: dict[str, FindingOpened] = field(default_factory=dict)
    at_step: dict[str, int] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        return self.scene.state.runs[self.run_id]

    @property
    def now(self) -> dict[str, FindingOpened]:
        """What the detectors see of the run when all of it is on record."""
        return {f.detector: f for f in detect(self.scene.state, self.run_id)}

    @property
    def seen(self) -> set[tuple[str, str]]:
        """Name and category of each finding."""
        return {(f.detector, f.category) for f in self.opened.values()}

    def again(self, kind: str) -> Played:
        """The same records as they would have been judged in a session with another target."""
        scene = Scene(target={**self.scene.config["target"], "kind": kind}).snapshot("t1")
        return fold(scene, scene.start(), self.bodies)


def fold(scene: Scene, run_id: str, bodies: list[Body]) -> Played:
    """Put stored events of a run into a session one by one, with the detectors looking on."""
    played = Played(scene, run_id, bodies)
    state = SessionState()
    for event in scene.events:
        state.apply(event)
    for body in bodies:
        state.apply(scene.add(body, run_id, scene.tree))
        for finding in detect(state, run_id):
            if finding.finding_id not in state.findings:
                played.opened[finding.detector] = finding
                played.at_step[finding.detector] = len(state.runs[run_id].steps)
                state.apply(scene.add(finding, run_id, scene.tree))
    return played


async def play(
    place: Path,
    program: str,
    *arguments: str,
    kind: str = "xla-cpu",
    env: Mapping[str, str] | None = None,
    scene: Scene | None = None,
    purpose: str = "attempt",
    ranks: int = 1,
) -> Played:
    """Run a program as the target command of a session for ``kind``, in light mode.

    ``place`` is for the probe and its records. ``scene``: the session it is another run of.
    """
    text = command(program, *arguments, ranks=ranks)
    if scene is None:
        scene = Scene(target={"kind": kind, "command": text}).snapshot("t1")
    run_id = scene.start(purpose, command=text, python=sys.executable, cwd=str(PROGRAMS))
    given = ENV if env is None else env
    handle = await Launcher().start(
        RunSpec(
            run_id=f"{place.name}/{run_id}",
            command=shlex.split(text),
            cwd=PROGRAMS,
            env={**given, "PYTHONDONTWRITEBYTECODE": "1"},
            probe="light",
            probe_dir=Path(tempfile.mkdtemp(prefix=f"{program}-", dir=place)),
            time_limit_s=LIMIT_S,
            xla_debug=True,
        )
    )
    bodies: list[Body] = []
    try:
        async for item in handle:
            if isinstance(item, Output):
                bodies.append(ev.RunOutput(item.stream, item.lines))
            elif isinstance(item, Records):
                bodies += record_events(item)
            elif isinstance(item, Reports):
                bodies.append(ev.RunSignalled(list(item.records)))
            elif isinstance(item, Ended):
                bodies.append(end_event(item, ""))
    finally:
        await end_and_drain(handle)
    return fold(scene, run_id, one_by_one(bodies))


def one_by_one(bodies: list[Body]) -> list[Body]:
    """The same events with one step in each: no finding can hide between two looks.

    Behind step 40 there are ten in each, since a look costs milliseconds.
    """
    parts: list[Body] = []
    for body in bodies:
        if isinstance(body, ev.RunStepped):
            parts += [ev.RunStepped([r]) for r in body.records if r["n"] <= 40]
            late = [r for r in body.records if r["n"] > 40]
            parts += [ev.RunStepped(late[i : i + 10]) for i in range(0, len(late), 10)]
        else:
            parts.append(body)
    return parts
