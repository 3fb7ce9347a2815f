"""What a parity replay costs: time against the same steps alone, and memory for a large model.

    python tests/benchmarks/bench_verify.py [--steps N] [--device cpu|xla] [--json]

**Time**: a transformer is trained for K steps without the probe, as the reference's parity run
(which writes its tensors), and as the target's (which starts from them and compares). ``alone``,
``capture`` and ``replay`` are seconds of the whole process, its start included, and ``start`` is
what the process takes until its first step. The wanted bound is replay at most 2 x alone.

**Memory**: the same three for a model of 100 million parameters and two steps; peak resident memory
of the process (``ru_maxrss``). The wanted bound is 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from core.runs import environment, probe_setup  # noqa: E402
from core.runs.records_replay import ForwardRecord, StartRecord  # noqa: E402
from core.runs.tail import RecordTail  # noqa: E402

PROGRAM = """
import sys, time
began = time.time()
import torch
from torch import nn
torch.set_num_threads(1)
device, sync, size, depth, words, batch, steps = sys.argv[1], None, *map(int, sys.argv[2:])
if device == "xla":
    import torch_xla
    device, sync = torch_xla.device(), torch_xla.sync
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, length, 3, 4, size // 4).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-2, -1) / (size // 4) ** 0.5, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, size))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
        self.head = nn.Linear(size, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))

model = Model().to(device)
if device != "cpu":
    model.head.weight = model.embed.weight
print("parameters", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randint(0, words, (batch * steps, 64)))
print("start", time.time() - began, flush=True)
for (x,) in torch.utils.data.DataLoader(data, batch, shuffle=True):
    x = x.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if sync:
        sync()
    print(loss.item())
"""

SMALL = (256, 4, 2000, 16)  # size, depth, words, batch
LARGE = (768, 12, 20000, 2)


def run(place: Path, device: str, shape: tuple[int, ...], steps: int, **probe: Any) -> dict:
    """One process; its seconds, its start's, its peak memory in MiB and its records."""
    place.mkdir()
    program = place / "train.py"
    program.write_text(PROGRAM)
    added = {"OMP_NUM_THREADS": "1", "PJRT_DEVICE": "CPU"}
    if probe:
        added |= probe_setup.install(place, mode="parity", steps=steps, budget_mb=1024, **probe)
    began = time.perf_counter()
    with (place / "out").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(program), device, *map(str, (*shape, steps))],
            env=environment.for_run(os.environ, added),
            stdout=out,
        )
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    assert status == 0, f"the program failed in {place}"
    words = dict(x.split() for x in (place / "out").read_text().splitlines() if " " in x)
    records = RecordTail(probe_setup.records_dir(place)).finish() if probe else []
    return {
        "seconds": seconds,
        "start": float(words["start"]),
        "parameters": int(words["parameters"]),
        "peak_mib": used.ru_maxrss / 1024,
        "records": records,
    }


def three(device: str, shape: tuple[int, ...], steps: int) -> dict[str, Any]:
    """Alone, as a capture and as a replay of it; the replay must have compared what is there."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        alone = run(place / "alone", device, shape, steps)
        made = run(place / "capture", "cpu", shape, steps, capture=place / "tensors")
        replay = run(
            place / "replay", device, shape, steps, reference=place / "tensors", precision="fp32"
        )
        (start,) = (r for r in replay["records"] if isinstance(r, StartRecord))
        forward = [r for r in replay["records"] if isinstance(r, ForwardRecord)][-1]
        errors = [m.error for m in forward.modules if m.error is not None]
        assert start.natural_error == 0 and errors and max(errors) < 1e-5, (start, errors)
    return {
        "device": device,
        "parameters": alone["parameters"],
        "steps": steps,
        "modules": len(errors),
        **{f"{k}_s": round(v["seconds"], 2) for k, v in _named(alone, made, replay)},
        "start_s": round(alone["start"], 2),
        "ratio": round(replay["seconds"] / alone["seconds"], 2),
        **{f"{k}_mib": round(v["peak_mib"]) for k, v in _named(alone, made, replay)},
    }


def _named(alone: dict, made: dict, replay: dict) -> tuple[tuple[str, dict], ...]:
    return ("alone", alone), ("capture", made), ("replay", replay)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=16, help="K of the timed runs (16)")
    parser.add_argument("--device", choices=("cpu", "xla"), help="only this one")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for device in [given.device] if given.device else ["cpu", "xla"]:
        rows += [three(device, SMALL, given.steps), three(device, LARGE, 2)]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['device']}: {row['parameters'] / 1e6:.1f} million parameters, {row['steps']} steps, "
            f"{row['modules']} modules compared\n"
            f"  alone {row['alone_s']} s, capture {row['capture_s']} s, replay {row['replay_s']} s: "
            f"{row['ratio']} x alone (start {row['start_s']} s)\n"
            f"  peak memory {row['alone_mib']} / {row['capture_mib']} / {row['replay_mib']} MiB"
        )


if __name__ == "__main__":
    main()
