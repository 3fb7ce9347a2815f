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

#: line, reader, values, step, total, epoch
STYLES: list[tuple[str, str, dict[str, float], int | None, int | None, float | None]] = [
    (
        "{'loss': 2.71, 'learning_rate': 3.2e-05, 'epoch': 0.25}",
        "hf dict",
        {"loss": 2.71, "learning_rate": 3.2e-05},
        None,
        None,
        0.25,
    ),
    (
        "{'loss': nan, 'grad_norm': inf, 'step': 12}",
        "hf dict",
        {"loss": NAN, "grad_norm": math.inf},
        12,
        None,
        None,
    ),
    (
        "epoch 3: {'accuracy': 0.684, 'f1': 0.812}",
        "hf dict",
        {"accuracy": 0.684, "f1": 0.812},
        None,
        None,
        3,
    ),
    ("{'accuracy': np.float64(0.5)}", "hf dict", {"accuracy": 0.5}, None, None, None),
    (
        '{"step": 10, "max_steps": 90, "loss": 2.5, "train": {"lr": 1e-4, "ok": true}}',
        "json",
        {"loss": 2.5, "train_lr": 1e-4},
        10,
        90,
        None,
    ),
    (
        '{"log": "step 4 loss 1.5\\n", "stream": "stdout"}',
        "key value",
        {"loss": 1.5},
        4,
        None,
        None,
    ),
    (
        "1|30|Loss: 1.4142:   5%|▌         | 30/600 [00:33<10:27,  1.10s/it]",
        "torchtune",
        {"loss": 1.4142, "step_time_s": 1.1},
        30,
        600,
        1,
    ),
    (
        "Step 30 | loss:1.4142 lr:2e-05 tokens_per_second_per_gpu:512.5",
        "torchtune",
        {"loss": 1.4142, "lr": 2e-05, "tokens_per_second_per_gpu": 512.5},
        30,
        None,
        None,
    ),
    (
        "Epoch 2:  25%|██▌       | 50/200 [00:25<01:15,  2.00it/s, v_num=4, train_loss=0.525]",
        "lightning bar",
        {"train_loss": 0.525, "step_time_s": 0.5},
        50,
        200,
        2,
    ),
    (
        " 25%|██▌  | 50/200 [02:05<06:15,  2.50s/it, loss=0.525, lr=0.001]",
        "tqdm postfix",
        {"loss": 0.525, "lr": 0.001, "step_time_s": 2.5},
        50,
        200,
        None,
    ),
    ("  7/90 [03:30<41:30, 30.0s/it]", "tqdm bar", {"step_time_s": 30.0}, 7, 90, None),
    (
        "Epochs:  33%|███▎      | 1/3 [00:50<01:40, 50.0s/epoch]",
        "tqdm bar",
        {"epoch_time_s": 50.0},
        None,
        None,
        1,
    ),
    (
        "5/20 [======>.......] - ETA: 0s - loss: 0.75 - acc: 0.625",
        "keras bar",
        {"loss": 0.75, "acc": 0.625},
        5,
        20,
        None,
    ),
    (
        "5/20 ━━━━━━━━━━━━━━━━━━━━ 1s 50ms/step - accuracy: 0.625 - loss: 0.75",
        "keras bar",
        {"step_time_s": 0.05, "accuracy": 0.625, "loss": 0.75},
        5,
        20,
        None,
    ),
    (
        "20/20 - 1s - loss: 0.75 - val_loss: 0.875",
        "key value",
        {"loss": 0.75, "val_loss": 0.875},
        20,
        20,
        None,
    ),
    ("│   test_acc   │   0.8125   │", "table row", {"test_acc": 0.8125}, None, None, None),
    (
        "|arc_easy|      1|none  |     0|acc     |↑  |0.5625|±  |0.0101|",
        "table row",
        {"acc": 0.5625},
        None,
        None,
        None,
    ),
    ("loss: 0.625", "key value", {"loss": 0.625}, None, None, None),
    ("loss=0.625", "key value", {"loss": 0.625}, None, None, None),
    ("Loss 0.625", "key value", {"loss": 0.625}, None, None, None),
    ("epoch 7 train loss 10.25", "key value", {"train_loss": 10.25}, None, None, 7),
    (
        "epoch 4 val_loss 1.75 acc 62.5%",
        "key value",
        {"val_loss": 1.75, "acc": 62.5},
        None,
        None,
        4,
    ),
    (
        "| epoch   3 |   200/  900 batches | lr 5.00 | ms/batch 12.50 | loss  5.25 | ppl   190.57",
        "key value",
        {"lr": 5.0, "step_time_s": 0.0125, "loss": 5.25, "ppl": 190.57},
        200,
        900,
        3,
    ),
    (
        "Epoch [3/80] Iter [60/400] Loss 1.25 (1.50)",
        "key value",
        {"loss": 1.25, "loss_avg": 1.5},
        60,
        400,
        3,
    ),
    (
        "Epoch: [3][ 60/400]\tTime  0.5 ( 0.6)\tLoss 2.5000e+00 (2.7500e+00)\tAcc@1  12.50 ( 11.00)",
        "key value",
        {
            "time": 0.5,
            "time_avg": 0.6,
            "loss": 2.5,
            "loss_avg": 2.75,
            "acc@1": 12.5,
            "acc@1_avg": 11.0,
        },
        60,
        400,
        3,
    ),
    (
        " * Acc@1 71.250 Acc@5 90.125",
        "key value",
        {"acc@1": 71.25, "acc@5": 90.125},
        None,
        None,
        None,
    ),
    (
        "| epoch 002 | loss 8.5 | nll_loss 7.25 | ppl 152.2 | wps 900 | gnorm 1.5",
        "key value",
        {"loss": 8.5, "nll_loss": 7.25, "ppl": 152.2, "wps": 900.0, "gnorm": 1.5},
        None,
        None,
        2,
    ),
    (
        " iteration      300/  90000 | elapsed time per iteration (ms): 512.5 | lm loss: 6.5E+00 |",
        "key value",
        {"step_time_s": 0.5125, "lm_loss": 6.5},
        300,
        90000,
        None,
    ),
    (
        "iter 300: loss 2.7500, time 62.50ms, mfu 4.25%",
        "key value",
        {"loss": 2.75, "step_time_s": 0.0625, "mfu": 4.25},
        300,
        None,
        None,
    ),
    (
        "step 500: train loss 2.25, val loss 2.375",
        "key value",
        {"train_loss": 2.25, "val_loss": 2.375},
        500,
        None,
        None,
    ),
    (
        "[step 30] loss=1.5 grad_norm=0.75 lr=0.01",
        "key value",
        {"loss": 1.5, "grad_norm": 0.75, "lr": 0.01},
        30,
        None,
        None,
    ),
    (
        "Train Epoch: 2 [1280/50000 (3%)]\tLoss: 1.125000",
        "key value",
        {"loss": 1.125},
        None,
        None,
        2,
    ),
    (
        "Epoch(val) [4][79/79]  accuracy/top1: 71.5",
        "key value",
        {"accuracy_top1": 71.5},
        79,
        79,
        4,
    ),
    (
        "running_loss = tensor(512., device='xla:2')",
        "key value",
        {"running_loss": 512.0},
        None,
        None,
        None,
    ),
    ("loss tensor([[0.5]], grad_fn=<MeanBackward0>)", "key value", {"loss": 0.5}, None, None, None),
    ("  eval_loss               =     2.2500", "key value", {"eval_loss": 2.25}, None, None, None),
    ("loss: 1,234.5", "key value", {"loss": 1234.5}, None, None, None),
    ("loss: -inf", "key value", {"loss": -math.inf}, None, None, None),
    ("loss nan", "key value", {"loss": NAN}, None, None, None),
    ("step time 0.75 s (cold)", "key value", {"step_time_s": 0.75}, None, None, None),
    ("STEP:  3", "key value", {}, 3, None, None),
    ("Epoch 3/80", "key value", {}, None, None, 3),
    ("F1 score: 0.8125", "key value", {"f1_score": 0.8125}, None, None, None),
    (
        "Best accuracy so far: 0.8125",
        "key value",
        {"best_accuracy_so_far": 0.8125},
        None,
        None,
        None,
    ),
    (
        "epoch 20: eight cores 51.5% | one core 72.5%",
        "key value",
        {"eight_cores": 51.5, "one_core": 72.5},
        None,
        None,
        20,
    ),
    ("Max Accuracy: 81.25%", "key value", {"max_accuracy": 81.25}, None, None, None),
    (
        "Epoch [1][200/9000]\tlr: 1.000e-03, eta: 6 days, 15:22:46, time: 0.5, loss/a/b: 1.25, loss: nan",
        "key value",
        {"lr": 1e-3, "time": 0.5, "loss_a_b": 1.25, "loss": NAN},
        200,
        9000,
        1,
    ),
    (
        "step: 40/ 900 loss:0.5 0.25 imps:26.5 lr: 0.125 etc:Tue Sep 17 15:31:41 2019",
        "key value",
        {"loss": 0.5, "imps": 26.5, "lr": 0.125},
        40,
        900,
        None,
    ),
    (
        "step 40/900 | loss 3.5 (+0.12z)| norm 1.25 (-0.1z)| lr 6.00e-04 | 245.12 ms | 213 tok/s",
        "key value",
        {"loss": 3.5, "norm": 1.25, "lr": 6e-4},
        40,
        900,
        None,
    ),
    (
        " iteration 5/ 9 | grad norm: nan | number of nan iterations:   0 | samples per second: 1.5 |",
        "key value",
        {"grad_norm": NAN, "number_of_nan_iterations": 0.0, "samples_per_second": 1.5},
        5,
        9,
        None,
    ),
    ("restarted at step 700: loss 1.625", "key value", {"loss": 1.625}, 700, None, None),
    ("step 3 mask_sum=1234", "key value", {"mask_sum": 1234.0}, 3, None, None),
]


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


