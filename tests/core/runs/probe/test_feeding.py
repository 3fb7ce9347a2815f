"""The batches of the training beside the reference's, and in their place."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from core.runs.probe.pilotage_probe import feeding, matching, tensors, trees  # noqa: E402
from core.runs.records import ProbeErrorRecord  # noqa: E402
from core.runs.records_replay import BatchRecord, PrecisionRecord  # noqa: E402

PROGRAM = (Path(__file__).parent / "programs" / "fed.py").read_text()
XLA = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"}


def _run(run: Callable[..., Any], where: Path, kind: str, **given: Path | str) -> Any:
    env = {f"PILOTAGE_PROBE_{name}": str(value) for name, value in given.items()}
    where.mkdir(parents=True, exist_ok=True)
    done = run(where, PROGRAM, kind, mode="parity", steps=4, env=env | XLA)
    assert done.code == 0, done.err
    assert done.of(ProbeErrorRecord) == []
    return done


def _shown(done: Any) -> list[str]:
    """What the model was given at the first steps: the process ends within the fourth."""
    return [line for line in done.out.splitlines() if line.startswith("@")][:3]


@pytest.fixture(scope="module")
def reference(run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    where = tmp_path_factory.mktemp("reference")
    return _run(run, where, "reference", CAPTURE=where / "capture"), where / "capture"


def test_batches_are_written(reference: Any) -> None:
    done, capture = reference
    index = json.loads((capture / "rank0" / "index.json").read_text())
    assert index["batch_source"] == "loader"
    assert index["loader"] == {"dataset_len": 40, "batch_size": 4}
    reader = tensors.Reader(capture / "rank0" / "batches.safetensors")
    assert [b["n"] for b in index["batches"]] == [0, 1, 2, 3, 4]
    assert {b["iterator"] for b in index["batches"]} == {2}  # after the evaluation's
    shown = _shown(done)
    for n, batch in enumerate(index["batches"][:3]):
        assert batch["step"] == n
        assert len(set(batch["ids"])) == 4
        assert [leaf["path"] for leaf in batch["leaves"]] == ["input_ids", "labels", "noise"]
        for leaf in batch["leaves"]:
            tensor = reader.get(f"{n}.{leaf['path']}")
            assert leaf["shape"] == list(tensor.shape)
            assert leaf["sha256"] == hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        assert str(reader.get(f"{n}.input_ids").tolist()) in shown[n]
    (precision,) = done.of(PrecisionRecord)  # a program in float32 asks for nothing
    assert (precision.requests, precision.env) == ((), {})
    assert precision.compute == {"float32": 2}


@pytest.mark.xla
def test_another_order_is_put_right(
    run: Callable[..., Any], reference: Any, tmp_path: Path
) -> None:
    """With workers, before a loader that moves batches in a thread; augmentation included."""
    done = _run(run, tmp_path, "xla", REFERENCE=reference[1])
    batches = {b.n: b for b in done.of(BatchRecord)}
    assert set(batches) == {0, 1, 2, 3, 4}
    for batch in batches.values():
        assert (batch.source, batch.state, batch.fed) == ("loader", "reordered", True), batch
        assert "the order is another" in str(batch.detail)
    assert _shown(done) == _shown(reference[0])


def test_other_data_is_said_and_replaced(
    run: Callable[..., Any], reference: Any, tmp_path: Path
) -> None:
    done = _run(run, tmp_path, "changed", REFERENCE=reference[1])
    index = json.loads((reference[1] / "rank0" / "index.json").read_text())
    batches = {b.n: b for b in done.of(BatchRecord)}
    assert set(batches) == {0, 1, 2, 3, 4}
    states = set()
    for entry in index["batches"]:
        batch = batches[entry["n"]]
        changed = sum(i < 4 for i in entry["ids"])
        lengths = {i % 5 for i in entry["ids"]}
        states.add((bool(changed), len(lengths) > 1))
        if changed:
            assert (batch.state, batch.leaf, batch.fed) == ("unlike", "input_ids", True)
            assert f"input_ids differs in {changed} of 4 rows" in str(batch.detail)
        elif len(lengths) > 1:
            assert (batch.state, batch.leaf, batch.fed) == ("unlike", "labels", True)
            assert batch.detail == ("labels is padded with 0, where the reference pads with -100.")
    assert (True, True) in states
    assert (False, True) in states
    assert _shown(done) == _shown(reference[0])


def test_inputs_stand_for_batches(run: Callable[..., Any], tmp_path: Path) -> None:
    _run(run, tmp_path / "one", "inputs", CAPTURE=tmp_path / "capture")
    index = json.loads((tmp_path / "capture" / "rank0" / "index.json").read_text())
    assert index["batch_source"] == "root"
    assert [len(b["leaves"]) for b in index["batches"]] == [1, 1, 1]
    done = _run(run, tmp_path / "other", "inputs-changed", REFERENCE=tmp_path / "capture")
    found = [(b.n, b.source, b.state, b.fed) for b in done.of(BatchRecord)]
    assert found == [
        (0, "root", "same", False),
        (1, "root", "unlike", False),
        (2, "root", "same", False),
    ]


# --- one batch against another -------------------------------------------------------------------


class Given:
    """A reference's batches, by number, as its files hold them."""

    def __init__(self, *batches: dict[str, Any], ids: Any = None) -> None:
        self.tensors = {f"{n}.{p}": t for n, b in enumerate(batches) for p, t in b.items()}
        self.entries = [
            {
                "n": n,
                "ids": ids,
                "leaves": [
                    {
                        "path": path,
                        "dtype": tensors.dtype_name(tensor),
                        "shape": list(tensor.shape),
                        "sha256": tensors.sha256(tensor),
                    }
                    for path, tensor in batch.items()
                ],
            }
            for n, batch in enumerate(batches)
        ]

    def __contains__(self, key: str) -> bool:
        return key in self.tensors

    def get(self, key: str) -> Any:
        return self.tensors[key]


