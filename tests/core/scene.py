"""Builds sessions event by event, with the records a real probe writes, for tests of the rules."""

from __future__ import annotations

import copy
from typing import Any

from core import events as ev
from core.body import JSON, Body
from core.events import Event
from core.state import SessionState, fold

COMMAND = "python -m inkformer.train --device xla"
CONFIG: JSON = {
    "project": {"title": "inkformer on xla-cpu"},
    "reference": {"command": "python -m inkformer.train --device cpu", "device": "cpu"},
    "target": {"kind": "xla-cpu", "chips": 1, "command": COMMAND},
    "metric": {
        "name": "test accuracy",
        "pattern": r"test accuracy: ([0-9.]+)",
        "higher_is_better": True,
        "points": 100,
    },
    "criteria": {"parity_steps": 4},
}
T0 = 1_790_000_000_000_000  # UTC microseconds
NAMES = ["embed.weight", "head.weight", "head.bias"]


class Scene:
    """A session under construction; ``state`` is its fold. Times advance by hand, in seconds."""

    def __init__(self, **config: Any) -> None:
        self.events: list[Event] = []
        self.now_us = 0
        self.boot = "boot-1"
        self.runs = 0
        self.tree = ""
        self.config = copy.deepcopy(CONFIG)
        for name, table in config.items():
            self.config[name] = {**self.config.get(name, {}), **table}
        self.add(ev.SessionOpened("s1", "a session", "/project", self.config))
        self.add(ev.RecorderStarted(100))

    def wait(self, seconds: float) -> Scene:
        self.now_us += round(seconds * 1e6)
        return self

    def add(
        self,
        body: Body,
        run_id: str = "",
        tree: str = "",
        ts_us: int | None = None,
        source: str = "test",
    ) -> Event:
        event = Event(
            seq=len(self.events) + 1,
            event_id=f"e{len(self.events) + 1}",
            ts_us=T0 + self.now_us if ts_us is None else ts_us,
            mono_us=5_000_000 + self.now_us,
            boot_id=self.boot,
            source=source,
            body=body,
            run_id=run_id,
            tree=tree,
        )
        self.events.append(event)
        return event

    @property
    def state(self) -> SessionState:
        return fold(self.events)

    def snapshot(self, tree: str) -> Scene:
        self.tree = tree
        self.add(ev.TreeSnapshotted(tree, "c" + tree), tree=tree)
        return self

    def start(self, purpose: str = "attempt", of: str = "", **more: Any) -> str:
        self.runs += 1
        run_id = f"r{self.runs}"
        reference = purpose == "reference" or of.startswith("reference")
        table = self.config["reference" if reference else "target"]
        fields = {"command": table["command"], "chips": table.get("chips", 0), "of": of, **more}
        if purpose == "parity":
            fields.setdefault("precision", "own" if of.endswith("own") else "fp32")
        if of.startswith("target") or of == "reference repeat":
            fed = [e.run_id for e in self.events if _is_parity_of_reference(e.body)]
            fields.setdefault("against", fed[-1] if fed else "")
        tree = "base" if reference else self.tree
        self.add(ev.RunStarted(self.runs, purpose, **fields), run_id, tree)
        return run_id

    def end(
        self, run_id: str, exit_code: int | None = 0, seconds: float = 60.0, **more: Any
    ) -> str:
        self.wait(seconds)
        reason = more.pop("reason", "exited")
        self.add(ev.RunEnded(reason, exit_code, duration_s=seconds, **more), run_id, self.tree)
        return run_id

    def output(self, run_id: str, *lines: str, stream: str = "stdout") -> None:
        self.add(ev.RunOutput(stream, list(lines)), run_id)

    def records(self, run_id: str, steps: list[JSON], signals: list[JSON]) -> None:
        self.add(ev.RunSignalled(signals), run_id)
        self.add(ev.RunStepped(steps), run_id)

    def run(
        self,
        purpose: str = "attempt",
        of: str = "",
        *,
        steps: list[JSON] | None = None,
        signals: list[JSON] | None = None,
        lines: tuple[str, ...] = ("test accuracy: 0.9500 (950/1000)",),
        stderr: tuple[str, ...] = (),
        exit_code: int | None = 0,
        seconds: float = 60.0,
        **more: Any,
    ) -> str:
        """A whole run; without ``steps`` and ``signals`` those of a healthy one."""
        reference = purpose == "reference" or of.startswith("reference")
        parity = purpose == "parity"
        run_id = self.start(purpose, of)
        count = self.config["criteria"]["parity_steps"] if parity else 40
        if steps is None:
            steps = step_records(count, xla=not reference, parity=parity)
        if signals is None:
            signals = signal_records(len(steps), xla=not reference, parity=parity)
        self.records(run_id, steps, signals)
        if lines:
            self.output(run_id, *lines)
        if stderr:
            self.output(run_id, *stderr, stream="stderr")
        return self.end(run_id, exit_code, seconds, **more)

    def references(self) -> Scene:
        """The reference run and its parity run."""
        self.run("reference")
        self.run("parity", "reference", lines=())
        return self


def _is_parity_of_reference(body: Body) -> bool:
    return isinstance(body, ev.RunStarted) and body.of == "reference"


