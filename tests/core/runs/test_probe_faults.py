"""A probe that fails, in whatever way, leaves its host as it is: output, exit code and weights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.runs import probe_setup
from core.runs.records import FinishRecord, Malformed, ProbeErrorRecord, Record
from core.runs.tail import RecordTail
from tests.core.runs import faulty
from tests.core.runs.interpreters import PYTHONS, label, need
from tests.core.runs.probe.looping import without_calls

KINDS = (
    "RuntimeError",
    "KeyError",
    "RecursionError",
    "MemoryError",
    "OSError",
    "SystemExit",
    "KeyboardInterrupt",
    "Strange",
    "depth",
)
# Reached by other tests: with torch_xla, with torch_tpu, by a beat that is due ...
ELSEWHERE = {
    *(
        "xla backend",
        "hook sync",
        "hook scan",
        "hook xla reduce",
        "M before",
        "M after",
        "synchronise",
    ),
    *("tpu backend", "devices", "read by the program"),
    *("hook reads", "late record", "finder", "import hook", "streams", "hook safetensors"),
    # of parity mode: several ranks, half precision, transformers, torch.compile, CUDA on the CPU
    *("end together", "half-precision input", "checkpoint's dtype", "compile after"),
    *("device of a tensor", "first batches", "seed xla after"),
}
# What older releases of torch have no function for.
NEWER = {"N after", "F before", "scale after", "unscale after"}
NEWER |= {"scaler step before", "scaler step after"}


class Case(NamedTuple):
    """One run of the program: what it said, how it ended, what the probe logged and recorded."""

    out: str
    err: str
    status: int
    log: list[str]
    records: list[Record]


def run_cases(
    python: str, where: Path, cases: Sequence[dict[str, Any]], *, mode: str | None
) -> list[Case]:
    """The program under each case, in a probe that the case makes fail; None: without one.

    In the mode ``parity`` it also writes its tensors; in ``replay`` it is compared with those that
    lie in ``where``'s sibling ``reference``.
    """
    where.mkdir()
    (where / "program.py").write_text(faulty.PROGRAM)
    (where / "driver.py").write_text(faulty.DRIVER)
    (where / "cases.json").write_text(json.dumps(cases))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PILOTAGE"))}
    env |= faulty.install(where, mode="light" if mode in (None, "light") else "parity")
    if mode == "parity":
        env["CAPTURE"] = "1"
    elif mode == "replay":
        env["PILOTAGE_PROBE_REFERENCE"] = str(where.parent / "reference")
    env |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    env.pop("PILOTAGE_PROBE_OUT")  # each case starts the probe by itself
    # Under a name without its directory, which tracebacks would show.
    driver = "exec(compile(open('driver.py').read(), 'driver.py', 'exec'))"
    command = [python, "-c", driver, str(where / "cases"), "watched" if mode else "alone"]
    (where / "cases").mkdir()
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    codes = json.loads((where / "cases" / "codes.json").read_text())
    found = []
    for index, status in enumerate(codes):
        place = where / "cases" / str(index)
        log = place / "log"
        records = RecordTail(place / "records").finish()
        found.append(
            Case(
                (place / "1").read_text(),
                (place / "2").read_text(),
                status,
                log.read_text().splitlines() if log.exists() else [],
                [r for r in records if not isinstance(r, Malformed)],
            )
        )
    return found


@pytest.fixture(scope="module", params=PYTHONS, ids=label)
def python(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def alone(python: str, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The program without a probe."""
    (case,) = run_cases(python, tmp_path_factory.mktemp("alone") / "run", [{}], mode=None)
    assert os.WEXITSTATUS(case.status) == 1
    assert case.err.rstrip().splitlines()[-1].startswith("RuntimeError: mat1 and mat2 shapes")
    assert "child 5" in case.out
    return case


