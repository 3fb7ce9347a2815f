"""The probe inside real torch programs, against values worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.runs import probe_setup
from core.runs.records import (
    Clip,
    FinishRecord,
    Hello,
    ModelRecord,
    MovedRecord,
    OptimizerRecord,
    ProbeErrorRecord,
    TorchRecord,
)

# y = w.x with w = (1, 2), x = (3, 4): loss 11, gradient (3, 4) of norm 5, clipped to (0.6, 0.8).
# With SGD and lr 0.1 the update has norm 0.1, and the loss falls by 0.1 * 5; lr halves each step.
TRAIN = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1, bias=False)
with torch.no_grad():
    model.weight.copy_(torch.tensor([[1.0, 2.0]]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
x = torch.tensor([[3.0, 4.0]])
for step in range(4):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print("loss", loss.item(), "norm", norm.item())
model.eval()
with torch.no_grad():
    model(torch.ones(5, 2)); model(torch.ones(2, 2))
    print("weights", model.weight.tolist(), torch.rand(1).item())
"""


@pytest.fixture(scope="module")
def plain(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The training program without a probe."""
    return run(tmp_path_factory.mktemp("plain"), TRAIN, mode=None)


# --- what is measured ------------------------------------------------------------------------


def test_a_light_run_is_measured_and_not_changed(run: Any, tmp_path: Path, plain: Any) -> None:
    seen = run(tmp_path, TRAIN)
    assert (seen.code, seen.out, seen.err) == (plain.code, plain.out, plain.err)
    (hello,), (torch,) = seen.of(Hello), seen.of(TorchRecord)
    assert hello.argv[-1].endswith("program.py")
    assert torch.version
    assert torch.pid == hello.pid

    (model,) = seen.of(ModelRecord)
    assert (model.root, model.parameters, model.tensors, model.trainable) == ("Linear", 2, 1, 2)
    assert (model.tied, model.names, model.shapes) == ((), ("weight",), ((1, 2),))
    assert (model.dtypes, model.devices, model.norms) == ({"float32": 2}, {"cpu": 2}, None)
    (optimizer,) = seen.of(OptimizerRecord)
    assert (optimizer.cls, optimizer.orphaned, optimizer.devices) == ("SGD", 0, {"cpu": 2})
    assert optimizer.groups[0]["n_elements"] == 2

    assert [s.n for s in seen.steps] == [1, 2, 3, 4]
    assert [s.loss for s in seen.steps] == pytest.approx([11, 10.5, 10.25, 10.125])
    assert [s.groups[0]["lr"] for s in seen.steps] == pytest.approx([0.1, 0.05, 0.025, 0.0125])
    assert [s.signature for s in seen.steps] == ["B C(1) S L Z"] * 3 + ["B C(1) S L"]
    assert [s.samples for s in seen.steps] == [1, 1, 1, 1]
    # Parameters are read at steps 1, 2, 5, 10, 20, ... only.
    assert [s.params_changed for s in seen.steps] == [True, True, None, None]
    first = seen.steps[0]
    assert first.grad_norm == pytest.approx(5)
    assert first.grad_norm_source == "clip"
    assert first.grad_norm_after == pytest.approx(1, abs=1e-5)
    assert first.clips == (Clip("clip_grad_norm_", 1.0, 2.0, 5.0, tensors=1),)
    assert first.update_norm == pytest.approx(0.1, abs=1e-5)
    # w becomes (0.94, 1.92)
    assert first.param_norm == pytest.approx((0.94**2 + 1.92**2) ** 0.5, abs=1e-5)
    assert first.compiles is None  # the backend has no such counter: not zero
    assert first.rss_mb is not None
    assert first.rss_mb > 50

    end = seen.finish
    assert (end.reason, end.steps, end.eval_samples, end.eval_last) == ("exit", 4, 7, 7)
    assert (end.errors, end.dropped, end.own_compiles) == (0, 0, 0)


REST = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.drop = nn.Dropout(0.5)
        with torch.no_grad():
            self.a.weight.copy_(torch.eye(2))
    def forward(self, x):
        x = F.dropout(self.drop(self.b(self.a(x))), 0.5, self.training)
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.9)

model = Tied()
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(6):
    for part in range(2):  # gradient accumulation
        loss = model(torch.ones(1, 3, 2)).mean()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_(model.parameters(), 100.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print("step", step)
print("not reached")
"""


def test_a_parity_run_reads_everything_and_ends_after_its_steps(run: Any, tmp_path: Path) -> None:
    seen = run(tmp_path, REST, mode="parity", steps=2)
    assert seen.code == 0
    assert seen.out == "step 0\nstep 1\n"
    assert (seen.finish.reason, seen.finish.steps, seen.finish.errors) == (
        "parity steps reached",
        2,
        0,
    )
    (model,) = seen.of(ModelRecord)
    assert (model.parameters, model.tied) == (4, (("a.weight", "b.weight"),))
    assert model.norms == pytest.approx((2**0.5,))
    assert model.dropout == "off"

    first, second = seen.steps
    # W = I, dropout off: every output is 1, so each of the two losses is 1 (and not 4).
    assert first.loss == pytest.approx(2)
    assert (first.loss_source, first.backwards) == ("backward, unscaled", 2)
    assert first.signature == "B B CV(100) S Z"
    assert first.clips == (Clip("clip_grad_value_", 100.0, None, None, tensors=1),)
    # Of two equal passes of mean(W W x) at W = I: each element of the gradient is 2 * 2 * 1/2.
    assert first.grad_norm == pytest.approx(4)
    assert first.grad_norm_source == "computed"
    assert first.grad_norms == pytest.approx((4,))
    assert first.update_norm == pytest.approx(0.25 * 4)
    assert first.params_changed is True
    # W has become ((0.5, -0.5), (-0.5, 0.5)), which maps (1, 1) to nothing.
    assert second.loss == pytest.approx(0, abs=1e-6)


SEVERAL = """
import gc, os, sys, threading, torch
from torch import nn

def train(classes, steps, optimizer=torch.optim.SGD, parameters=None):
    modules = [c() for c in classes]
    if parameters is None:
        parameters = [p for m in modules for p in m.parameters()]
    o = optimizer(parameters, lr=0.1)
    for _ in range(steps):
        o.zero_grad()
        x = torch.ones(3, 2)
        for m in modules:
            x = m(x)
        nn.MSELoss()(x, torch.zeros_like(x)).backward()
        o.step()
    return modules

class Encoder(nn.Linear):
    def __init__(self): super().__init__(2, 4)
class Decoder(nn.Linear):
    def __init__(self): super().__init__(4, 2)
class Small(nn.Linear):
    def __init__(self): super().__init__(2, 2)

kept = train([Encoder, Decoder], 2)              # two modules, one model
kept += train([Small], 1)                        # another model, while the first still lives
train([Small], 1, parameters=[nn.Parameter(torch.ones(5))])  # trains nothing of the model
before = [p.detach().clone() for m in kept for p in m.parameters()]
os.closerange(3, 200)                            # as daemons do
stolen = os.open("stolen", os.O_CREAT | os.O_WRONLY)
while stolen < 40:
    stolen = os.dup(stolen)
train([Small], 1)
both = [threading.Thread(target=train, args=([Small], 30)) for _ in range(2)]
[t.start() for t in both]; [t.join() for t in both]
if os.fork() == 0:
    train([Small], 2)
    sys.exit(0)
os.wait()
"""


def test_several_models_threads_and_processes_are_told_apart(run: Any, tmp_path: Path) -> None:
    seen = run(tmp_path, SEVERAL)
    assert seen.code == 0, seen.err
    main = seen.of(Hello)[0].pid
    models = [m for m in seen.of(ModelRecord) if m.tid == main]
    assert [m.roots for m in models] == [("Encoder", "Decoder"), ("Small",), ("Small",), ("Small",)]
    assert models[0].parameters == 2 * 4 + 4 + 4 * 2 + 2
    assert models[0].names == ("0.weight", "0.bias", "1.weight", "1.bias")
    optimizers = [o for o in seen.of(OptimizerRecord) if o.tid == main]
    assert [(o.tensors, o.orphaned) for o in optimizers] == [(4, 0), (2, 0), (1, 1), (2, 0)]
    steps = [s for s in seen.steps if s.tid == main]
    assert [s.n for s in steps] == [1, 2, 3, 4, 5]
    assert (steps[0].params_changed, steps[4].params_changed) == (True, True)
    # The host had closed the probe's file and given its number to one of its own.
    assert (tmp_path / "stolen").read_bytes() == b""

    threads = {s.tid for s in seen.steps if s.pid == main} - {main}
    assert len(threads) == 2
    for tid in threads:
        mine = [s for s in seen.steps if s.tid == tid]
        assert [s.n for s in mine] == list(range(1, 31))
        assert {s.signature for s in mine[:-1]} == {"B S Z"}

    (child,) = {s.pid for s in seen.steps} - {main}
    assert [s.n for s in seen.steps if s.pid == child] == [1, 2]
    ends = {e.pid: e.steps for e in seen.of(FinishRecord)}
    assert ends == {main: 65, child: 2}


def test_a_model_inside_a_compiled_function_raises_no_false_alarm(run: Any, tmp_path: Path) -> None:
    program = """
import torch
import torch._dynamo.utils as dynamo
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.compile(backend="eager", fullgraph=True)
def loss_of(model, x):
    return model(x).sum()

for _ in range(3):
    optimizer.zero_grad()
    loss_of(model, torch.ones(4, 2)).backward()
    optimizer.step()
print(dict(dynamo.counters["stats"]), dict(dynamo.counters["graph_break"]))
"""
    bare = run(tmp_path, program, mode=None)
    seen = run(tmp_path, program)
    assert (seen.code, seen.out) == (0, bare.out)
    (optimizer,) = seen.of(OptimizerRecord)
    assert optimizer.orphaned is None  # no module was seen: unknown, not wrong
    assert [s.params_changed for s in seen.steps] == [True, True, None]


# --- what is never disturbed -----------------------------------------------------------------

FAULTS = {
    "every hook raises": (
        "pilotage_probe/guard.py",
        "return function(*args, **kwargs)",
        "raise RuntimeError(where)",
    ),
    "no hook can be installed": (
        "pilotage_probe/wrapping.py",
        "original = getattr(owner, name, None)",
        "raise RuntimeError(name)",
    ),
    "the backend fails": (
        "pilotage_probe/backends.py",
        "import torch\n",
        "raise RuntimeError('read')\n",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_probe_leaves_the_program_as_it_was(
    run: Any, tmp_path: Path, plain: Any, fault: str
) -> None:
    seen = run(tmp_path, TRAIN, break_probe=FAULTS[fault])
    assert (seen.code, seen.out, seen.err) == (plain.code, plain.out, plain.err)
    assert seen.finish.errors
    assert len(seen.of(ProbeErrorRecord)) == min(seen.finish.errors, 20)


@pytest.mark.parametrize(
    "fault",
    [
        ("pilotage_probe/__init__.py", "def start()", "def def"),
        ("pilotage_probe/writer.py", "write_bytes(self.fd", "write_bytes(-1"),
    ],
)
def test_a_probe_that_can_not_even_start_is_not_noticed(
    run: Any, tmp_path: Path, fault: tuple[str, str, str]
) -> None:
    seen = run(tmp_path, "print('ok'); raise SystemExit(7)", break_probe=fault)
    assert (seen.code, seen.out, seen.err) == (7, "ok\n", "")
    assert seen.records == []


@pytest.mark.parametrize("place", ["/proc/nonexistent", "/dev/null", "/dev/full/x", ""])
def test_records_that_can_not_be_written_cost_the_program_nothing(
    run: Any, tmp_path: Path, place: str
) -> None:
    env = {**os.environ, **probe_setup.install(tmp_path), "PILOTAGE_PROBE_OUT": place}
    done = subprocess.run(
        [sys.executable, "-c", "print('ok'); raise SystemExit(7)"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "ok\n", "")


def test_an_exception_of_the_program_is_its_own(run: Any, tmp_path: Path) -> None:
    program = TRAIN.replace("scheduler.step()", "raise KeyError('mine')")
    seen = run(tmp_path, program)
    assert seen.code == 1
    assert seen.err.rstrip().endswith("KeyError: 'mine'")
    assert "pilotage" not in seen.err
    assert (seen.finish.reason, seen.finish.steps) == ("exception: KeyError", 1)


def test_records_survive_kill_9(run: Any, tmp_path: Path) -> None:
    program = TRAIN.replace(
        "scheduler.step()", "if step == 2: import os; os.kill(os.getpid(), 9)\n    scheduler.step()"
    )
    seen = run(tmp_path, program)
    assert seen.code == -9
    assert [s.loss for s in seen.steps] == pytest.approx([11, 10.5])  # the third was under way
    assert seen.of(FinishRecord) == []


@pytest.mark.parametrize("body", ["print('theirs ran')", "import nonexistent_thing", "1 / 0"])
def test_the_shadowed_sitecustomize_runs_as_it_would_have(
    run: Any, tmp_path: Path, body: str
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text(body + "\nMARK = 1\n")
    program = "import sys; print(hasattr(sys.modules.get('sitecustomize'), 'MARK'))"
    bare = run(tmp_path, program, mode=None, env={"PYTHONPATH": str(theirs)})
    seen = run(tmp_path, program, env={"PYTHONPATH": str(theirs)})
    assert (seen.code, seen.out, seen.err) == (bare.code, bare.out, bare.err)
    assert len(seen.of(Hello)) == 1
    if "print" in body:
        assert seen.out == "theirs ran\nTrue\n"


def test_a_move_that_replaces_parameters_is_reported(run: Any, tmp_path: Path) -> None:
    program = """
import torch
torch.__future__.set_overwrite_module_params_on_conversion(True)  # what XLA devices always do
model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
model["b"].weight = model["a"].weight
model.double()
"""
    seen = run(tmp_path, program)
    (moved,) = seen.of(MovedRecord)
    assert moved.root == "ModuleDict"
    assert moved.replaced == 2
    assert moved.ties_before == (("a.weight", "b.weight"),)
    assert moved.ties_after == ()