def healthy(tree: str = "t1", **config: Any) -> Scene:
    """A session whose one attempt on ``tree`` is a faithful migration."""
    scene = Scene(**config).references().snapshot(tree)
    scene.run("attempt", seconds=50.0)
    scene.run("parity", "target", lines=())
    return scene


def step_records(count: int, *, xla: bool, parity: bool = False) -> list[JSON]:
    """Steps of a run that learns. What a backend or mode does not know is left out, as stored."""
    records = []
    for n in range(1, count + 1):
        loss = 2.3 * 0.97 ** (n - 1)
        record: JSON = {
            "k": "step",
            "pid": 7,
            "tid": 7,
            "n": n,
            "optimizer": "AdamW",
            "loss": loss * (1 + 1e-7 * xla),
            "loss_source": "backward",
            "backwards": 1,
            "grad_norm": 4.0 * loss,
            "grad_norm_source": "clip",
            "clips": [
                {
                    "fn": "clip_grad_norm_",
                    "max_norm": 1.0,
                    "norm_type": 2.0,
                    "total_norm": 4.0 * loss,
                }
            ],
            "signature": "B C(1) S M L Z" if xla else "B C(1) S L Z",
            "groups": [
                {"lr": 1e-3 * n / 10, "weight_decay": 0.05},
                {"lr": 1e-3 * n / 10, "weight_decay": 0.0},
            ],
            "dt": 0.02,
            "samples": 32,
            "rss_mb": 900.0,
        }
        if parity or n in (1, 2, 5, 10, 20):
            record |= {"params_changed": True, "update_norm": 0.01 * n, "param_norm": 30.0}
        if parity:
            record |= {"grad_norm_after": 1.0, "grad_norms": [0.8, 0.5, 0.33]}
            record |= {"update_norms": [0.008 * n, 0.005 * n, 0.003 * n]}
        if xla:
            record |= {
                "compiles": 1 if n <= 2 else 0,
                "compile_s": 0.5 if n <= 2 else 0.0,
                "executes": 1,
                "transfers": 1 if n % 10 == 0 else 0,
                "fallbacks": {},
            }
        records.append(record)
    return records


def signal_records(steps: int, *, xla: bool, parity: bool = False) -> list[JSON]:
    """The other records of such a run."""
    who: JSON = {"pid": 7, "tid": 7}
    device = "xla:0" if xla else "cpu"
    model: JSON = {
        "k": "model",
        **who,
        "root": "Inkformer",
        "parameters": 1500,
        "tensors": 3,
        "trainable": 1500,
        "tied": [["embed.weight", "decoder.weight"]],
        "dtypes": {"float32": 1500},
        "devices": {device: 1500},
        "names": list(NAMES),
    }
    if parity:
        model["norms"] = [20.0, 10.0, 0.5]
    groups = [
        {"lr": 1e-4, "weight_decay": w, "betas": [0.9, 0.999], "eps": 1e-8, "n_elements": n}
        for w, n in ((0.05, 1000), (0.0, 500))
    ]
    finish: JSON = {
        "k": "finish",
        **who,
        "reason": "parity steps reached" if parity else "exit",
        "steps": steps,
        "eval_samples": 2880,
        "eval_last": 360,
    }
    records: list[JSON] = [
        {"k": "hello", **who, "version": "1"},
        model,
        {
            "k": "optimizer",
            **who,
            "cls": "AdamW",
            "groups": groups,
            "devices": {device: 1500},
            "tensors": 3,
            "orphaned": 0,
        },
    ]
    if xla:
        finish |= {"compiles": 3, "compile_s": 1.5, "executes": steps, "fallbacks": {}}
        records.append(
            {"k": "xla", **who, "version": "2.9.0", "pjrt_device": "CPU", "devices": ["CPU:0"]}
        )
    if parity:
        records.append({"k": "precision", **who, "asked": "fp32", "requests": [], "env": {}})
    if parity and xla:
        records += replay_records(steps)
    return [*records, finish]


def replay_records(steps: int) -> list[JSON]:
    """What a parity run adds that was given the reference's tensors: all alike but for rounding."""
    who: JSON = {"pid": 7, "tid": 7}
    calls = [("embed", "Embedding"), ("blocks.0.up", "Linear"), ("blocks.0", "Block")]
    calls += [("head", "Linear"), ("", "Inkformer")]
    modules = [
        {"i": i, "name": name, "type": kind, "error": 3e-7, "isolated": 2e-7}
        for i, (name, kind) in enumerate(calls)
    ]
    start: JSON = {"k": "start", **who, "matched": 3, "loaded": True, "natural_error": 0.0}
    batches = [
        {"k": "batch", **who, "n": n, "source": "loader", "state": "same", "fed": False}
        for n in range(steps)
    ]
    forward = {"k": "forward", **who, "modules": modules, "compared": 5, "uncompared": 0}
    gradients = {"k": "gradients", **who, "n": 1, "errors": dict.fromkeys(NAMES, 4e-7)}
    return [start, *batches, forward, gradients]


def signal(records: list[JSON], k: str) -> JSON:
    """The record of one kind, to change in place."""
    return next(r for r in records if r["k"] == k)
