"""Tensors in files and their errors: the probe's own safetensors against the library's."""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from core.runs.probe.pilotage_probe import tensors  # noqa: E402


def samples() -> dict[str, Any]:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "float32": base,
        "float64": base.double() / 7,
        "float16": base.half(),
        "bfloat16": base.bfloat16(),
        "int64": base.long() - 5,
        "int32": base.int(),
        "int16": base.short(),
        "int8": base.to(torch.int8),
        "uint8": base.to(torch.uint8),
        "bool": base > 7,
        "complex64": torch.complex(base, -base),
        "complex128": torch.complex(base.double(), base.double() + 1),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "transposed": base.t(),
        "sliced": base[1:, ::2],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "conjugate": torch.complex(base, base).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "leaf": base.clone().requires_grad_(),
        "odd": torch.tensor([True]),  # what follows is not aligned
        "after odd": base.double(),
        "tied": base,
    }


def written(tmp_path: Path) -> Path:
    path = tmp_path / "some.safetensors"
    writer = tensors.Writer(path)
    for key, tensor in samples().items():
        writer.add(key, tensor)
    assert not path.exists()
    writer.finish()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    reader = tensors.Reader(written(tmp_path))
    assert reader.keys() == list(samples())
    for key, tensor in samples().items():
        found = reader.get(key)
        expected = tensor.detach().to_dense() if key == "sparse" else tensor.detach()
        assert found.dtype == expected.dtype, key
        assert tuple(found.shape) == reader.shape(key) == tuple(expected.shape), key
        assert torch.equal(found, expected.resolve_conj()), key
        found.reshape(-1)[:1].fill_(0)  # memory of its own: it can be written to
    assert reader.dtype("bfloat16") == "bfloat16"
    with pytest.raises(KeyError):
        reader.get("none")


def test_the_library_reads_it_and_is_read(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    values = {k: v for k, v in samples().items() if k not in ("complex64", "complex128")}
    values.pop("conjugate")
    path = tmp_path / "some.safetensors"
    writer = tensors.Writer(path)
    for key, tensor in values.items():
        writer.add(key, tensor)
    writer.finish()
    for key, tensor in library.load_file(path).items():
        assert torch.equal(tensor, tensors.host(values[key])), key
    other = tmp_path / "other.safetensors"
    library.save_file({"a": torch.ones(2, 3), "b": torch.tensor([True])}, other, {"of": "x"})
    reader = tensors.Reader(other)
    assert sorted(reader.keys()) == ["a", "b"]
    assert torch.equal(reader.get("a"), torch.ones(2, 3))


def test_a_file_that_is_cut_off_or_hostile_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    path = tmp_path / "bad"

    def refused(data: bytes) -> None:
        path.write_bytes(data)
        with pytest.raises(ValueError):
            tensors.Reader(path)

    refused(b"")
    refused(whole[:7])
    refused(whole[:100])
    refused(whole[:-1])
    refused(struct.pack("<Q", 2**63) + b"{}")
    refused(b"\x80\x04\x95" + whole)

    def header(value: object) -> bytes:
        text = json.dumps(value).encode()
        return struct.pack("<Q", len(text)) + text + b"\0" * 64

    refused(header([1]))
    refused(header({"a": 1}))
    refused(struct.pack("<Q", 60_000) + b"[" * 60_000)
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    path.write_bytes(header({"a": good}))
    assert tensors.Reader(path).get("a").tolist() == [0.0, 0.0]
    for change in (
        {"dtype": "F99"},
        {"dtype": ["F32"]},
        {"shape": [-2, -1]},
        {"shape": [2**62, 4]},
        {"shape": [True, 2]},
        {"shape": "2"},
        {"data_offsets": [0, 9]},
        {"data_offsets": [8]},
        {"data_offsets": [60, 68]},
        {"data_offsets": [-8, 0]},
    ):
        refused(header({"a": {**good, **change}}))
    with pytest.raises(OSError):
        tensors.Reader(tmp_path / "none")


def test_a_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    path = written(tmp_path)
    reader = tensors.Reader(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError):
        reader.get("tied")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    writer = tensors.Writer(tmp_path / "x")
    with pytest.raises(ValueError):
        writer.add("meta", torch.empty(2, device="meta"))
    writer.add("a", torch.ones(1))
    with pytest.raises(ValueError):
        writer.add("a", torch.ones(1))
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_relative_l2() -> None:
    base = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    assert tensors.relative_l2(base, base) == 0.0
    assert tensors.relative_l2(base * 1.01, base) == pytest.approx(0.01, rel=1e-4)
    assert tensors.relative_l2(base.bfloat16(), base) == pytest.approx(2e-3, rel=0.5)
    assert tensors.relative_l2(torch.tensor([3, 4]), torch.tensor([3, 5])) == pytest.approx(
        1 / math.sqrt(34)
    )
    assert tensors.relative_l2(torch.tensor([True, False]), torch.tensor([True, True])) > 0.5
    one = torch.tensor([1 + 1j])
    assert tensors.relative_l2(one * 1j, one) == pytest.approx(math.sqrt(2))
    nothing = torch.zeros(3)
    assert tensors.relative_l2(nothing, nothing) == 0.0
    assert tensors.relative_l2(torch.ones(3), nothing) > 1e20
    assert tensors.relative_l2(torch.empty(0), torch.empty(0)) == 0.0
    with pytest.raises(ValueError):
        tensors.relative_l2(torch.ones(2), torch.ones(3))


def test_relative_l2_of_what_is_not_finite() -> None:
    mask = torch.tensor([-math.inf, 1.0, math.nan])
    assert tensors.relative_l2(mask, mask) == 0.0
    assert tensors.relative_l2(torch.tensor([-math.inf, 1.1, math.nan]), mask) == pytest.approx(0.1)
    for bad in ([math.inf, 1.0, math.nan], [-math.inf, math.nan, math.nan], [0.0, 1.0, math.nan]):
        assert tensors.relative_l2(torch.tensor(bad), mask) == math.inf
        assert tensors.relative_l2(mask, torch.tensor(bad)) == math.inf
    assert tensors.relative_l2(torch.tensor([1e200]).double(), torch.tensor([1e200]).double()) == 0


def test_it_goes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "ELEMENTS", 7)
    monkeypatch.setattr(tensors, "CHUNK", 5)
    a = torch.arange(100.0)
    assert tensors.relative_l2(a + 1, a) == pytest.approx(10 / float(a.norm()))
    assert tensors.norm(a) == pytest.approx(float(a.norm()))
    whole = tensors.sha256(a)
    monkeypatch.undo()
    assert tensors.sha256(a) == whole
    assert tensors.sha256(a.clone()) == whole != tensors.sha256(a + 1)


def test_a_sketch_estimates_the_error() -> None:
    base = torch.randn(300, 300, generator=torch.Generator().manual_seed(1))
    stride, sample = tensors.sketch(base)
    assert sample.numel() <= tensors.SKETCH
    assert tensors.relative_l2(tensors.sampled(base * 1.02, stride), sample) == pytest.approx(
        0.02, rel=1e-3
    )
    assert tensors.sketch(torch.tensor(3.0))[0] == 1
    assert tensors.sketch(torch.empty(0))[1].numel() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_read_costs_the_memory_of_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "big"
    writer = tensors.Writer(path)
    for index in range(8):
        writer.add(str(index), torch.full((4 * 1024 * 1024,), float(index)))
    writer.finish()
    reader = tensors.Reader(path)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    for index in range(8):
        assert float(reader.get(str(index))[-1]) == index
    assert resident() - before < 3 * 16 * 1024 * 1024
