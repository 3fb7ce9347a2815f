"""The probe under torch_xla: the silent failures show, and watching compiles nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.runs.records import MovedRecord, StepRecord, XlaRecord

pytestmark = pytest.mark.xla

# One process for all faults, since each start costs seconds. Steps are counted through:
#  1-6   healthy but for the ties that the move loses
#  7-10  the optimizer was made before the move (10 is a step at which parameters are read)
# 11-14  the shape of the input grows at each step
# 15-17  no clip
# 18-20  no end of the step: no sync
# 21-23  a read at each step: of something else than the loss, of a detached loss, of a copy
PROGRAM = """
import gc, json, sys
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(0)
device = torch_xla.device()

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(8, 4)
        self.out = torch.nn.Linear(4, 8, bias=False)
        self.out.weight = self.embed.weight
    def forward(self, x):
        return self.out(self.embed(x).mean(1))

READS = [
    lambda loss: (loss * 2).item(),
    lambda loss: loss.detach().tolist(),
    lambda loss: loss.detach().cpu(),
]

def train(steps, early=False, grow=False, clip=True, sync=torch_xla.sync, read=False):
    model = Tied()
    if early:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = model.to(device)
    if not early:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = (torch.arange(12 + 4 * step * grow).reshape(4, -1) % 8).to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), torch.zeros(4, dtype=torch.long, device=device))
        loss.backward()
        if clip:
            clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if sync is not None:
            sync()
        if read:
            READS[step](loss)
    del model, optimizer
    gc.collect()
    return loss.item()

losses = [train(6, sync=xm.mark_step)]
if len(sys.argv) == 1:
    losses += [
        train(4, early=True),
        train(4, grow=True),
        train(3, clip=False),
        train(3, sync=None),
        train(3, read=True),
    ]
print(json.dumps({"losses": losses, "compiles": met.counter_value("UncachedCompile")}))
"""

ENV = {"PJRT_DEVICE": "CPU"}


@pytest.fixture(scope="module")
def plain(run: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program says of itself without a probe."""
    seen = run(tmp_path_factory.mktemp("plain"), PROGRAM, mode=None, env=ENV)
    assert seen.code == 0, seen.err
    found: dict[str, Any] = json.loads(seen.out)
    return found


