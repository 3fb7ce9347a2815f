"""Finding the metric: by pattern, by reader and key, by name alone, and in result files."""

from __future__ import annotations

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import result_file
from core.errors import PilotageError
from core.metric import MetricReading, find_metric, named, printed_names, read_metric
from core.readings.training import Reading, read_line
from core.result_file import ResultFile, at_path
from core.run_lines import LogLine, RunLines

LOG = [
    "epoch 1 train_loss 2.5 val_loss 2.75",
    "{'eval_loss': 2.25, 'eval_accuracy': 0.5, 'epoch': 1.0}",
    "{'eval_loss': 2.125, 'eval_accuracy': 0.625, 'epoch': 2.0}",
    "test accuracy: 0.5625 (9/16)",
    "done",
]


def find(lines: list[str], **config: Any) -> MetricReading:
    found = find_metric(lines, config)
    assert found is not None
    return found


# --- in the output --------------------------------------------------------------------------------


def test_a_pattern_wins_over_everything_else() -> None:
    found = find(LOG, pattern=r"val_loss ([0-9.]+)", name="test accuracy", file="x.json", key="y")
    assert found == MetricReading(2.75, "line 1", "pattern val_loss ([0-9.]+)", LOG[0])


def test_a_name_alone_is_looked_for_by_all_readers() -> None:
    found = find(LOG, name="test accuracy")
    assert (found.value, found.source) == (0.5625, "line 4")
    assert found.how == "reader key value, value test_accuracy"
    assert found.text == LOG[3]


def test_reader_and_key_choose_among_forms_of_output() -> None:
    found = find(LOG, reader="hf dict", key="eval_accuracy")
    assert (found.value, found.source) == (0.625, "line 3")
    assert find(LOG, key="Train Loss").value == 2.5
    assert find_metric(LOG, {"reader": "json", "key": "eval_accuracy"}) is None
    assert find(LOG, reader="hf dict", name="eval acc").value == 0.625


def test_the_line_that_matched_is_named_by_its_number_and_stream() -> None:
    lines = RunLines([LogLine(1, "stdout", "x"), LogLine(1, "stderr", "acc: 0.5")])
    lines.elide(1_000)
    found = find_metric(lines, {"name": "acc"})
    assert found is not None and found.source == "line 2 of stderr"


def test_rows_under_names_are_found_too() -> None:
    found = find(["epoch  loss  acc", "1  0.5  0.75", "2  0.25  0.875", "bye"], name="accuracy")
    assert (found.value, found.source) == (0.875, "line 3")


def test_an_unknown_reader_is_a_sentence_and_a_file_is_not_output() -> None:
    with pytest.raises(PilotageError, match="reader 'yaml' is not known. Write one of: json"):
        find_metric(LOG, {"reader": "yaml", "key": "x"})
    assert find_metric(LOG, {"name": "test accuracy", "file": "r.json"}) is None


def test_what_was_printed_is_listed_where_the_wanted_name_is_missing() -> None:
    assert find_metric(LOG, {"name": "bleu"}) is None
    assert printed_names(LOG, {})[:2] == ["test_accuracy", "eval_loss"]
    assert printed_names(LOG, {"reader": "hf dict"}) == ["eval_loss", "eval_accuracy"]


def test_nan_is_a_value() -> None:
    assert math.isnan(read_metric(["val acc: nan"], {"name": "val acc"}) or 0.0)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("test accuracy", "test_acc: 0.5"),
        ("test accuracy", "Test Accuracy = 0.5"),
        ("test accuracy", "accuracy/test: 0.5"),
        ("test accuracy", "Test set: Accuracy: 0.5"),
        ("test_acc", "test accuracy 0.5"),
        ("validation loss", "val_loss=0.5"),
        ("valid ppl", "| validation perplexity 0.5"),
        ("acc@1", "Acc@1 0.5"),
        ("top1 accuracy", "epoch 1 acc1: 0.5"),
        ("f1", "f1_score: 0.5"),
        ("mean reward", "average reward: 0.5"),
    ],
)
def test_a_name_means_its_usual_spellings(name: str, line: str) -> None:
    reading = read_line(line)
    assert reading is not None
    found = named(reading, name)
    assert found is not None and reading.values[found] == 0.5


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("accuracy", "val_accuracy: 0.5"),
        ("test accuracy", "accuracy: 0.5"),
        ("test accuracy", "train accuracy: 0.5"),
        ("eval_loss", "val_loss: 0.5"),
        ("loss", "loss_avg: 0.5 train_loss: 0.5"),
    ],
)
def test_a_name_does_not_mean_another_quantity(name: str, line: str) -> None:
    reading = read_line(line)
    assert reading is not None
    assert named(reading, name) is None


def test_a_name_that_says_nothing_means_nothing() -> None:
    assert named(Reading("json", {"": 1.0}), "!!") is None


# --- in a result file -----------------------------------------------------------------------------


def in_file(root: Path, name: str, content: str | bytes, key: str) -> MetricReading:
    data = content if isinstance(content, bytes) else content.encode()
    (root / name).write_bytes(data)
    return ResultFile(root, name).read({"file": name, "key": key}, None)


