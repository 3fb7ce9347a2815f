"""Builds valid event lists: a whole session as a recorder, an agent and an operator write it.

The story is that of a small migration: a reference, a loud failure, a silent one, a refuted
claim, a permission asked for, an intervention. Numbers are plain functions of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from core import events as ev
from core.events import Body, NewEvent
from core.levels import CHECKS, Criteria, highest
from sessions.log import EventLog

START_US = 1_764_504_000_000_000  # 2025-11-30 12:00:00 UTC
COMMAND = "python -m inkformer.train --device xla"
TREES = ["1111111aaa", "2222222bbb", "3333333ccc", "4444444ddd"]
CONFIG: dict[str, Any] = {
    "project": {"title": "inkformer on xla-cpu", "path": "/home/ada/inkformer"},
    "reference": {"command": "python -m inkformer.train --device cpu", "device": "cpu"},
    "target": {"kind": "xla-cpu", "chips": 1, "command": COMMAND},
    "metric": {"name": "test accuracy", "pattern": "test accuracy: ([0-9.]+)"},
    "agent": {"driver": "scripted"},
}

PATCH_1 = """diff --git a/inkformer/train.py b/inkformer/train.py
--- a/inkformer/train.py
+++ b/inkformer/train.py
@@ -38,6 +38,7 @@ def main():
     config = load(args.config)
     torch.manual_seed(config.seed)
     model = Inkformer(config)
-    model.cuda()
+    device = torch_xla.device()
+    model = model.to(device)
     optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
     scheduler = warmup(optimizer, config.warmup)
"""
PATCH_2 = (
    PATCH_1
    + """@@ -80,6 +81,6 @@ def train_epoch(model, loader, optimizer):
         loss = criterion(model(images), labels)
         loss.backward()
-        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
         optimizer.step()
+        xm.mark_step()
         scheduler.step()
-        losses.append(loss.item())
+        losses.append(loss.detach())
diff --git a/inkformer/data.py b/inkformer/data.py
--- a/inkformer/data.py
+++ b/inkformer/data.py
@@ -12,2 +12,3 @@ def loader(split, batch):
     images, labels = digits(split)