def _match(mine: dict[str, Any], *theirs: dict[str, Any]) -> Any:
    given = Given(*theirs)
    return matching.compare(list(mine.items()), matching.Reference(given, given.entries), 0)


def _batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 9, (4, 6), generator=generator)
    ids[1, 4:] = 0
    labels = ids.clone()
    labels[1, 4:] = -100
    return {"ids": ids, "x": torch.randn(4, 3, generator=generator), "labels": labels}


def _padded(tensor: Any, left: int, right: int, value: float) -> Any:
    return torch.nn.functional.pad(tensor, (left, right), value=value)


def test_the_same() -> None:
    batch = _batch()
    assert _match(batch, batch).state == "same"
    near = _match(dict(batch, x=batch["x"] * (1 + 1e-7)), batch)
    assert (near.state, near.detail) == ("same", "")
    half = _match(dict(batch, x=batch["x"].bfloat16(), ids=batch["ids"].int()), batch)
    assert half.state == "same"
    assert half.detail == (
        "ids is int32, the reference's int64; x is bfloat16, the reference's float32."
    )
    assert _match(dict(batch, mask=batch["ids"] > 0), batch).state == "same"


@pytest.mark.parametrize(("left", "right"), [(0, 2), (3, 0)])
def test_padded(left: int, right: int) -> None:
    batch = _batch()
    mine = {
        "ids": _padded(batch["ids"], left, right, 0),
        "x": batch["x"],
        "labels": _padded(batch["labels"], left, right, -100),
    }
    found = _match(mine, batch)
    assert (found.state, found.leaf, found.error) == ("padded", "ids", 0.0)
    assert "labels is padded from 4x6 to" in found.detail
    # Ids of another constant are masked; labels of another constant are trained on.
    other = _match(dict(mine, ids=_padded(batch["ids"], left, right, 7)), batch)
    assert other.state == "padded"
    assert "with 7 where the reference pads with 0" in other.detail
    wrong = _match(dict(mine, labels=_padded(batch["labels"], left, right, 0)), batch)
    assert (wrong.state, wrong.leaf) == ("unlike", "labels")
    assert "with 0 where the reference pads with -100" in wrong.detail
    torn = dict(mine, ids=mine["ids"].clone())
    torn["ids"][0, -1 if right else 0] = 5  # what is around it is not constant
    assert _match(torn, batch).state == "unlike"


def test_reordered() -> None:
    batch = _batch()
    order = torch.tensor([2, 0, 1, 3])
    found = _match({path: tensor[order] for path, tensor in batch.items()}, batch)
    assert found.state == "reordered"
    assert "3 of 4" in found.detail
    torn = _match(dict(batch, labels=batch["labels"][order]), batch)
    assert (torn.state, torn.leaf) == ("unlike", "labels")
    assert "in another order than the rest" in torn.detail


def test_unlike() -> None:
    batch, second = _batch(), {path: tensor.flip(0) + 1 for path, tensor in _batch().items()}
    scaled = _match(dict(batch, x=batch["x"] / 2), batch)
    assert (scaled.state, scaled.leaf, scaled.feedable) == ("unlike", "x", None)
    assert scaled.error == pytest.approx(0.5)
    assert scaled.detail == "x differs in 4 of 4 rows."
    later = _match(second, batch, second)
    assert "4 of its rows are in some batch of the reference" in later.detail
    part = _match({path: tensor[:2] for path, tensor in batch.items()}, batch)
    assert part.state == "unlike"
    assert part.feedable is not None
    assert "its 2 rows are among the reference's 4" in part.detail
    lost = _match({"ids": batch["ids"]}, batch)
    assert (lost.leaf, lost.feedable) == ("x", "it is made of other parts")
    nothing = _match(dict(batch, x=torch.full((4, 3), torch.nan)), batch)
    assert (nothing.state, nothing.error) == ("unlike", float("inf"))


def test_an_index_is_not_trusted() -> None:
    odd: list[Any] = [None, 3, {}, {"n": "0"}, {"n": 0, "leaves": [{"path": 1}]}, {"n": 1}]
    assert matching.Reference(None, odd).entries == {}


# --- in its place --------------------------------------------------------------------------------


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Record:
    x: Any
    name: str


class Encoding(collections.UserDict):  # type: ignore[type-arg]
    """As transformers' BatchEncoding."""


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: [x, "name"],
        lambda x: (x, {"deep": [x + 1]}),
        lambda x: Pair(x, x + 1),
        lambda x: Record(x, "name"),
        lambda x: Encoding({"x": x, "n": 3}),
        lambda x: collections.OrderedDict(x=x, rest=None),
    ],
)
def test_any_container_is_filled(make: Callable[[Any], Any]) -> None:
    batch, wanted = make(torch.zeros(2)), make(torch.ones(2))
    before = [tensor.clone() for _, tensor in trees.leaves(batch)]
    filled = feeding._filled(batch, "", dict(trees.leaves(wanted)))
    assert type(filled) is type(batch)
    for (path, mine), (_, theirs) in zip(trees.leaves(filled), trees.leaves(wanted), strict=True):
        assert torch.equal(mine, theirs), path
    # The program may hold on to its own batch.
    for (_, kept), value in zip(trees.leaves(batch), before, strict=True):
        assert torch.equal(kept, value)
