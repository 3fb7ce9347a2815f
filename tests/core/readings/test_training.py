"""Training progress in the lines of many libraries and styles; and what is none of it."""

from __future__ import annotations

import math
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.readings.reading import MAX_LABEL_CHARS, MAX_LABELS, MAX_VALUES
from core.readings.training import READERS, LineReader, Reading, read_line, series, tidy_name
from tests.core.readings.styles import NO_READING, PREFIXES, STYLES

RECORDED = Path(__file__).parent / "recorded"
NAN = math.nan


def lines(name: str) -> list[str]:
    return (RECORDED / name).read_text(encoding="utf-8").splitlines()


def read(text: str) -> Reading:
    reading = read_line(text)
    assert reading is not None, f"no reading: {text}"
    return reading


# --- what libraries really print (recorded by record_libraries.py) --------------------------------


def test_the_hugging_face_trainer() -> None:
    found = series(lines("transformers.txt"))
    logged = [r for r in found if "grad_norm" in r.values]
    assert [r.values["loss"] for r in logged] == [0.7113, 0.7126, 0.7105, 0.7127]
    assert [r.epoch for r in logged] == [0.5, 1.0, 1.5, 2.0]
    assert {r.reader for r in logged} == {"hf dict"}
    assert [r.values["eval_accuracy"] for r in found if "eval_runtime" in r.values] == [0.09375] * 2
    last = [r for r in found if "eval_accuracy" in r.values][-1]
    assert (last.reader, last.values["eval_accuracy"]) == ("key value", 0.0938)


def test_the_bars_and_tables_of_lightning() -> None:
    found = series(lines("lightning.txt"))
    trained = [r for r in found if r.reader == "lightning bar"]
    assert {r.total_steps for r in trained} == {8}
    assert {r.epoch for r in trained} == {0.0, 1.0}
    last = trained[-1]
    assert (last.step, last.values["train_loss"], last.values["val_acc"]) == (8, 0.453, 0.844)
    assert last.values["step_time_s"] == pytest.approx(1 / 376.88)
    validated = [r for r in found if r.where.get("phase") == "val"]
    assert validated and all(r.reader == "tqdm bar" for r in validated)
    rows = [r.values for r in found if r.reader == "table row"]
    assert rows[:2] == [{"val_acc": 0.84375}, {"val_loss": 0.4631468653678894}]
    assert rows[2] == {"val_acc_0": 0.84375, "val_acc_1": 0.84375}
    assert found[-1].values["val_acc_dataloader_idx_1"] == 0.84375


def test_the_rich_bar_of_lightning() -> None:
    found = [r for r in series(lines("lightning_rich.txt")) if r.reader == "lightning bar"]
    first = found[0]
    assert (first.step, first.total_steps, first.epoch) == (8, 8, 1.0)
    assert (first.values["train_loss"], first.values["val_acc"]) == (0.396, 0.906)
    assert found[1].where == {"phase": "val"}


def test_tqdm() -> None:
    found = series(lines("tqdm.txt"))
    with_loss = [r for r in found if "loss" in r.values]
    assert with_loss[-1].values["loss"] == 0.167
    assert with_loss[-1].values["acc"] == 50.0
    assert (with_loss[-1].step, with_loss[-1].total_steps, with_loss[-1].epoch) == (6, 6, 1.0)
    bare = [r for r in found if r.reader == "tqdm bar" and r.total_steps == 3]
    assert bare[-1].values["step_time_s"] == pytest.approx(1 / 97.06)
    # The bar of "Loading data" is in the file too, and is no training.
    assert any("Loading data" in line for line in lines("tqdm.txt"))
    assert not any(r.where for r in found)