PREFIXES = [
    "2026-05-01 10:00:00,123 - INFO - ",
    "2026-05-01 10:00:00 | INFO | my.module | ",
    "[2026-05-01 10:00:00,123][train][INFO] - ",
    "INFO:__main__:",
    "INFO:root:",
    "[INFO] ",
    "05/01/2026 10:00:00 - INFO - __main__ - ",
    "05/01/2026 10:00:00 - INFO - __main__ -   ",
    "I0501 10:00:00.123456 140000 train.py:40] ",
    "[INFO|trainer.py:100] 2026-05-01 10:00:00,123 >> ",
    "[2026-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] ",
    "10:00:00 ",
    "\x1b[32m2026-05-01 10:00:00\x1b[0m ",
    "[default1]: ",
    "[rank3]: ",
    "  ",
]


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


NO_READING = [
    "",
    "Namespace(lr=0.1, batch_size=32, loss='ce', label_loss=1.0)",
    "TrainingArguments(eval_loss=1.0, learning_rate=5e-05)",
    "lr=0.1 batch_size=32 epochs=3",
    "{'lr': 0.1, 'batch_size': 32, 'epochs': 10, 'loss': 'mse'}",
    '{"learning_rate": 0.1, "seed": 1, "label_smoothing": 0.1, "loss_weight": 0.5}',
    "loss_weight: 0.5",
    "target_acc=0.93",
    "max_grad_norm: 1.0",
    "precision: 32",
    "num_epochs: 10",
    "max_steps = 1000",
    "lora_rank=16 alpha=32",
    "Training with label smoothing loss 0.1",
    "The loss was 1.5 times higher than we expected after the third step of it",
    "We trained for 3 epochs and the result was good",
    "val_loss improved from 0.5 to 0.4, saving the model",
    "Memory: 0.75",
    "peak memory: 15.1 GiB",
    "max memory allocated 12.3 GB",
    "torch 2.9.1, torch_xla 2.9.0",
    "loss 2.9.1",
    "/home/user/runs/loss=0.31/model.pt",
    "Saving model to out/epoch=3-val_loss=0.25.ckpt",
    "Saving model checkpoint to runs/checkpoint-900",
    '  File "/home/user/train.py", line 40, in step',
    "    loss = 0.5 * other + 3",
    "    loss = criterion(output, target)",
    "    return 0.5 * loss",
    "RuntimeError: loss 3.0 is not finite",
    "/usr/lib/python3/site-packages/x.py:31: UserWarning: loss: 3.0 is odd",
    "error: 404",
    "Error 404: accuracy endpoint not found",
    "HTTP/1.1 200 OK 12 ms",
    "parameters: 98.5M",
    "Step 1: install the package",
    "[Step 2/5] Installing dependencies",
    "Loading checkpoint shards: 100%|██████████| 3/3 [00:05<00:00,  1.7s/it]",
    "model.safetensors:  10%|█         | 100M/1.1G [00:05<00:50, 19.0MB/s]",
    "Map: 100%|██████████| 1000/1000 [00:01<00:00, 900.00 examples/s]",
    "Downloading data: 100%|██████████| 12.3M/12.3M [00:01<00:00, 9.1MB/s]",
    "Uploading model 30% done",
    "Metric: CompileTime",
    "  Percentiles: 1%=512; 50%=812; 99%=1823",
    "  Accumulator: 01s312ms",
    "pt-xla-profiler: CompileTime too frequent: 37 counts during 15 steps",
    "Compilation Analysis:   Number of Graph Inputs: 6",
    "Used 12.50G of 15.75G hbm. Exceeded by 1.25G.",
    "epoch took 5 minutes",
    "2026-05-01 10:00:00,123 - INFO - starting",
    "after the backward of the loss",
    "Accuracy is important; see table 3",
    "accuracy: see below (section 4)",
    "nan",
    "| epoch | loss |",
    "# Step 2.",
    "score = 0",
    "err = 1;",
    "shards_map = [1] * len(shape)",
    "loss = (1.0 - self.config.eps) * loss + eps_i * smooth_loss",
    "ious = box_iou(targets[idx], targets)[0][0]",
    '{"none": 0, "score": 2, "choice": 8}',
]


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
