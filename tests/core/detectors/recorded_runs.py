"""Records the runs in ``recorded/``: programs of ``programs/`` that the suite need not run again.

    python tests/core/detectors/recorded_runs.py [NAME ...]

It needs torch and torch_xla, for some also transformers, and takes about ten seconds a run on an
idle core (Trainer: a minute). The tests judge what it wrote, so that a detector is held to real
records without torch.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from core import events as ev  # noqa: E402
from core.body import Body  # noqa: E402
from tests.core.detectors.playing import PROGRAMS, Played, command, fold, one_by_one, play  # noqa: E402
from tests.core.scene import Scene  # noqa: E402

RECORDED = Path(__file__).parent / "recorded"
#: Program and arguments of each recording; ``PLACE`` is a directory that it may write to.
RUNS = {
    "converged": ("converged",),
    "two_optimizers": ("two_optimizers",),
    "own_tensor": ("own_tensor",),
    "masked_loss": ("masked_loss",),
    "cuda_amp": ("cuda_amp",),
    "forced_dtype": ("forced_dtype",),
    "trainer": ("hf_trainer", "PLACE"),
    "trainer_mask": ("hf_trainer", "PLACE", "mask"),
    "replicas": ("replicas",),
    "replicas_same": ("replicas", "same"),
    "replicas_unreduced": ("replicas", "unreduced"),
    "replicas_early": ("replicas", "early"),
}
RANKS = {name: 2 for name in RUNS if name.startswith("replicas")}
#: What differs from machine to machine and no detector reads.
WHO = ("pid", "tid")
DROPPED = ("argv", "t", "wall", "shapes", "hash")


def neutral(value: Any, places: dict[str, str], numbers: dict[int, int]) -> Any:
    """The value without this machine's paths, numbers of processes and times.

    Processes and threads are numbered from 1000 in the order in which they come.
    """
    if isinstance(value, str):
        for path, name in places.items():
            value = value.replace(path, name)
        return value
    if isinstance(value, list):
        return [neutral(item, places, numbers) for item in value]
    if isinstance(value, dict):
        kept = {
            neutral(k, places, numbers): neutral(v, places, numbers)
            for k, v in value.items()
            if k not in DROPPED
        }
        who = {k: numbers.setdefault(kept[k], 1000 + len(numbers)) for k in WHO if k in kept}
        return {**kept, **who}
    return value


def bodies_of(events: list[Any]) -> list[Body]:
    """Stored events as bodies, with one step in each."""
    made: list[Body] = []
    for event in events:
        if "steps" in event:
            made.append(ev.RunStepped(event["steps"]))
        elif "signals" in event:
            made.append(ev.RunSignalled(event["signals"]))
        elif "lines" in event:
            made.append(ev.RunOutput(event["stream"], event["lines"]))
        else:
            made.append(ev.RunEnded("exited", event["exit_code"], duration_s=event["duration_s"]))
    return one_by_one(made)


def load(name: str, kind: str = "xla-cpu") -> Played:
    """A recorded run, judged as one of the target command of a session for ``kind``."""
    stored = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    scene = Scene(target={"kind": kind, "command": stored["command"]}).snapshot("t1")
    return fold(scene, scene.start(cwd="/project"), bodies_of(stored["events"]))


async def record(name: str) -> None:
    """Make one run and write ``recorded/<name>.json.gz``; the same run gives the same bytes."""
    with tempfile.TemporaryDirectory() as place:
        program, *arguments = (place if word == "PLACE" else word for word in RUNS[name])
        ranks = RANKS.get(name, 1)
        played = await play(Path(place), program, *arguments, ranks=ranks)
        places = {place: "/run", str(PROGRAMS): "/project"}
        places |= {sys.prefix: "/venv", sys.base_prefix: "/python"}
        events: list[Any] = []
        for body in played.bodies:
            if isinstance(body, ev.RunStepped):
                events.append({"steps": body.records})
            elif isinstance(body, ev.RunSignalled):
                events.append({"signals": body.records})
            elif isinstance(body, ev.RunOutput):
                events.append({"stream": body.stream, "lines": body.lines})
            elif isinstance(body, ev.RunEnded):
                assert body.exit_code == 0, [line.text for line in played.run.lines]
                events.append({"exit_code": 0, "duration_s": round(body.duration_s, 1)})
        stored = {"command": command(program, *arguments, ranks=ranks), "events": events}
        text = json.dumps(neutral(stored, places, {}), separators=(",", ":"))
        RECORDED.mkdir(exist_ok=True)
        (RECORDED / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{name}: {len(played.run.steps)} steps, {played.run.seconds} s, {played.seen}")


if __name__ == "__main__":
    for each in sys.argv[1:] or RUNS:
        asyncio.run(record(each))
