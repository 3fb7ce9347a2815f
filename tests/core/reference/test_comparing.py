"""Two bundles beside each other, and numbers out of files of tensors without torch."""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.reference.comparing import compare, relative
from core.reference.manifest import BundleError
from core.reference.safetensors import (
    MAX_ELEMENTS,
    SIZES,
    TensorFile,
    error_between,
    relative_l2,
)
from core.reference.wording import describe_comparison
from tests.core.reference.making import edited, make_bundle, tensors


def test_two_recordings_of_one_training_agree(tmp_path: Path) -> None:
    a, b = make_bundle(tmp_path, name="a.pilotage"), make_bundle(tmp_path, name="b.pilotage")
    found = compare(a, b)
    assert found["agree"] and found["disagree"] == [] and found["differences"] == []
    assert found["weights"]["equal"] and found["weights"]["compared"] == 2
    assert (found["modules"]["compared"], found["modules"]["error"]) == (1, 0.0)
    assert found["parity"]["compared"] == 2 and found["parity"]["loss"]["error"] == 0.0
    text = describe_comparison(found)
    assert "they agree" in text and "initial weights: equal, 2 tensors" in text


def test_what_is_otherwise_is_named(tmp_path: Path) -> None:
    a = make_bundle(tmp_path, name="a.pilotage")
    change = edited(packages={"torch": "2.10.0"}, python="3.12.1")
    b = make_bundle(tmp_path, name="b.pilotage", scale=1.5, metric=0.5, change=change)
    found = compare(a, b)
    assert not found["agree"]
    assert {"what": "package torch", "a": "2.9.1", "b": "2.10.0"} in found["differences"]
    assert found["modules"]["first"] == "fc"
    assert found["modules"]["rows"][0]["error"] == pytest.approx(0.5 / math.sqrt(15.25))
    assert "The first module whose output differs is fc." in found["disagree"]
    assert any("accuracy differs: 0.75 and 0.5" in text for text in found["disagree"])
    text = describe_comparison(found)
    assert "they do not agree" in text and "package torch: 2.9.1 | 2.10.0" in text


def test_without_tensors_they_do_not_agree_by_default(tmp_path: Path) -> None:
    a = make_bundle(tmp_path, name="a.pilotage", captured=False)
    found = compare(a, a)
    assert not found["agree"] and "has no tensors" in found["disagree"][0]
    assert "has no tensors" in describe_comparison(found)


def test_samples_are_compared_with_samples_only(tmp_path: Path) -> None:
    whole = make_bundle(tmp_path, name="a.pilotage")
    some = make_bundle(tmp_path, name="b.pilotage", sketch="sketch.", scale=1.5)
    others = make_bundle(tmp_path, name="c.pilotage", sketch="sketch.")
    (row,) = compare(some, others)["modules"]["rows"]
    assert row["sampled"] and row["error"] == pytest.approx(0.5 / math.sqrt(14))
    assert compare(whole, some)["modules"]["compared"] == 0


def test_what_is_no_bundle(tmp_path: Path) -> None:
    a = make_bundle(tmp_path)
    with pytest.raises(BundleError, match="There is no bundle"):
        compare(a, tmp_path / "none")


def _file(path: Path, dtype: str, raw: bytes, shape: Sequence[int]) -> Path:
    text = json.dumps({"x": {"dtype": dtype, "shape": [*shape], "data_offsets": [0, len(raw)]}})
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + raw)
    return path


@pytest.mark.parametrize(
    ("dtype", "raw", "values"),
    [
        ("F32", struct.pack("<3f", 1, -2.5, 3), [1, -2.5, 3]),
        ("F64", struct.pack("<2d", 0.1, 2), [0.1, 2]),
        ("F16", struct.pack("<3e", 1, -2.5, 65504), [1, -2.5, 65504]),
        ("BF16", bytes.fromhex("803f 20c0 807f 0000"), [1, -2.5, math.inf, 0]),
        ("I64", struct.pack("<2q", -5, 2**40), [-5, 2**40]),
        ("U8", b"\x00\xff", [0, 255]),
        ("BOOL", b"\x00\x01", [0, 1]),
        ("C64", struct.pack("<2f", 1, 2), [1, 2]),
    ],
)
def test_numbers_of_each_dtype(tmp_path: Path, dtype: str, raw: bytes, values: list[float]) -> None:
    with TensorFile(_file(tmp_path / "x", dtype, raw, [len(raw) // SIZES[dtype]])) as file:
        found = file.values("x")
    assert found is not None and [*found[0]] == values and found[1] is False


def test_a_dtype_without_numbers_here_is_not_compared(tmp_path: Path) -> None:
    with TensorFile(_file(tmp_path / "x", "F8_E5M2", b"\0\0", [2])) as file:
        assert file.values("x") is None
        assert error_between(file, file, "x") is None


def test_other_shapes_are_not_compared(tmp_path: Path) -> None:
    tensors(tmp_path / "a", {"x": [1.0, 2.0]})
    tensors(tmp_path / "b", {"x": [1.0]})
    with TensorFile(tmp_path / "a") as a, TensorFile(tmp_path / "b") as b:
        assert error_between(a, b, "x") is None


def test_of_a_large_tensor_a_sample_is_taken_and_that_is_said(tmp_path: Path) -> None:
    values = [float(i % 100) for i in range(3 * MAX_ELEMENTS)]
    tensors(tmp_path / "a", {"x": values})
    tensors(tmp_path / "b", {"x": [v * 1.001 for v in values]})
    with TensorFile(tmp_path / "a") as a, TensorFile(tmp_path / "b") as b:
        found = error_between(b, a, "x")
    assert found is not None and found[0] == pytest.approx(1e-3, rel=1e-3) and found[1] is True


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(-0.5, 0.5))
def test_the_relative_error_is_the_share_of_the_difference(row: list[float], by: float) -> None:
    a, b = array("d", [x * (1 + by) for x in row]), array("d", row)
    error = relative_l2(a, b)
    if any(abs(x) > 1e-100 for x in row):
        assert error == pytest.approx(abs(by), abs=1e-9)
    assert relative_l2(b, b) == 0.0


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ([math.nan, 1], [math.nan, 1], 0.0),
        ([math.inf, 1], [math.inf, 1], 0.0),
        ([math.nan, 1], [1, 1], math.inf),
        ([math.inf, 1], [-math.inf, 1], math.inf),
        ([1], [0], math.inf),
        ([0], [0], 0.0),
        ([0, 0], [3, 4], 1.0),
    ],
)
def test_the_ends_of_the_relative_error(a: list[float], b: list[float], error: float) -> None:
    assert relative_l2(array("d", a), array("d", b)) == error


def test_relative_is_symmetric_and_knows_nan() -> None:
    assert relative(1, 2) == relative(2, 1) == 0.5
    assert relative(math.nan, math.nan) == relative(math.inf, math.inf) == 0.0
    assert relative(math.nan, 1) == relative(math.inf, -math.inf) == math.inf
