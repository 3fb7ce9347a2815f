"""Bundles for tests, made in milliseconds: real files of the real writer, on runs nobody ran."""

from __future__ import annotations

import json
import struct
import zipfile
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core import events as ev
from core.events import NewEvent
from core.reference.bundle import DIGEST, SEAL, digest_of, write_bundle
from core.reference.facts import lines_of
from core.reference.manifest import Hardware, Manifest, ProjectFacts, RunFacts
from core.state import fold
from sessions.log import EventLog

CODE = """\
import torch
from torch import nn
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    loss = model(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("accuracy", float(loss))
"""

TREE = "ab" * 20


def tensors(path: Path, values: dict[str, list[float]]) -> None:
    """A safetensors file of float32 vectors."""
    header: dict[str, Any] = {}
    data = b""
    for key, row in values.items():
        raw = array("f", row).tobytes()
        header[key] = {
            "dtype": "F32",
            "shape": [len(row)],
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def capture(directory: Path, scale: float = 1.0, sketch: str = "") -> Path:
    """What the probe writes of a parity run of one rank, as far as it is looked at here.

    ``sketch`` is ``"sketch."`` where the outputs are samples only.
    """
    rank = directory / "rank0"
    rank.mkdir(parents=True)
    tensors(rank / "weights.safetensors", {"0.weight": [1.0, 2.0], "0.bias": [0.5]})
    tensors(rank / "forward.safetensors", {f"{sketch}out.0.": [scale, 2.0, 3.0]})
    index = {
        "format": 1, "rank": 0, "world": 1, "steps": 2, "precision": "fp32", "why": "",
        "weights": [{"key": "0.weight"}, {"key": "0.bias"}], "batches": [], "batch_source": None,
        "modules": [{"i": 0, "name": "fc", "type": "Linear", "root": 0, "inputs": [],
                     "outputs": [{"path": "", "key": "out.0."}]}],
        "gradients": [], "aliases": {}, "sketched": {}, "budget_mb": 256, "bytes": 24,
    }  # fmt: skip
    (rank / "index.json").write_text(json.dumps(index))
    return directory


def started(number: int, purpose: str, of: str = "", **more: Any) -> ev.RunStarted:
    return ev.RunStarted(
        number, purpose, "python train.py", target="cuda", of=of, by="recorder", **more
    )


def make_bundle(
    place: Path,
    *,
    name: str = "made.pilotage",
    title: str = "thing",
    code: str = CODE,
    captured: bool = True,
    metric: float = 0.75,
    scale: float = 1.0,
    sketch: str = "",
    change: Callable[[Manifest], Manifest] = lambda m: m,
) -> Path:
    """A bundle of one run in full and one parity run; returns its path."""
    work = place / f"work of {name}"
    (work / "code").mkdir(parents=True)
    (work / "code" / "train.py").write_text(code)
    tensors_at = capture(work / "r2" / "capture", scale, sketch)
    steps = [
        {"k": "step", "pid": 1, "tid": 1, "n": n, "loss": 1 / n, "grad_norm": 2.0} for n in (1, 2)
    ]
    with EventLog.create(work / "session.db") as log:
        for number, purpose, of in ((1, "reference", ""), (2, "parity", "reference")):
            bodies: list[ev.Body] = [
                started(number, purpose, of),
                ev.RunOutput("stdout", ["epoch 1", f"accuracy {metric}"]),
                ev.RunStepped(steps),
                ev.RunSignalled([{"k": "finish", "pid": 1, "tid": 1, "steps": 2}]),
                ev.RunEnded("exited", 0, duration_s=3.0),
            ]
            if purpose == "reference":
                bodies.append(ev.RunResult("accuracy", metric))
            log.append(*(NewEvent(b, "recorder", f"r{number}", TREE) for b in bodies))
        state = fold(log.events())
        sample, count = lines_of(work / "code")
        manifest = change(
            Manifest(
                pilotage="0.0.test",
                made="2026-01-02T03:04:05+00:00",
                project=ProjectFacts(title, True, "", TREE, False, "", sample, count),
                command="python train.py",
                hardware=Hardware("a CPU", 2, 1024, ["a GPU"], "Linux"),
                packages={"torch": "2.9.1"},
                python="3.11.7",
                device="cuda",
                k=2,
                precision="fp32",
                minutes=0.05,
                metric_name="accuracy",
                metric=metric,
                budget_mb=256,
                runs=[
                    RunFacts(1, "reference", "", None, 3.0, 0, 2, metric),
                    RunFacts(
                        2, "parity", "reference", None, 3.0, 0, 2, ranks=[0] if captured else []
                    ),
                ],
            )
        )
        path = place / name
        write_bundle(
            path,
            manifest,
            [*state.runs.values()],
            lambda run: (e for e in log.events() if e.run_id == run.run_id),
            lambda run: tensors_at,
        )
    return path


def reseal(path: Path) -> None:
    """Give a zip that somebody has written the seal that fits it: what only a stranger would do."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = SEAL + b"0" * DIGEST
    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        digest = digest_of(file, size - DIGEST)
        file.seek(size - DIGEST)
        file.write(digest.hexdigest().encode())


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None], seal: bool = True) -> None:
    """Write a bundle anew with other members; ``change`` gives a member's content (None: gone).

    The manifest's hashes stay what they were unless ``change`` sees to them.
    """
    with zipfile.ZipFile(path) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            new = change(name, content)
            if new is not None:
                archive.writestr(zipfile.ZipInfo(name), new)
    if seal:
        reseal(path)


def rehash(path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """As ``rewrite``, with a manifest that fits the new members: a bundle forged with care."""
    import hashlib

    new: dict[str, bytes] = {}
    rewrite(path, lambda n, c: new.setdefault(n, change(n, c)))

    def fit(name: str, content: bytes) -> bytes:
        if name != "manifest.json":
            return content
        data = json.loads(content)
        data["members"] = {
            n: {"sha256": hashlib.sha256(c).hexdigest(), "bytes": len(c)}
            for n, c in new.items()
            if n != "manifest.json"
        }
        return json.dumps(data).encode()

    rewrite(path, fit)


def edited(**more: Any) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(manifest, **more)