@pytest.fixture(scope="module")
def light(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program in light mode."""
    seen = run(tmp_path_factory.mktemp("light"), PROGRAM, env=ENV)
    assert seen.code == 0, seen.err
    return seen


@pytest.fixture(scope="module")
def sparse(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Its healthy steps in light mode, with reads by the probe itself."""
    env = {**ENV, "PILOTAGE_PROBE_READS": "sparse"}
    seen = run(tmp_path_factory.mktemp("sparse"), PROGRAM, "healthy", env=env)
    assert seen.code == 0, seen.err
    return seen


def part(seen: Any, first: int, last: int) -> list[StepRecord]:
    steps = {s.n: s for s in seen.steps}
    return [steps[n] for n in range(first, last + 1)]


def test_light_mode_changes_neither_values_nor_compiles(plain: dict[str, Any], light: Any) -> None:
    assert json.loads(light.out) == plain
    assert light.finish.compiles == plain["compiles"]
    assert (light.finish.own_compiles, light.finish.own_transfers) == (0, 0)
    assert light.finish.errors == 0


def test_versions_and_devices(light: Any) -> None:
    first, *_, last = light.of(XlaRecord)
    assert first.version
    assert (first.pjrt_device, first.devices) == ("CPU", None)
    assert last.devices == ("CPU:0",)


def test_healthy_steps(light: Any) -> None:
    steps = part(light, 1, 6)
    # The very last lacks the zero_grad of a next round of its own loop; the next model's has it.
    assert {s.signature for s in steps[:-1]} == {"B C(0.1) S M Z"}
    assert [s.compiles for s in steps[2:]] == [0, 0, 0, 0]
    assert sum(s.compiles or 0 for s in steps) >= 1
    assert [s.params_changed for s in steps] == [True, True, None, None, True, None]
    assert [s.transfers for s in steps[:5]] == [0] * 5


def test_values_are_known_where_the_program_reads_them(light: Any, plain: dict[str, Any]) -> None:
    losses = {s.n: s.loss for s in light.steps if s.loss is not None}
    assert set(losses) == {6, 10, 14, 17, 20, 22, 23}
    ends = [losses[n] for n in (6, 10, 14, 17, 20, 23)]
    assert ends == plain["losses"]  # each call of train() returns its last loss
    assert losses[22] > losses[23] > 0
    assert all(s.grad_norm is None and s.update_norm is None for s in light.steps)


def test_sparse_reads_are_made_where_they_are_asked_for(sparse: Any, plain: dict[str, Any]) -> None:
    steps = sparse.steps
    assert all(s.loss is not None and s.loss > 0 for s in steps)
    assert all(s.grad_norm is not None and s.grad_norm > 0.1 for s in steps)
    assert [s.params_changed for s in steps] == [True, True, None, None, True, None]
    # SGD with lr 0.1 on a gradient clipped to 0.1
    assert [s.update_norm for s in steps if s.update_norm] == pytest.approx([0.01] * 3, rel=1e-3)
    assert [s.transfers for s in steps[:5]] == [0] * 5
    assert sparse.finish.own_transfers  # it did read, and says so
    assert (sparse.finish.own_compiles, sparse.finish.errors) == (0, 0)
    assert steps[5].loss == plain["losses"][0]


def test_lost_ties_show(light: Any) -> None:
    moved = light.of(MovedRecord)[0]
    assert moved.ties_before == (("embed.weight", "out.weight"),)
    assert moved.ties_after == ()
    assert moved.replaced == 2
    model = light.models[0]
    assert model.tied == ()
    assert model.parameters == 2 * 32
    assert model.devices == {"xla:0": 64}


def test_an_optimizer_made_before_the_move_shows(light: Any) -> None:
    assert [o.orphaned for o in light.optimizers] == [0, 1, 0, 0, 0, 0]
    assert light.optimizers[1].devices == {"cpu": 32}
    tenth = part(light, 10, 10)[0]
    assert (tenth.params_changed, tenth.update_norm) == (False, None)


def test_a_recompile_at_every_step_shows(light: Any) -> None:
    assert [s.compiles for s in part(light, 12, 14)] == [1, 1, 1]
    assert all((s.compile_s or 0) > 0 for s in part(light, 12, 14))


def test_a_missing_clip_and_a_missing_sync_show(light: Any) -> None:
    assert {s.signature for s in part(light, 15, 16)} == {"B S M Z"}
    assert all(not s.clips for s in part(light, 15, 17))
    assert {s.signature for s in part(light, 18, 19)} == {"B C(0.1) S Z"}
    assert [s.executes for s in part(light, 18, 19)] == [0, 0]


def test_reads_by_the_program_itself_are_counted_without_ours(light: Any) -> None:
    assert [s.transfers for s in part(light, 21, 22)] == [1, 1]


def test_parity_mode_reads_every_step_and_agrees_with_light(
    run: Any, tmp_path: Path, sparse: Any
) -> None:
    seen = run(tmp_path, PROGRAM, "healthy", mode="parity", steps=3, env=ENV)
    assert (seen.code, seen.out) == (0, "")
    assert (seen.finish.reason, seen.finish.errors) == ("parity steps reached", 0)
    assert seen.finish.own_compiles
    assert seen.models[0].norms is not None
    for step, same in zip(seen.steps, part(sparse, 1, 3), strict=True):
        assert step.signature == same.signature
        assert step.loss == pytest.approx(same.loss, rel=1e-6)
        assert step.grad_norm == pytest.approx(same.grad_norm, rel=1e-5)
        assert step.grad_norm_source == "computed"
        assert step.grad_norm_after == pytest.approx(0.1, rel=1e-4)
        assert step.update_norm == pytest.approx(0.01, rel=1e-3)
        assert step.grad_norms is not None
        assert len(step.grad_norms) == 2