@pytest.fixture(scope="module")
def reference(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tensors that the healthy parity run writes are kept."""
    return tmp_path_factory.mktemp("kept") / "reference"


@pytest.fixture(scope="module")
def healthy(python: str, reference: Path) -> dict[str, Case]:
    """The program under a probe that does not fail, by mode."""
    found = {}
    base = reference.parent
    for mode in MODES:
        (found[mode],) = run_cases(python, base / mode, [{}], mode=mode)
        if mode == "parity":
            shutil.copytree(base / mode / "cases" / "0" / "capture", reference)
    return found


MODES = ("light", "parity", "replay")


def same(case: Case, alone: Case, mode: str = "light") -> None:
    if mode != "light":  # a hook of modules, for one forward pass: torch goes another way there
        case, alone = (x._replace(err="\n".join(without_calls(x.err))) for x in (case, alone))
    assert (case.out, case.err, case.status) == (alone.out, alone.err, alone.status)


def fault(where: str, kind: str) -> dict[str, Any]:
    return {"env": {"FAULT_AT": where, "FAULT_KIND": kind}}


def test_the_program_reaches_every_hook(python: str, healthy: dict[str, Case], alone: Case) -> None:
    for mode in MODES:
        same(healthy[mode], alone, mode)
    for case in healthy.values():
        ends = [r for r in case.records if isinstance(r, FinishRecord)]
        errors = [r.error for r in case.records if isinstance(r, ProbeErrorRecord)]
        assert (errors, [e.errors for e in ends]) == ([], [0])
    reached = {name for case in healthy.values() for name in case.log}
    missing = faulty.names() - reached - ELSEWHERE
    assert "; ".join(sorted(missing - (NEWER if python != sys.executable else set()))) == ""


@pytest.mark.parametrize("mode", MODES)
def test_any_hook_may_fail(
    python: str, tmp_path: Path, alone: Case, healthy: dict[str, Case], reference: Path, mode: str
) -> None:
    hooks = healthy[mode].log
    # Each hook with an ordinary error, with SystemExit, and with one of the others in turn; all
    # hooks at once with every kind.
    todo = [(where, kind) for where in hooks for kind in ("RuntimeError", "SystemExit")]
    todo += [(where, KINDS[index % len(KINDS)]) for index, where in enumerate(hooks)]
    todo += [("*", kind) for kind in KINDS]
    if mode == "replay":  # the hooks that are none of the mode before
        hooks = [where for where in hooks if where not in healthy["parity"].log]
        shutil.copytree(reference, tmp_path / "reference")
    if mode != "light":
        todo = [(where, "KeyError") for where in hooks]
    cases = run_cases(python, tmp_path / "run", [fault(*f) for f in todo], mode=mode)
    for (where, _kind), case in zip(todo, cases, strict=True):
        assert any(line.startswith("failed: ") for line in case.log), where
        same(case, alone, mode)
        said = {r.where for r in case.records if isinstance(r, ProbeErrorRecord)}
        ended = {r.errors for r in case.records if isinstance(r, FinishRecord)}
        assert said or ended or where in ("start", "finish", "*"), where


@pytest.mark.parametrize("signal", ["SIGINT", "SIGALRM", "SIGTERM"])
def test_what_a_signal_of_the_hosts_raises_passes(python: str, tmp_path: Path, signal: str) -> None:
    (tmp_path / "train.py").write_text(
        """
import signal, sys, torch

class Bound:
    def late(self, number, frame):
        raise TimeoutError("late")

signal.signal(signal.SIGALRM, Bound().late)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
model = torch.nn.Linear(2, 1)
try:
    model(torch.ones(1, 2)).sum().backward()
    print("went on")
except (KeyboardInterrupt, TimeoutError, SystemExit) as error:
    import traceback
    print(type(error).__name__, error)
    print([f.name for f in traceback.extract_tb(error.__traceback__)][:1])
    print(any("pilotage_probe" in f.filename for f in traceback.extract_tb(error.__traceback__)[:1]))
"""
    )
    env = {**os.environ, **faulty.install(tmp_path)}
    env |= {"FAULT_AT": "B before", "FAULT_KIND": signal}
    done = subprocess.run(
        [python, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    expected = {
        "SIGINT": "KeyboardInterrupt ",
        "SIGALRM": "TimeoutError late",
        "SIGTERM": "SystemExit 7",
    }
    assert done.stdout.splitlines() == [expected[signal], "['<module>']", "False"]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("where", ["finder", "import hook"])
@pytest.mark.parametrize("kind", ["RuntimeError", "SystemExit"])
def test_the_import_of_torch_is_not_disturbed(
    python: str, tmp_path: Path, where: str, kind: str
) -> None:
    env = {**os.environ, **faulty.install(tmp_path), "FAULT_AT": where, "FAULT_KIND": kind}
    done = subprocess.run(
        [python, "-c", "import torch; print(torch.ones(2).sum().item())"],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


PLACES = ("no directory", "full", "deleted", "closed", "limited", "patched", "import")


def test_records_that_can_not_be_written_cost_nothing(
    python: str, tmp_path: Path, alone: Case
) -> None:
    todo = [{"place": place} for place in PLACES]
    bare = run_cases(python, tmp_path / "bare", todo, mode=None)
    seen = run_cases(python, tmp_path / "seen", todo, mode="light")
    for place, case, other in zip(PLACES, seen, bare, strict=True):
        assert (case.out, case.err, case.status) == (other.out, other.err, other.status), place
        assert place == "patched" or case.out == alone.out, place  # it can't open a file there
        steps = [r for r in case.records if r.K == "step"]
        if place in ("closed", "patched", "import"):
            assert len(steps) > 5, place
        elif place != "limited":
            assert steps == [], place


@pytest.mark.parametrize("margin", [4, 8, 16, 32])
def test_a_host_deep_in_recursion_goes_on(python: str, tmp_path: Path, margin: int) -> None:
    (tmp_path / "deep.py").write_text(
        """
import sys, torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return model.weight.tolist()

def below(depth, function):
    return function() if depth == 0 else below(depth - 1, function)

def deepest():
    low, high = 0, sys.getrecursionlimit()
    while low < high:
        middle = (low + high + 1) // 2
        try:
            below(middle, plain)
            low = middle
        except RecursionError:
            high = middle - 1
    return low

def plain():  # as deep as a step goes without a probe
    return nested(int(sys.argv[1]))

def nested(depth):
    return depth and nested(depth - 1)

step()
print(below(deepest() - int(sys.argv[2]), step))
"""
    )
    outputs = []
    for env in ({}, probe_setup.install(tmp_path)):
        # A step of torch itself goes about 25 frames deep.
        done = subprocess.run(
            [python, "deep.py", "30", str(margin)],
            env={**os.environ, **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        outputs.append((done.returncode, done.stdout, done.stderr[-500:]))
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 0, outputs


XLA = """
import torch, torch_xla, torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = torch.device("xla:0")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4, device=device)).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    xm.reduce_gradients(optimizer)
    optimizer.step()
    xm.mark_step()
    print(step, loss.item(), flush=True)
