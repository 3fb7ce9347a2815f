"""L1.dropout and L1.frozen: what of the model is trained, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from core.body import JSON
from tests.core.scene import NAMES
from tests.core.verify.light import Change, results


def telling(
    modules: dict[str, int] | None = None,
    calls: dict[str, int] | None = None,
    **model: Any,
) -> Change:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for record in signals:
            if record["k"] == "model" and "names" in record:  # the first one
                record.update({"dropouts": modules} if modules is not None else {}, **model)
            if record["k"] == "finish" and calls is not None:
                record["functional_dropout"] = calls

    return change


SAME = {"dropout 0.1": 2, "attention 0.1": 1}


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (SAME, ""),
        ({"dropout 0.1": 3}, ""),
        ({"dropout 0.1": 2, "attention 0.1": 4}, ""),
        ({"attention 0.1": 1}, "dropout of 0.1 in 1 calls instead of 3"),
        ({}, "dropout of 0.1 in 0 calls instead of 3"),
        ({"dropout 0.2": 3}, "dropout of 0.2 instead of 0.1"),
        ({**SAME, "dropout 0.5": 1}, "dropout of 0.5 in 1 calls instead of 0"),
    ],
    ids=["same", "written out", "more in kernels", "module lost", "all lost", "other p", "new"],
)
def test_dropout_calls_of_the_first_training_forward(calls: dict[str, int], text: str) -> None:
    found = results([], [], before=telling({}, SAME), change=telling({}, calls))["L1.dropout"]
    assert (found.state, text) == ("fail" if text else "pass", found.summary if text else "")
    assert found.runs == ["r4"]  # the parity run, in which dropout is off


def test_steps_in_evaluation_mode_drop_nothing() -> None:
    def left(steps: list[JSON], signals: list[JSON]) -> None:
        telling({}, SAME)(steps, signals)
        for step in steps[2:]:  # model.eval() of the first evaluation, and no model.train() again
            step["samples"] = 0
        for record in signals:
            if record["k"] == "finish":
                record["eval_samples"] += 64

    def unseen(steps: list[JSON], signals: list[JSON]) -> None:
        left(steps, signals)
        for record in signals:
            if record["k"] == "finish":
                record["eval_samples"] -= 64

    before = telling({}, SAME)
    found = results([], [], before=before, change=left)["L1.dropout"]
    assert found.state == "fail"
    assert found.summary.startswith("steps 3 to 4 are made in evaluation mode")
    assert results([], [], before=left, change=left)["L1.dropout"].state == "pass"
    assert results([], [], before=before, change=unseen)["L1.dropout"].state == "pass"

    def of_none(steps: list[JSON], signals: list[JSON]) -> None:
        left(steps, signals)
        telling({}, {})(steps, signals)

    none = results([], [], before=telling({}, {}), change=of_none)["L1.dropout"]
    assert none.summary == "no dropout"


def test_modules_count_where_calls_are_hidden_and_recurrent_layers_always() -> None:
    before = telling({"dropout 0.1": 2, "recurrent 0.3": 1}, SAME)
    hidden = telling({"recurrent 0.3": 1})
    found = results([], [], before=before, change=hidden)["L1.dropout"]
    assert found.summary == "dropout of 0.1 in 0 modules instead of 2"
    lost = results([], [], before=before, change=telling({}, SAME))["L1.dropout"]
    assert lost.summary == "dropout of 0.3 in 0 modules instead of 1"
    functions = telling({"recurrent 0.3": 1}, SAME)  # modules replaced by functions
    assert results([], [], before=before, change=functions)["L1.dropout"].state == "pass"
    assert results([], [])["L1.dropout"].state == "not run"


def test_frozen_parameters_are_compared_by_name() -> None:
    before = telling(frozen=[NAMES[0]])
    assert results([], [], both=before)["L1.frozen"].state == "pass"
    thawed = results([], [], before=before, change=telling(frozen=[]))["L1.frozen"]
    assert thawed.summary == "1 frozen tensor(s) are trained, first embed.weight"
    frozen = results([], [], before=before, change=telling(frozen=NAMES[:2]))["L1.frozen"]
    assert frozen.summary == "1 trained tensor(s) are frozen, first head.weight"
    renamed = telling(frozen=["net.e"], names=["net.e", "net.w", "net.b"])
    assert results([], [], before=before, change=renamed)["L1.frozen"].state == "pass"
    assert results([], [])["L1.frozen"].state == "not run"


def test_layers_that_are_thawed_later_are_seen_in_the_full_runs() -> None:
    first = telling(frozen=[NAMES[0]], trainable=500)
    later = {"k": "model", "pid": 7, "tid": 7, "parameters": 1500, "trainable": 1500}
    assert results([later], [later], both=first)["L1.frozen"].state == "pass"
    found = results([later], [], both=first)["L1.frozen"]
    assert found.summary == "in the end 500 trained elements instead of 1500"
