"""What a parity run writes down of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from core.runs.probe.pilotage_probe import tensors  # noqa: E402
from tests.core.runs.probe.replaying import index, run  # noqa: E402


@pytest.fixture(scope="module")
def found(captured: Path) -> dict[str, Any]:
    return index(captured)


def test_the_index_says_what_is_there(captured: Path, found: dict[str, Any]) -> None:
    path = captured / "rank0"
    assert {p.name for p in path.iterdir()} >= {
        "index.json",
        "weights.safetensors",
        "forward.safetensors",
        "gradients.safetensors",
    }
    assert not [p.name for p in path.iterdir() if p.suffix in (".tmp", ".data")]
    assert (found["format"], found["rank"], found["world"]) == (1, 0, 1)
    assert found["roots"] == ["Transformer", "Convolutions", "Labelled", "Generator", "Critic"]
    assert found["ties"] == [["0.embedding.weight", "0.head.weight"]]
    assert found["why"] is None
    assert found["sketched"] == {}
    size = sum(tensors.Reader(p)._file.seek(0, 2) for p in path.glob("*.safetensors"))
    assert 0 < found["bytes"] <= size


def test_weights_are_those_before_the_first_forward(captured: Path, found: dict[str, Any]) -> None:
    path = captured / "rank0"
    reader = tensors.Reader(path / "weights.safetensors")
    kinds = {entry["key"]: entry["kind"] for entry in found["weights"]}
    assert list(kinds) == reader.keys()
    assert "0.head.weight" not in kinds  # stored once, under its first name
    assert kinds["0.scale"] == "cache"
    assert kinds["1.norm.running_mean"] == "buffer"
    assert kinds["4.net.in.weight"] == "parameter"
    assert reader.get("1.norm.running_mean").tolist() == [0.0] * 4
    assert int(reader.get("1.norm.num_batches_tracked")) == 0
    for entry in found["weights"]:
        tensor = reader.get(entry["key"])
        assert entry["norm"] == pytest.approx(float(tensor.double().norm()))
        assert (entry["dtype"], entry["shape"]) == (tensors.dtype_name(tensor), [*tensor.shape])


def test_modules_are_listed_as_they_end_with_their_inputs_and_outputs(
    captured: Path, found: dict[str, Any]
) -> None:
    path = captured / "rank0"
    reader = tensors.Reader(path / "forward.safetensors")
    calls = {(m["root"], m["name"], m["nth"]): m for m in found["modules"]}
    names = [m["name"] for m in found["modules"] if m["root"] == 1]
    assert names == ["first", "norm", "relu", "second", "norm", "relu", "head", ""]
    numbers = [m["i"] for m in found["modules"]]
    assert len(set(numbers)) == len(numbers)
    block = calls[0, "blocks.0", 0]
    assert [leaf["path"] for leaf in block["inputs"]] == ["x", "mask"]
    assert block["leaf"] is False
    body = calls[2, "body", 0]
    assert [leaf["path"] for leaf in body["outputs"]] == ["hidden"]
    root = calls[2, "", 0]
    assert [leaf["path"] for leaf in root["inputs"]] == ["values", "labels"]
    assert [leaf["path"] for leaf in root["outputs"]] == ["loss", "logits"]
    for m in found["modules"]:
        for leaf in m["inputs"] + m["outputs"]:
            assert list(reader.shape(leaf["key"])) == leaf["shape"], m
    # What one module returns and the next one takes is stored once.
    assert calls[1, "first", 0]["outputs"][0]["key"] == calls[1, "norm", 0]["inputs"][0]["key"]
    # Unless an operation in place came between: the ReLU changes what the norm has returned.
    before = reader.get(calls[1, "norm", 0]["outputs"][0]["key"])
    after = reader.get(calls[1, "relu", 0]["outputs"][0]["key"])
    assert float(before.min()) < 0 <= float(after.min())
    assert torch.equal(before.relu(), after)


def test_gradients_are_those_before_the_clip(captured: Path, found: dict[str, Any]) -> None:
    path = captured / "rank0"
    reader = tensors.Reader(path / "gradients.safetensors")
    entries = {entry["key"]: entry for entry in found["gradients"]}
    assert set(entries) == set(reader.keys())
    assert {e["key"] for e in found["weights"] if e["kind"] == "parameter"} == set(entries)
    # Each of its optimizer's own first step: critic before generator, as the program does.
    assert entries["4.net.in.weight"]["step"] == 4
    assert entries["3.net.in.weight"]["step"] == 5
    total = sum(e["norm"] ** 2 for key, e in entries.items() if key.startswith("0.")) ** 0.5
    assert total > 0.05  # the transformer's are clipped to 0.01


def test_a_small_budget_samples_what_does_not_fit(tmp_path: Path) -> None:
    program = tmp_path / "large.py"
    program.write_text(
        """