# --- styles of lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reader", "values", "step", "total", "epoch"), STYLES, ids=lambda v: str(v)[:30]
)
def test_a_line_of_this_style_is_read(
    text: str,
    reader: str,
    values: dict[str, float],
    step: int | None,
    total: int | None,
    epoch: float | None,
) -> None:
    reading = read(text)
    assert reading.reader == reader
    assert reading.values == pytest.approx(values, nan_ok=True)
    assert (reading.step, reading.total_steps, reading.epoch) == (step, total, epoch)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "text",
    ["step 10 loss 2.5", "{'loss': 2.5, 'step': 10}", '{"loss": 2.5, "step": 10}'],
)
def test_what_loggers_and_launchers_put_before_a_line_changes_nothing(
    prefix: str, text: str
) -> None:
    reading = read(prefix + text)
    assert reading.values == {"loss": 2.5}
    assert reading.step == 10
    assert "label" not in reading.where


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank1]: loss: 0.5", 1),
        ("[rank 12] loss: 0.5", 12),
        ("[Rank 2] step=10, lr=[0.001], loss=0.5", 2),
        ("[default7]:loss: 0.5", 7),
        ("rank=3 loss=0.5", 3),
        ("Rank 3 | loss: 0.5", 3),
        ("{'loss': 0.5}   # replica 4", 4),
        ('{"loss": 0.5, "rank": 5}', 5),
        ("[xla:6](20) Loss=0.5 Rate=100.1", 6),
        ("| Training Device=xla:1/2 Epoch=1 Step=20 Loss=0.5 Rate=12.50 Time=12:30:00", 2),
        ("[1,3]<stdout>: loss: 0.5", 3),
        ("[2 chips] loss: 0.5", None),
        ("lora_rank=16 loss=0.5", None),
        ("loss = tensor(0.5, device='xla:1')", None),
    ],
)
def test_the_rank_is_what_the_line_says(text: str, rank: int | None) -> None:
    reading = read(text)
    assert reading.rank == rank
    assert 0.5 in reading.values.values()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[8 cores] step 10 loss=0.5", {"label": "8 cores"}),
        ("[1 core ] step 10 loss=0.5", {"label": "1 core"}),
        ("[val] loss: 0.5", {"phase": "val"}),
        ("val Loss: 0.5 Acc: 0.75", {"phase": "val"}),
        ("train loss 0.5, val loss 0.5", {}),
        ("10/10 - 1s - loss: 0.5 - val_loss: 0.75", {}),
        ("epoch 1 loss 0.5 test_acc 0.75", {}),
        ("Test: [ 0/10]\tLoss 0.5 (0.5)", {"phase": "test"}),
        ("Test set: Average loss: 0.5, Accuracy: 90/100 (90%)", {"phase": "test"}),
        ("Validation: 100%|████| 9/9 [00:01<00:00, 8.2it/s, loss=0.5]", {"phase": "val"}),
        ("(Worker pid=12, ip=10.0.0.1) loss=0.5", {"worker": "Worker pid=12, ip=10.0.0.1"}),
        ('{"loss": 0.5, "split": "valid"}', {"phase": "val"}),
        ("loss = tensor(0.5, device='xla:1')", {"device": "xla:1"}),
    ],
)
def test_labels_tell_series_apart(text: str, where: dict[str, str]) -> None:
    assert read(text).where == where


def test_a_share_is_a_percentage_where_the_line_says_so() -> None:
    assert read("Test set: Accuracy: 180/200 (90%)").values == {"accuracy": 90.0}
    assert read("accuracy: 180/200").values == {"accuracy": 0.9}


@pytest.mark.parametrize("text", NO_READING)
def test_what_is_no_training_is_no_reading(text: str) -> None:
    assert read_line(text) is None


def test_the_last_part_of_an_overwritten_line_counts() -> None:
    assert read("loss: 1.0\rloss: 0.5\r").values == {"loss": 0.5}


def test_names_have_one_form() -> None:
    assert (
        tidy_name("Train/Loss")
        == tidy_name("train loss")
        == tidy_name("train-loss")
        == "train_loss"
    )
    assert tidy_name("Acc@1") == "acc@1"
    assert read("grad_norm(local)=1.5 loss=0.5").values == {"grad_norm_local": 1.5, "loss": 0.5}