print({name: value.cpu().numpy().tobytes().hex() for name, value in model.state_dict().items()})
import torch_xla.debug.metrics as met
print(met.counter_value("UncachedCompile"), met.metric_data("TransferFromDeviceTime")[0])
raise KeyError("the end")
"""


@pytest.mark.xla
def test_all_hooks_may_fail_at_once_on_xla(python: str, tmp_path: Path) -> None:
    need(python, "torch_xla")
    (tmp_path / "train.py").write_text(XLA)
    outputs, logs = [], []
    for index, env in enumerate([{}, {"FAULT_AT": "*", "FAULT_KIND": "KeyError"}]):
        log = tmp_path / f"log{index}"
        given = {
            **env,
            **(faulty.install(tmp_path / "probe") if env else {}),
            "FAULT_LOG": str(log),
        }
        done = subprocess.run(
            [python, "-W", "ignore", "train.py"],
            cwd=tmp_path,
            env={
                **os.environ,
                **given,
                "PJRT_DEVICE": "CPU",
                "OMP_NUM_THREADS": "1",
                "XLA_FLAGS": "--xla_backend_optimization_level=0",
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        err = [line for line in done.stderr.splitlines() if "cpu_client.cc" not in line]
        outputs.append((done.returncode, done.stdout, err))
        logs.append(log.read_text() if log.exists() else "")
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 1
    assert "failed: xla backend\n" in logs[1]
