"""L3.evaluated and L3.reduced: the mode of evaluations, and one metric of all ranks."""

from __future__ import annotations

from typing import Any

import pytest

from core.body import JSON
from tests.core.verify.light import Change, results


def finishing(*by_rank: dict[str, Any]) -> Change:
    """Finish records with these fields, rank by rank (of the full runs and the parity runs)."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for record in signals:
            if record["k"] == "finish":
                record.update(by_rank[min(record.get("rank", 0), len(by_rank) - 1)])

    return change


@pytest.mark.parametrize(
    ("mine", "other", "state"),
    [
        (0, 0, "pass"),
        (0, 2880, "fail"),
        (0, 1440, "fail"),
        (2880, 0, "fail"),
        (2880, 2880, "pass"),
        (0, 32, "pass"),
    ],
    ids=["eval", "eval() lost", "for one of two sets", "train() lost", "both", "a sanity batch"],
)
def test_the_mode_of_evaluations_is_the_reference_s(mine: int, other: int, state: str) -> None:
    before = finishing({"eval_train_mode": mine})
    change = finishing({"eval_train_mode": other})
    found = results([], [], before=before, change=change)["L3.evaluated"]
    assert found.state == state
    if other > 2 and state == "fail" and not mine:
        assert "model.eval() is not called" in found.reason


@pytest.mark.parametrize(
    ("kept", "other", "state"),
    [(True, 0, "fail"), (True, 2880, "pass"), (False, 0, "pass")],
    ids=["the live model", "the average", "another module, but no average"],
)
def test_where_an_average_is_evaluated_the_live_model_is_not(
    kept: bool, other: int, state: str
) -> None:
    def averaging(untrained: int) -> Change:
        finish = finishing({"eval_train_mode": 0, "eval_untrained": untrained})

        def change(steps: list[JSON], signals: list[JSON]) -> None:
            finish(steps, signals)
            if kept:
                found = [{"root": 0, "name": "EMA", "distance": 0.01}]
                signals.append({"k": "copies", "pid": 7, "tid": 7, "n": 4, "copies": found})

        return change

    found = results([], [], before=averaging(2880), change=averaging(other))["L3.evaluated"]
    assert found.state == state
    if state == "fail":
        assert found.summary == (
            "100% of the evaluation is of the trained model itself, not of its average"
        )


def test_a_run_that_broke_off_is_not_judged_by_its_evaluations() -> None:
    before, change = finishing({"eval_train_mode": 0}), finishing({"eval_train_mode": 2880})
    found = results([], [], before=before, change=change, exit_code=1)["L3.evaluated"]
    assert (found.state, "exit 0" in found.reason) == ("not run", True)


def test_fewer_samples_are_no_other_mode() -> None:
    before = finishing({"eval_train_mode": 1440, "eval_samples": 2880})
    change = finishing({"eval_train_mode": 1440, "eval_samples": 1800})
    found = results([], [], before=before, change=change)
    assert (found["L3.evaluated"].state, found["L3.samples"].state) == ("pass", "fail")


def test_a_run_that_evaluates_nothing_or_says_nothing_of_its_mode_is_not_judged() -> None:
    nothing = finishing({"eval_samples": 0, "eval_train_mode": 0})
    assert results([], [], both=nothing)["L3.evaluated"].state == "not run"
    assert results([], [])["L3.evaluated"].state == "not run"


REDUCED = {"collectives": {"all_reduce": 6}}


@pytest.mark.parametrize(
    ("other", "state"),
    [
        ({"all_reduce": 6}, "pass"),
        ({"all_reduce": 7}, "pass"),
        ({"mesh_reduce": 3}, "pass"),
        ({}, "fail"),
        ({"all_reduce": 3}, "fail"),
    ],
    ids=["same", "more", "another function", "none", "one of two"],
)
def test_as_many_collectives_as_the_reference_of_as_many_ranks(
    other: dict[str, int], state: str
) -> None:
    before, change = finishing(REDUCED), finishing({"collectives": other})
    found = results([], [], worlds=(4, 4), before=before, change=change)
    assert found["L3.reduced"].state == state, found["L3.reduced"].summary


@pytest.mark.parametrize(
    ("by_rank", "state"),
    [
        ([{"eval_last": 90, "collectives": {}}], "fail"),
        ([{"eval_last": 90, "collectives": {"mesh_reduce": 1}}], "pass"),
        ([{"eval_last": 360, "collectives": {}}], "pass"),
        ([{"eval_last": 360, "collectives": {}}, {"eval_last": 0, "collectives": {}}], "pass"),
        ([{"eval_last": 0, "collectives": {}}], "not run"),
    ],
    ids=["parts", "combined parts", "all on each", "all on the first", "nothing"],
)
def test_against_a_reference_of_one_process(by_rank: list[JSON], state: str) -> None:
    found = results([], [], worlds=(1, 4), change=finishing(*by_rank))["L3.reduced"]
    assert found.state == state, found.summary


def test_without_ranks_or_collectives_in_the_reference_there_is_nothing_to_compare() -> None:
    assert results([], [], both=finishing(REDUCED))["L3.reduced"].state == "not run"
    none = finishing({"collectives": {}})
    assert results([], [], worlds=(2, 2), both=none)["L3.reduced"].state == "not run"
