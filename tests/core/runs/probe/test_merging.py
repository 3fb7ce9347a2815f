"""A reference of another number of ranks: put together for one process, divided for several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from core.runs.probe.pilotage_probe import capture, merging, ranks, replay, tensors  # noqa: E402

BATCH, WIDTH, WORLD = 8, 3, 4
DATA = torch.arange(2 * BATCH * WIDTH, dtype=torch.float32).reshape(2, BATCH, WIDTH)


def outputs(batch: Any, rows: int) -> dict[str, Any]:
    """What modules give for a batch: rows in front, flattened, behind, none, and a loss."""
    return {
        "out.0.": batch + 1,
        "out.1.": torch.stack([batch, batch + 2], 1).reshape(rows * 2, -1),
        "out.2.": (batch + 3).t().contiguous(),
        "out.3.": torch.arange(5.0),
        "out.4.": batch.mean(),
    }


def ids(batch: Any) -> list[int]:
    """Each row's number stands in it."""
    return [int(row[0]) // WIDTH for row in batch]


def write(place: Path, batches: list[Any]) -> None:
    """A capture of one rank as the probe writes it."""
    place.mkdir(parents=True)
    entries = []
    for name, content in (
        ("weights", {"0.w": torch.ones(2)}),
        ("batches", {f"{n}.x": b for n, b in enumerate(batches)}),
        ("forward", outputs(batches[0], len(batches[0]))),
        ("gradients", {"0.w": torch.full((2,), 0.5)}),
    ):
        writer = tensors.Writer(place / f"{name}.safetensors")
        for key, tensor in content.items():
            writer.add(key, tensor)
        writer.finish()
    for n, batch in enumerate(batches):
        leaf = {
            "path": "x",
            "dtype": "float32",
            "shape": list(batch.shape),
            "sha256": tensors.sha256(batch),
        }
        entries.append({"n": n, "iterator": 1, "step": n, "ids": ids(batch), "leaves": [leaf]})
    index = {
        "format": capture.FORMAT,
        "roots": ["Net"],
        "weights": [{"key": "0.w"}],
        "batches": entries,
    }
    (place / "index.json").write_text(json.dumps(index))


def opened(place: Path, monkeypatch: pytest.MonkeyPatch, rank: int, world: int | None) -> Any:
    monkeypatch.setattr(ranks, "find", lambda tid, own: (rank if world else None, world, "RANK"))
    return merging.opened(str(place), rank)


def several(place: Path) -> Path:
    """Four ranks, each with its two rows of each batch."""
    for rank in range(WORLD):
        write(place / f"rank{rank}", [b[2 * rank : 2 * rank + 2] for b in DATA])
    return place


@pytest.mark.parametrize("world", [None, 1])
def test_one_process_gets_the_batches_and_outputs_of_all_ranks_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int | None
) -> None:
    found = opened(several(tmp_path / "capture"), monkeypatch, 0, world)
    for n, batch in enumerate(DATA):
        assert torch.equal(found.batches.get(f"{n}.x"), batch)
        (leaf,) = found.index["batches"][n]["leaves"]
        assert (leaf["shape"], leaf["sha256"]) == ([BATCH, WIDTH], tensors.sha256(batch))
        assert found.index["batches"][n]["ids"] == ids(batch)
    for key, tensor in outputs(DATA[0], BATCH).items():
        assert torch.equal(found.forward.get(key), tensor), key
        assert found.error("forward", key, tensor) == (0.0, False, False)
    assert torch.equal(found.gradients.get("0.w"), torch.full((2,), 0.5))


def test_each_of_several_ranks_gets_its_rows_of_the_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "capture/rank0", list(DATA))
    for rank in range(WORLD):
        found = opened(tmp_path / "capture", monkeypatch, rank, WORLD)
        rows = DATA[0][rank::WORLD]
        assert torch.equal(found.batches.get("0.x"), rows)
        assert found.index["batches"][0]["leaves"][0]["sha256"] == tensors.sha256(rows)
        assert found.index["batches"][0]["ids"] == ids(rows)
        expected = outputs(rows, len(rows))
        for key in ("out.0.", "out.1.", "out.2.", "out.3."):
            assert torch.equal(found.forward.get(key), expected[key]), key
        with pytest.raises(KeyError):  # the loss of the whole batch is no rank's
            found.forward.get("out.4.")


def test_as_many_ranks_get_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(several(tmp_path / "capture"), monkeypatch, 2, WORLD)
    assert type(found) is replay.Reference
    assert torch.equal(found.batches.get("1.x"), DATA[1][4:6])


def test_what_cannot_be_put_together_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        write(tmp_path / f"capture/rank{rank}", [DATA[0, :2, : 2 + rank]])
    found = opened(tmp_path / "capture", monkeypatch, 0, None)
    with pytest.raises(KeyError):
        found.batches.get("0.x")
    assert "0.y" not in found.batches
    assert "sketch.0.x" not in found.batches


def test_a_rank_that_is_cut_off_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = several(tmp_path / "capture")
    (place / "rank3/index.json").unlink()
    with pytest.raises(ValueError, match=r"no index\.json"):
        opened(place, monkeypatch, 0, None)
