"""A program that starts from a reference's weights and is held against it, module by module."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.runs.probe.pilotage_probe.replay import Reference
from core.runs.records_replay import ForwardRecord
from tests.core.runs.probe.replaying import RTOL, Replayed, run

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def faulty(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """Each fault is in a model of its own."""
    where = tmp_path_factory.mktemp("faulty")
    return run(where, "cpu", "eps,scaled,gelu,renamed", reference=captured)


def _is_alike(done: Replayed) -> None:
    assert done.errors == []
    start = done.start
    assert (start.roots, start.missing, start.extra, start.why) == (5, (), (), None)
    assert start.loaded is True
    assert start.natural_error is not None
    assert start.natural_error > 0.1
    forward = done.forward
    assert (forward.roots, forward.missing, forward.extra, forward.uncompared) == (5, (), (), 0)
    assert len(forward.modules) == forward.compared == 40
    assert max(m.error if m.error is not None else 9.0 for m in forward.modules) <= RTOL
    alone = [m.isolated for m in forward.modules if m.isolated is not None]
    assert len(alone) == 20  # the leaves with parameters
    assert max(alone) <= RTOL
    assert sorted(done.gradients) == [1, 2, 3, 4, 5]
    for record in done.gradients.values():
        assert (record.missing, record.extra, record.uncompared) == ((), (), 0)
        assert record.error is not None
        assert record.error <= 1e-4, record


@pytest.mark.xla
def test_a_faithful_program_on_another_device_is_alike(captured: Path, tmp_path: Path) -> None:
    """The program itself asserts that random numbers, buffers and counters are its own."""
    pytest.importorskip("torch_xla")
    _is_alike(run(tmp_path, "xla", reference=captured))


def test_the_first_diverging_module_is_the_one_at_fault(faulty: Replayed) -> None:
    assert faulty.errors == []
    norm = faulty.module("0.blocks.0.norm")
    assert faulty.first_diverging("0") == faulty.guilty("0") == norm.name
    assert (norm.type, norm.leaf) == ("LayerNorm", True)
    assert norm.isolated == norm.error
    up = faulty.module("0.blocks.0.up")  # its input is wrong, not the module
    assert up.error is not None
    assert up.error > RTOL > 1e-6 > (up.isolated or 0.0)


def test_what_is_wrong_between_modules_is_their_holders(faulty: Replayed) -> None:
    assert faulty.first_diverging("1") == "1.head"
    assert faulty.guilty("1") == "1"  # the scaling in Convolutions.forward
    assert faulty.first_diverging("2") == "2.body.two"
    assert faulty.guilty("2") == "2.body"  # GELU's approximation in Inner.forward
    assert faulty.module("2.body.two").isolated == pytest.approx(0, abs=1e-6)


def test_renamed_weights_are_not_taken_over_and_it_is_said_what_to_do(faulty: Replayed) -> None:
    start = faulty.start
    assert start.loaded is False
    assert "3.net.in.weight" in start.missing
    assert "3.renamed.in.weight" in start.extra
    assert "rename" in str(start.why)
    assert "4 only in the reference" in str(start.why)
    assert "3.renamed.act" in faulty.forward.extra
    assert "3.net.act" in faulty.forward.missing


def test_a_mapping_of_names_and_a_detach(captured: Path, tmp_path: Path) -> None:
    names = json.dumps({"net": "renamed"})
    done = run(
        tmp_path,
        "cpu",
        "renamed,detach,padded",
        reference=captured,
        env={"PILOTAGE_PROBE_RENAME": names},
    )
    assert (done.errors, done.start.loaded, done.start.renamed) == ([], True, 4)
    assert done.module("3.renamed.in").error == done.module("3").error == 0.0
    detached = done.gradients[3]
    assert {"2.body.one.weight", "2.body.two.bias"} <= set(detached.missing)
    assert detached.errors["2.head.weight"] <= RTOL
    # Longer sequences are compared as far as the reference's go.
    padded = done.module("0.embedding")
    assert (padded.shape_unlike, padded.error) == (True, 0.0)
    assert (done.module("1.head").shape_unlike, done.module("1.head").error) == (False, 0.0)


def _cut(name: str) -> Callable[[Path], None]:
    def cut(rank: Path) -> None:
        path = rank / f"{name}.safetensors"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return cut


def _edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(rank: Path) -> None:
        index = json.loads((rank / "index.json").read_text())
        change(index)
        (rank / "index.json").write_text(json.dumps(index))

    return edit


def _lying(rank: Path) -> None:
    """A header whose tensors overlap the end of the file, and a huge one."""
    (rank / "weights.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")


def _nonsense(index: dict[str, Any]) -> None:
    index["modules"] = [7, {"name": 5}, {"name": "a", "outputs": [{}, 1], "root": []}]
    index["modules"] += [{"name": "", "root": 0, "outputs": "x", "inputs": {"a": 1}, "nth": []}]
    index["weights"] = [{"key": ["x"]}, None, {"key": "0.embedding.weight", "kind": 4}]
    index["gradients"] = [{"key": "0.embedding.weight", "norm": "much", "shape": ["x"]}]
    index["aliases"] = {"a": 1}
    index["ties"] = [3, [None]]
    index["roots"] = [None]


UNREADABLE: dict[str, Callable[[Path], Any]] = {
    "no index": lambda rank: (rank / "index.json").unlink(),
    "weights cut off": _cut("weights"),
    "a lying header": _lying,
    "another format": _edit(lambda index: index.update(format=99)),
    "a list": lambda rank: (rank / "index.json").write_text("[]"),
    "no JSON": lambda rank: (rank / "index.json").write_bytes(b"\xff" * 99),
    "nested": lambda rank: (rank / "index.json").write_text("[" * 100_000),
    "another rank": lambda rank: rank.rename(rank.with_name("rank1")),
    "gone": shutil.rmtree,
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_directory_that_cannot_be_read(captured: Path, kind: str, tmp_path: Path) -> None:
    shutil.copytree(captured, tmp_path / "capture")
    UNREADABLE[kind](tmp_path / "capture" / "rank0")
    with pytest.raises((ValueError, OSError)):
        Reference(str(tmp_path / "capture"), 0)


def test_a_rank_that_a_reference_of_one_rank_has_not(captured: Path) -> None:
    assert Reference(str(captured), 3).roots[0] == "Transformer"


SMALL = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print(model[0].weight.detach().sum().item())
"""


def test_a_hostile_reference_is_refused_and_the_program_runs(tmp_path: Path) -> None:
    program, capture = tmp_path / "small.py", tmp_path / "capture"
    program.write_text(SMALL)
    alone = run(tmp_path / "a", program=program, capture=capture)
    rank = capture / "rank0"
    _cut("weights")(rank)
    refused = run(tmp_path / "b", program=program, reference=capture)
    assert (refused.out, refused.errors) == (alone.out, [])
    assert (refused.start.loaded, refused.start.natural_error) == (False, None)
    assert "record the reference again" in str(refused.start.why)
    assert not refused.of(ForwardRecord)
    # And one that can be read, but says what cannot be. It is there: another is not written to it.
    (rank / "weights.safetensors").unlink()
    _edit(_nonsense)(rank)
    before = (rank / "index.json").read_text()
    nonsense = run(tmp_path / "c", program=program, reference=capture, capture=capture)
    assert nonsense.out == alone.out
    assert (rank / "index.json").read_text() == before
    (error,) = nonsense.errors
    assert "FileExistsError" in error
    assert nonsense.start.loaded is False
    assert not [m for m in nonsense.forward.modules if m.error is not None]
    assert nonsense.gradients[1].errors == {}