def test_a_json_file(tmp_path: Path) -> None:
    text = json.dumps({"results": {"eval": {"accuracy": 0.75, "n": 12}}})
    found = in_file(tmp_path, "r.json", text, "results.eval.accuracy")
    assert found == MetricReading(
        0.75,
        "r.json, results.eval.accuracy",
        "key results.eval.accuracy",
        "results.eval.accuracy: 0.75",
    )
    log = json.dumps({"log_history": [{"eval_loss": 0.5}, {"eval_loss": 0.25}, {"loss": 1}]})
    found = in_file(tmp_path, "s.json", log, "log_history.eval_loss")
    assert (found.value, found.source) == (0.25, "s.json, log_history.1.eval_loss")
    with pytest.raises(PilotageError, match=r"has no number at 'x.y'. It has: log_history"):
        in_file(tmp_path, "s.json", log, "x.y")
    with pytest.raises(PilotageError, match="is no JSON"):
        in_file(tmp_path, "t.json", "{", "x")
    with pytest.raises(PilotageError, match="nested too deep|no JSON"):
        in_file(tmp_path, "u.json", "[" * 100_000, "x")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1.0),
        ("a.b.c", 2.0),
        ("list.-1", 5.0),
        ("list.0", 4.0),
        ("list", 5.0),
        ("rows.x", 7.0),
        ("rows.0.x", 6.0),
        ("Test Acc", 0.5),
        ("text", 12.5),
        ("a", None),
        ("list.9", None),
        ("yes", None),
        ("", None),
        ("..", None),
    ],
)
def test_dotted_paths(path: str, value: float | None) -> None:
    data = {
        "a": {"b": 1},
        "a.b.c": 2,
        "list": [4, 5],
        "rows": [{"x": 6}, {"x": 7}, {"y": 8}],
        "test_acc": 0.5,
        "text": "12.5%",
        "yes": True,
    }
    found = at_path(data, path)
    assert (found[0] if found else None) == value


def test_json_lines(tmp_path: Path) -> None:
    text = '{"step": 1, "acc": 0.5}\n{"step": 2, "acc": 0.625}\n{"step": 3}\n{"acc": 0.9'
    found = in_file(tmp_path, "log.jsonl", text, "acc")
    assert (found.value, found.source) == (0.625, "log.jsonl, line 2")
    # Such a log is often named .json.
    assert in_file(tmp_path, "log.json", text, "acc").value == 0.625
    with pytest.raises(
        PilotageError, match="no line with a number at 'f1'. Its first has: step, acc"
    ):
        in_file(tmp_path, "log.jsonl", text, "f1")


@pytest.mark.parametrize(
    "text",
    [
        "epoch,val acc,loss\n1,0.5,2\n2,0.625,1\n",
        "\ufeffepoch;val acc;loss\r\n1;0.5;2\r\n2;0.625;1\r\n3;;\r\n",
        "epoch\tval acc\n1\t0.5\n2\t62.5%\n",
        'epoch,"val acc"\n1,0.5\n2,"0.625"\n3\n',
    ],
)
def test_csv(tmp_path: Path, text: str) -> None:
    found = in_file(tmp_path, "r.csv", text, "val_acc")
    assert found.value in (0.625, 62.5)
    assert found.source == "r.csv, line 3"
    assert found.how == "column val acc"
    with pytest.raises(PilotageError, match="has no column 'f1'. It has: epoch, val acc"):
        in_file(tmp_path, "r.csv", text, "f1")


def test_what_is_not_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = tmp_path / "project", tmp_path / "secret.json"
    root.mkdir()
    outside.write_text('{"acc": 1}')

    def why(name: str, before: result_file.Stamp | None = None, key: str = "acc") -> str:
        with pytest.raises(PilotageError) as caught:
            ResultFile(root, name).read({"key": key}, before)
        return str(caught.value)

    assert why("none.json") == "The run wrote no result file none.json."
    (root / "link.json").symlink_to(outside)
    assert "lies outside the project" in why("link.json")
    assert "lies outside the project" in why("../secret.json")
    (root / "up").symlink_to(tmp_path)
    assert "lies outside the project" in why("up/secret.json")
    (root / "loop.json").symlink_to(root / "loop.json")
    assert "can't be read" in why("loop.json")
    os.mkfifo(root / "pipe.json")
    assert "is no regular file" in why("pipe.json")
    (root / "dir.json").mkdir()
    assert "is no regular file" in why("dir.json")
    (root / "r.json").write_text('{"acc": 0.5}')
    before = ResultFile(root, "r.json").stamp()
    assert "was there before the run" in why("r.json", before)
    assert "set [metric] key" in why("r.json", key="")
    (root / "r.yaml").write_text("acc: 1")
    assert "is of no known kind" in why("r.yaml")
    monkeypatch.setattr(result_file, "MAX_JSON_MB", 0.000001)
    assert "MB are read" in why("r.json")


def test_a_file_that_the_run_wrote_anew_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"acc": 0.5}')
    os.utime(path, ns=(1, 1))
    file = ResultFile(tmp_path, "r.json")
    before = file.stamp()
    path.write_text('{"acc": 0.5}')
    assert file.read({"name": "acc"}, before).value == 0.5
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "l.json").symlink_to(path)
    assert ResultFile(tmp_path, "inside/l.json").read({"name": "acc"}, None).value == 0.5


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_JSON, st.text(alphabet="ab.-01", max_size=12))
def test_no_document_and_no_path_break_it(document: Any, path: str) -> None:
    found = at_path(document, path)
    assert found is None or isinstance(found[0], float)


@given(st.binary(max_size=200), st.sampled_from([".json", ".jsonl", ".csv", ".tsv"]))
def test_no_content_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, end: str
) -> None:
    root = tmp_path_factory.getbasetemp()
    with contextlib.suppress(PilotageError):
        assert isinstance(in_file(root, f"any{end}", data, "a").value, float)
