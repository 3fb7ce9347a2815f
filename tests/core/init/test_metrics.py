"""Where the metric is: the lines a program prints, the dicts it logs, the files it writes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.init import metric_names as names
from core.init.templates import Hole, last_line, parts_of, pattern_for, sample_line
from core.metric import find_metric
from tests.core.init.reading import metrics

HEAD = "import torch\nimport logging\nlogger = logging.getLogger()\n"
MAIN = "if __name__ == '__main__':\n    loss.backward()\n"


@pytest.mark.parametrize(
    ("line", "printed", "value", "name", "points"),
    [
        ('print("accuracy:", acc)', "accuracy: 0.91", 0.91, "accuracy", 100),
        ('print(f"test acc {acc:.2%}")', "test acc 91.25%", 91.25, "test acc", 1),
        ('print("Accuracy: {}/{} ({:.0f}%)".format(c, n, 100.0 * c / n))',
         "Accuracy: 91/100 (91%)", 91.0, "accuracy", 1),
        ('print("loss %.4f ppl %.2f" % (loss, ppl))', "loss 2.1000 ppl 8.17", 8.17, "ppl", 0),
        ('logger.info("epoch %d valid F1 = %.3f", e, f1)',
         "2026-01-01 INFO epoch 3 valid F1 = 0.811", 0.811, "valid F1", 100),
        ('print("BLEU = " + str(bleu))', "BLEU = 27.3", 27.3, "BLEU", 0),
        ('print(f"[{epoch}] mAP@50: {100 * m:5.2f}")', "[3] mAP@50: 41.20", 41.2, "mAP@50", 1),
        ('tqdm.write(f"val_loss={v:.3e} val_acc={a:.3f}")',
         "val_loss=1.200e-01 val_acc=0.913", 0.913, "val acc", 100),
        ('print(" * Prec@1 {top1.avg:.3f} Prec@5 {top5.avg:.3f}".format(top1=a, top5=b))',
         " * Prec@1 76.130 Prec@5 92.862", 76.13, "Prec@1", 1),
        ('print(f"WER: {w}")', "WER: 0.081", 0.081, "WER", 0),
        ('print("Test Accuracy of the model: %d %%" % (100 * right / total))',
         "Test Accuracy of the model: 97 %", 97.0, "test accuracy of the model", 1),
        ('print(f"epoch {e}\\n  test: auc={auc:.4f}\\n")', "  test: auc=0.7713", 0.7713, "test auc", 100),
        ('print(json.dumps({"accuracy": a, "n": 3}))', '{"accuracy": 0.5, "n": 3}', 0.5,
         "accuracy", 100),
        ('print({"eval_f1": f, "epoch": 1})', "{'eval_f1': 0.75, 'epoch': 1}", 0.75, "eval f1", 100),
    ],
)  # fmt: skip
def test_printed_lines(
    line: str, printed: str, value: float, name: str, points: float, tmp_path: Path
) -> None:
    code = f"import json\n{HEAD}def report():\n    {line}\n{MAIN}"
    place = metrics(tmp_path, code)[0]
    assert (place.name, place.points, place.source) == (name, points, "train.py:6")
    table = {"pattern": place.pattern, "reader": place.reader, "key": place.key}
    found = find_metric(["something else 5", printed, "done 3"], table)
    assert found is not None and found.value == value


@pytest.mark.parametrize(
    "line",
    ['print("lossless")', 'print("epoch", e)', 'print(f"took {t:.1f} s")', "print(loss)",
     'print("learning rate %g" % lr)', 'print(*values)', 'print(f"{acc}")', 'self.log("x", y)'],
)  # fmt: skip
def test_lines_that_print_no_metric_by_a_name(line: str, tmp_path: Path) -> None:
    assert metrics(tmp_path, f"{HEAD}def report():\n    {line}\n{MAIN}") == []


def test_the_evaluation_wins_over_the_training_and_quality_over_loss(tmp_path: Path) -> None:
    code = f"""
{HEAD}
def train():
    for x in loader:
        loss = model(x)
        loss.backward()
        print(f"train accuracy {{acc:.3f}} loss {{loss:.3f}}")

def evaluate():
    print(f"loss {{loss:.3f}}, accuracy {{acc:.3f}}")

def main():
    print("test loss", loss)
{MAIN}"""
    found = metrics(tmp_path, code)
    assert [(p.name, p.source) for p in found][:2] == [
        ("eval accuracy", "train.py:12"),
        ("eval loss", "train.py:12"),
    ]
    assert found[-1].name == "train loss" and not found[-1].higher_is_better


def test_a_pattern_that_another_line_matches_is_anchored_or_said(tmp_path: Path) -> None:
    code = f"""
{HEAD}
def evaluate():
    print(f"accuracy {{acc}}")
