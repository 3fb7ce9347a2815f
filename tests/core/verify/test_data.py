"""L1.data, L2.shards, L3.samples, L3.budget: what is trained and evaluated on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.body import JSON
from tests.core.verify.light import passed, ranked, results

EPOCHS = [passed(n) for n in (1, 2, 3)]


def verdict(theirs: list[JSON], ours: list[JSON] = EPOCHS, **more: Any) -> tuple[str, str]:
    found = results(ours, theirs, **more)["L1.data"]
    return found.state, found.summary if found.state != "not run" else found.reason


def test_the_same_passes_are_right_whatever_the_workers_and_the_hashes_of_batches() -> None:
    theirs = [passed(n, workers=4, first=f"other{n}", first_ids=f"others{n}") for n in (1, 2, 3)]
    assert verdict(theirs) == ("pass", "3 pass(es) over the data")
    found = results(EPOCHS, theirs)["L1.data"]
    assert (found.runs, found.reference_runs) == (["r3"], ["r1"])  # of the full runs


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (
            [passed(n, batches=4, samples=64, drop_last=True) for n in (1, 2, 3)],
            "64 samples in pass 1 instead of 70 (drop_last drops an incomplete batch)",
        ),
        (
            [passed(n, samples=60, dataset_len=60) for n in (1, 2, 3)],
            "a data set of 60 samples instead of 70",
        ),
        (
            [passed(1), passed(2, samples=32, batches=2, complete=False), passed(3)],
            "32 samples in pass 2 instead of 70 (it was not made to its end)",
        ),
        (EPOCHS[:2], "2 passes over the training data instead of 3"),
        (
            [passed(n, first="a", first_ids="b") for n in (1, 2, 3)],
            "every pass begins with the same samples, the reference's with others each time",
        ),
        (
            [passed(n, loader=n, first="a", first_ids="b") for n in (1, 2, 3)],
            "every pass begins with the same samples, the reference's with others each time",
        ),
        ([passed(n, in_order=True) for n in (1, 2, 3)], "the training data are no longer shuffled"),
    ],
    ids=["drop_last", "subset", "broken off", "epochs", "order", "order, new loaders", "shuffle"],
)
def test_other_data_than_the_reference_s_fail(theirs: list[JSON], text: str) -> None:
    assert verdict(theirs) == ("fail", text)


def test_drop_last_that_drops_nothing_is_no_fault() -> None:
    ours = [passed(n, samples=64, dataset_len=64, batches=4) for n in (1, 2)]
    theirs = [{**record, "drop_last": True} for record in ours]
    assert verdict(theirs, ours)[0] == "pass"


def test_an_order_that_the_reference_fixes_too_is_right_and_one_that_it_fixes_alone_is_not() -> (
    None
):
    fixed = [passed(n, first="a", first_ids="b") for n in (1, 2, 3)]
    assert verdict(fixed, fixed)[0] == "pass"
    assert verdict(EPOCHS, fixed)[0] == "fail"
    # Augmentation alone: the indices are not known.
    unknown = [passed(n, first="a", first_ids=None) for n in (1, 2, 3)]
    varied = [passed(n, first_ids=None) for n in (1, 2, 3)]
    assert verdict(varied, unknown)[0] == "pass"


def test_a_pass_that_the_reference_breaks_off_says_nothing_of_a_loader_that_reads_ahead() -> None:
    ours = [passed(1, samples=32, batches=2, complete=False)]
    assert verdict([passed(1)], ours)[0] == "pass"


def test_without_loaders_on_both_sides_nothing_is_compared() -> None:
    assert verdict([])[0] == "not run"
    assert verdict(EPOCHS, [])[0] == "not run"
    assert verdict([passed(1, role="eval")], EPOCHS)[0] == "not run"


@pytest.mark.parametrize(
    ("samples", "state"),
    [
        ((35, 35), "pass"),
        ((48, 48), "pass"),
        ((70, 70), "fail"),
        ((32, 32), "fail"),
        ((35, 34), "pass"),
    ],
    ids=["halves", "even batches", "all on each rank", "drop_last", "less than the ranks fewer"],
)
def test_over_more_ranks_the_samples_are_summed(samples: tuple[int, int], state: str) -> None:
    theirs = [
        ranked(passed(n, samples=count, batch_size=16, first=f"{rank}.{n}"), rank)
        for n in (1, 2, 3)
        for rank, count in enumerate(samples)
    ]
    found = results(EPOCHS, theirs, worlds=(1, 2))
    assert found["L1.data"].state == state, found["L1.data"].summary
    assert found["L2.shards"].state == "pass"


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 200), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_distributed_sampler_never_alarms(
    world: int, batch: int, length: int, even: bool
) -> None:
    """``DistributedSampler`` pads to a multiple of the ranks, ``even_batches`` to whole batches."""
    from core.verify.data import _summed
    from core.verify.passes import _pass

    each = -(-length // world)
    if even:
        each = -(-each // batch) * batch
    mine = _pass(passed(1, samples=length, dataset_len=length, batch_size=batch * world))
    other = _pass(passed(1, samples=each, dataset_len=length, batch_size=batch))
    assert not _summed({0: [mine]}, {rank: [other] for rank in range(world)})


# --- shards ----------------------------------------------------------------------------------


def fed(same: bool, world: int = 2, **fields: Any) -> list[JSON]:
    return [
        ranked(passed(n, samples=35, first=f"{n}.{0 if same else rank}", **fields), rank)
        for n in (1, 2)
        for rank in range(world)
    ]


def test_ranks_that_are_fed_alike_fail() -> None:
    found = results(EPOCHS[:2], fed(True), worlds=(1, 2))["L2.shards"]
    assert (found.state, found.summary) == ("fail", "ranks 0 and 1 are fed the same data")
    assert results(fed(False), fed(True), worlds=(2, 2))["L2.shards"].state == "fail"


def test_ranks_that_are_fed_alike_by_design_or_with_made_up_data_do_not() -> None:
    both = results(fed(True), fed(True), worlds=(2, 2))["L2.shards"]
    assert (both.state, "too" in both.reason) == ("not run", True)
    made_up = fed(True)
    for n, record in enumerate(made_up):
        record["first_ids"] = f"ids{n}"
    assert results(EPOCHS[:2], made_up, worlds=(1, 2))["L2.shards"].state == "pass"
    assert results(EPOCHS, EPOCHS)["L2.shards"].state == "not run"
    unknown = [{**record, "first": None} for record in fed(True)]
    assert results(EPOCHS[:2], unknown, worlds=(1, 2))["L2.shards"].state == "not run"


# --- totals ----------------------------------------------------------------------------------


def finishing(**fields: Any) -> Any:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for record in signals:
            if record["k"] == "finish":
                record.update(fields)

    return change


def evaluated(samples: int) -> list[JSON]:
    return [passed(n, role="eval", samples=samples, in_order=True) for n in (4, 5)]


def test_padded_batches_are_as_many_samples_as_the_loaders_gave() -> None:
    change = finishing(eval_last=384, eval_samples=3072)

    def padded(steps: list[JSON], signals: list[JSON]) -> None:
        change(steps, signals)
        for step in steps:
            step["samples"] = 40

    ours = EPOCHS + evaluated(360)
    found = results(ours, ours, change=padded)
    assert (found["L3.samples"].state, found["L3.budget"].state) == ("pass", "pass")
    assert found["L3.budget"].summary == "320 training samples, padded from 210"
    # Without the loaders' word, or with another one, more is not as many.
    assert results([], [], change=padded)["L3.budget"].state == "fail"
    fewer = [*EPOCHS[:2], passed(3, samples=60), *evaluated(350)]
    found = results(ours, fewer, change=padded)
    assert (found["L3.samples"].state, found["L3.budget"].state) == ("fail", "fail")


def test_without_loaders_the_parity_run_tells_of_padding() -> None:
    def padded(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["samples"] = 40
        batch = {"k": "batch", "pid": 7, "tid": 7, "n": 0, "source": "root", "state": "padded"}
        signals.append(batch)

    found = results([], [], change=padded)["L3.budget"]
    assert (found.state, found.summary) == ("pass", "320 training samples, padded from 256")

    def and_more_steps(steps: list[JSON], signals: list[JSON]) -> None:
        padded(steps, signals)
        steps.append(dict(steps[-1], n=len(steps) + 1))

    assert results([], [], change=and_more_steps)["L3.budget"].state == "fail"


def test_fewer_evaluated_samples_fail_whatever_the_loaders_gave() -> None:
    ours = EPOCHS + evaluated(360)
    change = finishing(eval_last=64, eval_samples=512)
    assert results(ours, ours, change=change)["L3.samples"].state == "fail"
