"""What the probe records of loaders, evaluations, saves and loads, in programs that really run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.runs.records import ProbeErrorRecord
from core.runs.records_data import DataRecord, LoadedRecord, SavedRecord

PROGRAM = (Path(__file__).parent / "programs" / "light_records.py").read_text()


@pytest.fixture(scope="module", params=["workers", "none"])
def seen(request: Any, run: Callable[..., Any], tmp_path_factory: Any) -> Any:
    """The program under the probe, with a loader that keeps its worker and without."""
    return run(tmp_path_factory.mktemp("light"), PROGRAM, request.param)


def data(seen: Any) -> list[DataRecord]:
    return sorted(seen.of(DataRecord), key=lambda r: r.iterator)


def test_the_probe_had_no_errors_and_only_the_program_speaks(seen: Any) -> None:
    assert (seen.code, seen.of(ProbeErrorRecord), seen.finish.errors) == (0, [], 0)
    assert seen.err == ""
    assert len({r.pid for r in seen.records}) == 1  # the worker says nothing


def test_each_pass_has_its_role_and_its_samples(seen: Any) -> None:
    told = [(r.role, r.loader, r.batches, r.samples, r.complete) for r in data(seen)]
    train, test = ("train", 2, 6, 22, True), ("eval", 3, 3, 22, True)
    assert told == [
        (None, 1, 5, 22, True),
        train,
        test,
        test,
        train,
        test,
        test,
        ("train", 2, 3, 12, False),
        (None, 4, 3, 6, True),
        (None, 5, 3, None, True),
        ("eval", 3, 1, 8, False),
    ]
    assert seen.finish.iterators == len(told)


def test_orders_of_shuffled_passes_differ_and_of_others_do_not(seen: Any) -> None:
    train = [r for r in data(seen) if r.role == "train"]
    assert len({r.first for r in train}) == len({r.first_ids for r in train}) == 3
    test = [r for r in data(seen) if r.role == "eval"]
    assert len({r.first for r in test}) == len({r.first_ids for r in test}) == 1
    assert {r.in_order for r in test} == {True}
    assert {(r.in_order, r.rows, r.sampler) for r in train} == {(False, 4, "RandomSampler")}
    assert data(seen)[-3].sampler == "ByLength"


def test_evaluations_in_training_mode_are_told_apart(seen: Any) -> None:
    finish = seen.finish
    assert (finish.eval_samples, finish.eval_train_mode, finish.collectives) == (4 * 22 + 8, 44, {})
    assert finish.eval_untrained == 0
    assert finish.functional_dropout is None  # of parity mode


def test_models_name_what_is_frozen_and_what_drops_out(seen: Any) -> None:
    assert {r.frozen for r in seen.models} == {("a.bias",)}
    assert all(r.dropouts == {"dropout 0.2": 1} for r in seen.models)


def test_saves_count_real_numbers_and_give_norms(seen: Any) -> None:
    whole, part, adapter = seen.of(SavedRecord)
    assert (part.path, part.format, part.elements) == ("part.safetensors", "safetensors", 8)
    assert (whole.path, whole.tensors, whole.elements, whole.n) == ("all.pt", 7, 48, 14)
    assert set(whole.norms) >= {"net.a.weight", "optimizer.state.0.momentum_buffer"}
    assert all(norm > 0 for norm in whole.norms.values())
    assert (adapter.path, adapter.norms) == ("adapter.pt", {"0": 0.0})


def test_loads_and_what_an_optimizer_starts_with(seen: Any) -> None:
    module, optimizer = seen.of(LoadedRecord)
    assert (module.what, module.cls, module.keys, module.missing) == ("module", "Net", 3, 1)
    assert (optimizer.what, optimizer.keys, optimizer.state_tensors) == ("optimizer", 3, 3)
    assert [r.state_tensors for r in seen.optimizers] == [0, 3]


def test_random_numbers_and_batches_are_the_program_s_own(
    seen: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    workers = "workers" if data(seen)[1].workers else "none"
    assert run(tmp_path, PROGRAM, workers, mode=None).out == seen.out


def test_parity_mode_counts_the_dropout_that_it_turns_off(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    seen = run(tmp_path, PROGRAM, mode="parity", steps=2)
    assert seen.finish.functional_dropout == {"dropout 0.1": 1, "dropout 0.2": 1}
    assert seen.models[0].dropouts == {"dropout 0.2": 1}
    assert seen.of(ProbeErrorRecord) == []


RANKS = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def work(rank, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(21, 3))
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(2):
        sampler = DistributedSampler(data, 2, 0 if "same" in sys.argv else rank)
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, 4, sampler=sampler):
            loss = net(x).sum()
            optimizer.zero_grad(); loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
            optimizer.step()
            dist.all_reduce(loss.detach())  # for the log
        net.eval()
        with torch.no_grad():
            right = sum(net(x).sum() for (x,) in DataLoader(data, 4, sampler=sampler))
        dist.all_reduce(right)
        found = [None, None]
        dist.all_gather_object(found, rank)
        net.train()

if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), 2, start_method=sys.argv[2])
"""


@pytest.mark.parametrize(("method", "word"), [("fork", "own"), ("spawn", "same")])
def test_ranks_count_the_collectives_of_their_evaluations(
    run: Callable[..., Any], tmp_path: Path, method: str, word: str
) -> None:
    seen = run(tmp_path, RANKS, str(tmp_path / "meet"), method, word)
    assert (seen.code, seen.of(ProbeErrorRecord)) == (0, [])
    finishes = [r for r in seen.records if type(r).__name__ == "FinishRecord" and r.steps]
    assert [r.collectives for r in finishes] == [{"all_reduce": 2, "all_gather_object": 2}] * 2
    by_rank: dict[int, list[DataRecord]] = {}
    for record in data(seen):
        by_rank.setdefault(record.rank, []).append(record)
    assert [[(r.role, r.samples) for r in rows] for rows in by_rank.values()] == [
        [("train", 11), ("eval", 11)] * 2
    ] * 2
    first = [[r.first for r in rows] for rows in by_rank.values()]
    assert (first[0] == first[1]) == (word == "same")


XLA = """
import torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch_xla.device()
data = TensorDataset(torch.randn(10, 3))
train = pl.MpDeviceLoader(DataLoader(data, 4, shuffle=True), device)
test = pl.MpDeviceLoader(DataLoader(data, 5), device)
net = torch.nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9)
for epoch in range(2):
    for (x,) in train:
        loss = net(x).sum()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        torch_xla.sync()
    with torch.no_grad():
        for (x,) in test:
            net(x)
            torch_xla.sync()
xm.save(net.state_dict(), "on_host.pt")
torch.save(net.state_dict(), "on_device.pt")
"""


@pytest.mark.xla
def test_a_lazy_device_is_never_read_and_its_loaders_have_their_roles(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    env = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    seen = run(tmp_path, XLA, env=env)
    assert (seen.code, seen.of(ProbeErrorRecord)) == (0, [])
    told = [(r.role, r.samples, r.complete) for r in data(seen)]
    assert told == [("train", 10, True), ("eval", 10, True)] * 2
    host, device = seen.of(SavedRecord)
    assert (host.tensors, host.elements) == (device.tensors, device.elements) == (2, 4)
    assert all(norm > 0 for norm in host.norms.values())
    assert device.norms == {"bias": None, "weight": None}
    assert host.keys_hash == device.keys_hash
    assert (seen.finish.own_transfers, seen.finish.own_compiles) == (0, 0)
    assert seen.finish.eval_train_mode == 20