-    return DataLoader(TensorDataset(images, labels), batch, shuffle=True)
+    return DataLoader(
+        TensorDataset(images, labels), batch, shuffle=True, drop_last=True)
"""
)


def snapshot(tree: str, patch: str, files: Sequence[dict[str, Any]], step: str = "") -> Body:
    """A snapshot with its patch."""
    return ev.TreeSnapshotted(
        tree=tree, commit="c" + tree, cause="edit", files=list(files), patch=patch,
        step_patch=step or patch,
    )  # fmt: skip


def step(n: int, loss: float, compiles: int = 0) -> dict[str, Any]:
    """One probe record of an optimizer step."""
    return {"k": "step", "pid": 7, "tid": 7, "rank": None, "n": n, "loss": loss, "dt": 0.5,
            "compiles": compiles, "grad_norm": 1.2, "signature": "B C(1) S L Z"}  # fmt: skip


def curve(n: int, shift: float = 0.0) -> float:
    """A loss that falls."""
    return 2.3 * math.exp(-n / 14) + 0.18 + 0.03 * math.sin(n * 1.7) + shift


class Story:
    """Events with a clock of their own; each method adds what really happens together."""

    def __init__(self, session_id: str = "inkformer-1130-a7f3", config: Any = None) -> None:
        self.new: list[NewEvent] = []
        self.now_us = START_US
        self.session_id = session_id
        self.config = CONFIG if config is None else config
        self.runs = 0
        self.tree = ""

    def wait(self, seconds: float) -> Story:
        """Let time pass."""
        self.now_us += int(seconds * 1e6)
        return self

    def add(
        self, *bodies: Body, source: str = "recorder", run_id: str = "", tree: str = ""
    ) -> Story:
        """Add events, 0.1 s apart."""
        for body in bodies:
            self.now_us += 100_000
            self.new.append(NewEvent(body, source, run_id, tree or self.tree, self.now_us))
        return self

    def agent(self, *bodies: Body) -> Story:
        """Events of the agent."""
        return self.add(*bodies, source="agent")

    def operator(self, *bodies: Body) -> Story:
        """Events of a console."""
        return self.add(*bodies, source="console:abc123")

    def opened(self, title: str = "inkformer on xla-cpu") -> Story:
        """Session, recorder, console, agent."""
        self.add(
            ev.SessionOpened(self.session_id, title, "/home/ada/inkformer", self.config, "0.1.0"),
            ev.RecorderStarted(4242, "tpu-vm"),
        )
        self.operator(ev.OperatorAttached("abc123", "ada", "120x40"))
        return self.agent(ev.AgentStarted("scripted", "", "migration.toml"))

    def snapshot(self, index: int, patch: str, files: Sequence[dict[str, Any]]) -> Story:
        """The worktree has changed."""
        self.tree = TREES[index]
        return self.add(snapshot(self.tree, patch, files))

    def start_run(self, purpose: str = "attempt", of: str = "", command: str = COMMAND) -> str:
        """A run begins; its id."""
        self.runs += 1
        run_id = f"r{self.runs}"
        body = ev.RunStarted(self.runs, purpose, command, "xla-cpu", 1, of, "light", pid=99)
        self.add(body, run_id=run_id)
        return run_id

    def output(self, run_id: str, *lines: str, stream: str = "stdout") -> Story:
        """Lines of output."""
        return self.add(ev.RunOutput(stream, list(lines)), run_id=run_id)

    def steps(self, run_id: str, first: int, last: int, shift: float = 0.0) -> Story:
        """Step records and the lines that go with them."""
        for begin in range(first, last + 1, 10):
            span = range(begin, min(begin + 10, last + 1))
            self.now_us += 400_000
            records = [step(n, curve(n, shift), int(n <= 2)) for n in span]
            self.add(ev.RunStepped(records), run_id=run_id)
            self.output(run_id, *(f"step {n:>4}  loss {curve(n, shift):.4f}" for n in span))
        return self

    def end_run(self, run_id: str, code: int = 0, seconds: float = 12.0) -> Story:
        """The run has ended by itself."""
        self.wait(seconds)
        return self.add(ev.RunEnded("exited", code, duration_s=seconds), run_id=run_id)

    def check(self, id: str, state: str, summary: str, run_id: str, **more: Any) -> Story:
        """One check result for the present tree."""
        body = ev.CheckEvaluated(
            id, CHECKS[id].level, state, summary, tree=self.tree, command=COMMAND,
            criteria=Criteria().earlier_hash(), chips=1, runs=[run_id], **more,
        )  # fmt: skip
        return self.add(body, run_id=run_id)

    def measured(self, run_id: str, fails: dict[str, str], upto: int = 3) -> Story:
        """A round of checks: those in ``fails`` fail, the others of levels up to ``upto`` pass."""
        states = {}
        for check in CHECKS.values():
            if check.level > upto:
                continue
            bad = check.id in fails
            states[check.id] = "fail" if bad else "pass"
            more: dict[str, Any] = {}
            if bad:
                more = {
                    "expected": "clip to norm 1.0 in all 16 steps",
                    "actual": "no clipping in any step",
                    "tolerance": "same calls",
                    "evidence": {"first step": 1, "steps": [{"step": 1, "reference": "B C(1) S",
                                                             "migrated": "B S"}]},
                }  # fmt: skip
            self.check(check.id, states[check.id], fails.get(check.id, "equal"), run_id, **more)
        return self.add(ev.LevelMeasured(highest(states), self.tree, dict(states), "measured"))


FILES_1 = [{"path": "inkformer/train.py", "status": "M", "added": 2, "removed": 1}]
FILES_2 = [
    {"path": "inkformer/train.py", "status": "M", "added": 4, "removed": 3},
    {"path": "inkformer/data.py", "status": "M", "added": 2, "removed": 1},
]


def demo(until: str = "waiting") -> Story:
    """The story up to a point: ``reference``, ``running``, ``refuted``, ``waiting``, ``finished``."""
    s = Story().opened()
    s.add(snapshot("0000000base", "", []))
    s.tree = "0000000base"
    ref = s.start_run("reference", command="python -m inkformer.train --device cpu")
    s.output(ref, "inkformer: 4 layers, 412,170 parameters", "device: cpu").steps(ref, 1, 60)
    s.output(ref, "test accuracy: 0.9611").end_run(ref, 0, 14)
    if until == "reference":
        return s
    s.agent(
        ev.AgentSaid("I'll read the training loop first, then move the model to the XLA device."),
        ev.AgentCalled("c1", "read", {"path": "inkformer/train.py"}),
        ev.AgentReturned("c1", True, "import torch\n" * 120),
        ev.AgentCalled("c2", "edit", {"path": "inkformer/train.py", "search": "model.cuda()",
                                      "replace": "model = model.to(device)"}),
        ev.AgentReturned("c2", True, "1 replacement"),
    )  # fmt: skip
    s.snapshot(0, PATCH_1, FILES_1).wait(3)
    s.agent(ev.AgentCalled("c3", "run", {}))
    first = s.start_run()
    s.output(first, "inkformer: 4 layers, 412,170 parameters")
    s.output(
        first, "Traceback (most recent call last):",
        '  File "inkformer/train.py", line 57, in main',
        "AssertionError: Torch not compiled with CUDA enabled", stream="stderr",
    ).end_run(first, 1, 6)  # fmt: skip
    s.add(
        ev.FindingOpened(
            f"{first}.cuda", "cuda_call", "C2", "a CUDA call where there is no CUDA",
            ["inkformer/train.py:57: images.cuda()"],
            "Move tensors with .to(device) instead of .cuda().",
        ),
        run_id=first,
    )  # fmt: skip
    s.agent(ev.AgentReturned("c3", False, "exit 1\nAssertionError: Torch not compiled with CUDA"))
    s.operator(
        ev.OperatorHeartbeat("abc123"),
        ev.InterventionRecorded("i1", s.now_us, s.tree, first, -1, author="ada"),
        ev.InterventionAmended(
            "i1", {"kind": "guidance", "trigger": "failed run", "category": "C2",
                   "necessity": "helpful", "text": "pointed at the remaining .cuda() calls"}, "ada"),
        ev.OperatorMessaged("m1", "There are three more .cuda() calls in data.py.", "ada"),
    )  # fmt: skip
    s.add(ev.OperatorDelivered("m1"))
    s.agent(ev.AgentSaid("Right. I'll go through data.py as well, and mark the step."))
    s.snapshot(1, PATCH_2, FILES_2)
    s.agent(ev.AgentCalled("c4", "run", {}))
    second = s.start_run()
    s.output(second, "inkformer: 4 layers, 412,170 parameters", "device: xla:0")
    s.output(second, "WARNING:root:Defaulting to PJRT_DEVICE=CPU", stream="stderr")
    s.steps(second, 1, 40, 0.05)
    if until == "running":
        return s
    s.steps(second, 41, 60, 0.05)
    s.output(second, "test accuracy: 0.9580").end_run(second, 0, 21)
    s.agent(ev.AgentReturned("c4", True, "exit 0\ntest accuracy: 0.9580"))
    s.agent(ev.AgentClaimed(3, "Same accuracy within noise. The migration is complete.", "k1"))
    parity = s.start_run("parity", "target")
    s.steps(parity, 1, 16, 0.05).end_run(parity, 0, 5)
    s.measured(second, {"L1.clip": "The reference clips to 1.0 in each step, this code never."})
    if until == "refuted":
        return s
    s.agent(
        ev.AgentSaid("The clip got lost when I moved the step. I'd like to check the package."),
        ev.AgentCalled("c5", "shell", {"command": "pip install 'torch_xla[tpu]'"}),
        ev.AgentAsked("a1", "May I install the TPU extra?", "shell",
                      {"command": "pip install 'torch_xla[tpu]'"}, "c5", "needed for libtpu"),
    )  # fmt: skip
    if until == "waiting":
        return s
    s.wait(42)
    s.operator(ev.OperatorHeartbeat("abc123"),
               ev.OperatorDecided("a1", "deny", "not needed on this target", author="ada"))  # fmt: skip
    s.agent(
        ev.AgentReturned("c5", False, "denied: not needed on this target"),
        ev.AgentCalled("c6", "edit", {"path": "inkformer/train.py"}),
        ev.AgentReturned("c6", True, "1 replacement"),
    )
    s.snapshot(2, PATCH_1, FILES_1)
    third = s.start_run()
    s.output(third, "inkformer: 4 layers, 412,170 parameters", "device: xla:0")
    s.steps(third, 1, 60).output(third, "test accuracy: 0.9611").end_run(third, 0, 20)
    s.add(ev.FindingResolved(f"{first}.cuda", "run #4 showed it no more"))
    s.agent(ev.AgentClaimed(3, "Clipping is back; the numbers agree.", "k2"))
    parity = s.start_run("parity", "target")
    s.steps(parity, 1, 16).end_run(parity, 0, 5)
    s.measured(third, {})
    s.operator(ev.MarkerPlaced("faithful from here on", "ada"))
    s.agent(ev.AgentFinished("done", "Migrated, and measured at L3."))
    return s.add(ev.RecorderStopped("the agent finished"))


def write(path: Path, story: Story) -> Path:
    """The story as a real session file at ``path``."""
    with (
        EventLog.create(path) as log,
        mock.patch("time.monotonic_ns") as mono,
        mock.patch("sessions.log.boot_id", return_value="a boot before this one"),
    ):
        for new in story.new:
            # The monotonic clock goes with the story's, not with the speed of this disk.
            mono.return_value = (new.ts_us or 0) * 1000
            log.append(new)
    return path