def test_columns_of_numbers_are_read_by_the_names_above_them() -> None:
    table = """\
  epoch    train_loss    valid_acc     dur
-------  ------------  -----------  ------
      1        0.6905       0.5500  0.0421
      2        0.6712       0.6000  0.0321
all is well
      3        0.5        0.7     0.9
"""
    found = series(table.splitlines())
    assert [(r.epoch, r.values["valid_acc"], r.line) for r in found] == [(1, 0.55, 2), (2, 0.6, 3)]
    assert {r.reader for r in found} == {"table row"}
    csv = series(["step,loss,acc", "5,0.5,0.7", "10,0.4,0.8"])
    assert [(r.step, r.values) for r in csv] == [
        (5, {"loss": 0.5, "acc": 0.7}),
        (10, {"loss": 0.4, "acc": 0.8}),
    ]


def test_a_series_is_bounded_and_keeps_its_course() -> None:
    found = series((f"step {i} loss {i / 8}" for i in range(1_000)), limit=100)
    steps = [r.step for r in found]
    assert len(steps) <= 100
    assert steps[0] == 0 and steps[-1] == 999
    assert steps == sorted(steps, key=lambda s: s or 0)
    assert all(r.line == r.step for r in found)


# --- hostile text ---------------------------------------------------------------------------------

_PIECES = st.sampled_from([s[0] for s in STYLES] + NO_READING + PREFIXES)
_SNIPPETS = st.sampled_from(
    [
        *"=: 1e%|()[]{}'/-,\t\r━│é",
        '"',
        "0.5",
        "loss",
        "step",
        "epoch",
        "tensor(",
        "nan",
        "it/s",
        "\x1b[",
    ]
)


@settings(max_examples=300)
@given(
    st.text(max_size=200)
    | st.lists(_SNIPPETS, max_size=80).map("".join)
    | st.builds(str.__add__, _PIECES, _PIECES)
    | st.builds(lambda a, i, b: a[:i] + b + a[i:], _PIECES, st.integers(0, 60), _SNIPPETS)
)
def test_no_text_breaks_the_readers(text: str) -> None:
    reading = read_line(text)
    LineReader().read(text)
    if reading is None:
        return
    assert reading.reader in READERS
    assert len(reading.values) <= MAX_VALUES
    assert all(n == tidy_name(n) and isinstance(v, float) for n, v in reading.values.items())
    assert reading.step is None or (isinstance(reading.step, int) and reading.step >= 0)
    assert len(reading.where) <= MAX_LABELS
    assert all(len(v) <= MAX_LABEL_CHARS and v.isprintable() for v in reading.where.values())


@pytest.mark.parametrize(
    "unit",
    [
        *string.punctuation,
        "1", "a", " ", "loss ", "loss=", "loss=1 ", "1.", "1,", "1/", "1e", "12:", "a/", "a-", "a.",
        "[", "[a", "(a ", "{'", "{'a': ", "{'a': 1, ", "tensor(", "tensor([", "1%|", "it/s, ",
        "epoch ", "step 1 ", "[1/2] ", "━", "│ 1 ", "│ loss ", "INFO ", "[INFO] ", "a=1, ", "a b ",
        "[0:00<0:00, ", "1/2 [00:01<00:02, ", "1|1|loss: ", "rank 1 ", "[rank1] ", "- ", " - a: 1",
        "2026-01-01 ", "nan ", "-inf", "x.py:1 ", "a: b: ", '{"a":', '{"log": "', "é", "1,000",
    ],
)  # fmt: skip
def test_no_repetition_takes_long(unit: str) -> None:
    """A pattern that backtracks would need hours for one of these lines: the test has a limit."""
    for text in (unit * 2_000, "loss: 1 " + unit * 2_000, "step 1 " + unit * 400 + " loss 2"):
        read_line(text)
        LineReader().read(text)