def train():
    print(f"train accuracy {{acc}}")
{MAIN}"""
    place = metrics(tmp_path, code)[0]
    assert place.source == "train.py:6" and place.pattern.startswith("^accuracy ")
    found = find_metric(["accuracy 0.5", "train accuracy 0.9"], {"pattern": place.pattern})
    assert found is not None and found.value == 0.5


@pytest.mark.parametrize(
    ("code", "file", "key"),
    [
        ('json.dump({"acc": a}, open("out/r.json", "w"))', "out/r.json", "acc"),
        ('with open(os.path.join(args.out, "r.json"), "w") as f:\n        json.dump(res, f)',
         "exp/a/r.json", "acc"),
        ('(Path(args.out) / "r.json").write_text(json.dumps(res))', "exp/a/r.json", "acc"),
        ('w = csv.DictWriter(open("log.csv", "w"), fieldnames=["epoch", "val_acc"])', "log.csv",
         "val_acc"),
        ('w = csv.writer(open("log.csv", "w"))\n    w.writerow(["epoch", "val_acc"])', "log.csv",
         "val_acc"),
    ],
)  # fmt: skip
def test_result_files(code: str, file: str, key: str, tmp_path: Path) -> None:
    source = f"""import argparse, csv, json, os, torch
from pathlib import Path
p = argparse.ArgumentParser()
p.add_argument("--out", default="exp/a")
args = p.parse_args()
def report():
    res = {{"acc": a, "n": 1}}
    {code}
{MAIN}"""
    place = metrics(tmp_path, source)[0]
    assert (place.file, place.key, place.pattern) == (file, key, "")


@pytest.mark.parametrize(
    "path", ['"/abs/r.json"', '"../r.json"', "name", 'f"{x}/r.json"', '"a.txt"']
)
def test_a_file_at_an_unknown_place_is_not_named(path: str, tmp_path: Path) -> None:
    code = f'import json, torch\njson.dump({{"acc": a}}, open({path}, "w"))\n{MAIN}'
    assert metrics(tmp_path, code) == []


def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    base = """
import torch
from transformers import Trainer, TrainingArguments
def compute_metrics(p):
    return {"f1": f1, "em": em}
trainer = Trainer(model, TrainingArguments("out"%s), compute_metrics=compute_metrics)
trainer.train()
%s
if __name__ == "__main__":
    pass
"""
    during = metrics(tmp_path, base % (', eval_strategy="epoch"', ""))[0]
    assert (during.reader, during.key, during.points) == ("hf dict", "eval_f1", 100)
    line = "{'eval_loss': 0.1, 'eval_f1': 0.5, 'eval_em': 0.4, 'epoch': 1.0}"
    found = find_metric([line], {"reader": during.reader, "key": during.key})
    assert found is not None and found.value == 0.5

    after = metrics(tmp_path, base % ("", "trainer.evaluate()"))[0]
    assert after.key == "eval_f1" and "only with --disable_tqdm" in after.edit
    shown = metrics(tmp_path, base % ("", "m = trainer.evaluate()\nprint(m)"))[0]
    assert shown.key == "eval_f1" and not shown.edit
    logged = metrics(tmp_path, base % ("", 'trainer.log_metrics("eval", trainer.evaluate())'))[0]
    found = find_metric(["  eval_f1        =     0.8125"], {"pattern": logged.pattern})
    assert found is not None and found.value == 0.8125
    trained = metrics(tmp_path, base % ("", ""))[0]
    assert trained.key == "train_loss" and not trained.higher_is_better


def test_lightning(tmp_path: Path) -> None:
    code = f"""
import torch
import lightning as L
class Net(L.LightningModule):
    def validation_step(self, batch, i):
        self.log("val_acc", acc, prog_bar=True)
        self.log("val_loss", loss)
L.Trainer().fit(Net())
{MAIN}"""
    best, other = metrics(tmp_path, code)
    assert (best.key, best.notes, best.higher_is_better) == ("val_acc", (), True)
    assert other.key == "val_loss" and "prog_bar" in other.notes[0]


@pytest.mark.parametrize(
    ("name", "lower", "share"),
    [("val_loss", True, False), ("perplexity", True, False), ("word error", True, False),
     ("MAE", True, False), ("top1 accuracy", False, True), ("macro F1", False, True),
     ("bleu", False, False), ("testAccuracy", False, True), ("accuracy loss", True, False)],
)  # fmt: skip
def test_direction_and_scale_by_name(name: str, lower: bool, share: bool) -> None:
    assert names.lower_is_better(name) is lower
    assert names.is_share(name) is share


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20)


@given(_TEXT, _TEXT, _TEXT)
def test_a_pattern_that_is_proposed_reads_its_own_line(
    before: str, between: str, after: str
) -> None:
    """Whatever the texts are: the pattern finds the value of its hole, or there is no pattern."""
    call = ast.parse(f"print({before!r} + str(a) + {between!r} + str(b) + {after!r})").body[0]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    for line in last_line(parts_of(call.value)):
        for part in line:
            if isinstance(part, Hole) and (pattern := pattern_for(line, part)):
                shown = sample_line(line, part, 0.25)
                match = re.search(pattern, shown)
                assert match is not None and float(match[1].rstrip(".")) == 0.25