import sys
import torch
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(300, 900), torch.nn.Linear(900, 10))
torch.nn.init.ones_(model[0].weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(400, 300)).sum().backward()
    optimizer.step()
"""
    )
    first = run(tmp_path / "a", "3", program=program, capture=tmp_path / "c", budget_mb=1)
    assert not first.errors
    found = index(tmp_path / "c")
    assert {"0.0.weight", "out.1"} <= set(found["sketched"])
    path = tmp_path / "c" / "rank0"
    assert sum(p.stat().st_size for p in path.glob("*.safetensors")) < 1.1 * 1024 * 1024
    # Weights that are the same need no more than a sample; the others are taken over.
    second = run(tmp_path / "b", "4", program=program, reference=tmp_path / "c")
    assert (second.start.loaded, second.errors) == (True, [])
    assert [m.sketched for m in second.forward.modules].count(True) >= 1
    assert [m.error for m in second.forward.modules] == [0.0] * 3
    assert set(second.gradients[1].errors.values()) == {0.0}
    # Other weights of which there are only samples can't be.
    program.write_text(program.read_text().replace("ones_", "zeros_"))
    third = run(tmp_path / "d", "3", program=program, reference=tmp_path / "c")
    assert (third.start.loaded, third.start.natural_error) == (False, 1.0)
    assert "larger budget" in str(third.start.why)


STEPS = """
import sys
import torch

torch.manual_seed(int(sys.argv[1]))
x = torch.ones(2, 3)

def train(kind):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    if kind == "forgiven":
        try:
            model(torch.ones(2, 7))
        except RuntimeError:
            pass
    if kind == "looked first":
        with torch.no_grad():
            model(x * 2)
    if kind == "evaluating":
        model.eval()
    if kind == "closure":
        torch.optim.LBFGS(model.parameters(), lr=0.1).step(closure)
    elif kind == "scaled":
        scaler = torch.amp.GradScaler("cpu")
        optimizer.zero_grad()
        scaler.scale(model(x).square().sum()).backward()
        scaler.step(optimizer)
    elif kind == "zeroth":
        with torch.no_grad():
            model(x)
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.1)
        optimizer.step()
    else:
        closure()
        optimizer.step()
    return model

kept = []
for kind in sys.argv[2:]:
    kept.append(train(kind))
"""


def test_training_of_other_kinds(tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    # Once there was a backward pass, one in evaluation mode is taken for an evaluation.
    _same(tmp_path / "evaluating", program, ["evaluating"])
    _same(tmp_path / "others", program, ["zeroth", "looked first", "forgiven", "closure", "scaled"])


def _same(where: Path, program: Path, kinds: list[str]) -> None:
    where.mkdir()
    first = run(where / "a", "1", *kinds, program=program, capture=where / "c")
    found = index(where / "c")
    assert (first.errors, found["why"]) == ([], None)
    assert [m["name"] for m in found["modules"]] == ["0", "1", "2", ""] * len(kinds)
    assert len(found["weights"]) == len(found["gradients"]) == 4 * len(kinds)
    second = run(where / "b", "2", *kinds, program=program, reference=where / "c")
    assert second.errors == []
    assert (second.start.loaded, second.start.roots) == (True, len(kinds))
    assert second.start.natural_error is not None
    assert second.start.natural_error > 0.1
    assert [m.error for m in second.forward.modules] == [0.0] * 4 * len(kinds)
    errors = [e for record in second.gradients.values() for e in record.errors.values()]
    assert len(errors) == 4 * len(kinds)
    assert max(errors) < 1e-6
