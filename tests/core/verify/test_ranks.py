"""Runs of several ranks: each against the reference's, or all of them as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.body import JSON
from core.events import CheckEvaluated
from core.run_steps import RunSteps
from core.verify import ranks
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, signal_records, step_records

K, WORLD = 4, 4
Change = Callable[[int, list[JSON], list[JSON]], Any]


def records(
    world: int, *, xla: bool, parity: bool, change: Change | None = None, threads: bool = False
) -> tuple[list[JSON], list[JSON]]:
    """Steps and signals of ``world`` ranks, interleaved as they come: each with losses of its own."""
    steps: list[list[JSON]] = []
    signals: list[JSON] = []
    for rank in range(world):
        own = step_records(K if parity else 40, xla=xla, parity=parity)
        said = signal_records(len(own), xla=xla, parity=parity)
        for record in [*own, *said]:
            record["pid"], record["tid"] = (90, 90 + rank) if threads else (90 + rank, 90 + rank)
            if world > 1:
                record["rank"] = rank
        for record in own:
            record["samples"] = 128 // world
            if world > 1:  # a rank's loss lies around the mean
                record["loss"] *= 1 + 0.1 * (rank - (world - 1) / 2)
            if "grad_norm_after" in record:
                record["grad_norm_after"] = 1.0
        if change:
            change(rank, own, said)
        steps.append(own)
        signals += said
    return [r for together in zip(*steps, strict=True) for r in together], signals


def session(
    ours: int = WORLD, theirs: int = WORLD, change: Change | None = None, threads: bool = False
) -> Scene:
    scene = Scene(target={"chips": WORLD})
    for purpose, of, world, xla in (
        ("reference", "", ours, False),
        ("parity", "reference", ours, False),
        ("attempt", "", theirs, True),
        ("parity", "target", theirs, True),
    ):
        if purpose == "attempt":
            scene.snapshot("t1")
        parity = purpose == "parity"
        steps, signals = records(
            world, xla=xla, parity=parity, change=change if xla else None, threads=threads and xla
        )
        scene.run(purpose, of, steps=steps, signals=signals)
    return scene


def results(scene: Scene) -> dict[str, CheckEvaluated]:
    return {r.check: r for r in evaluate(scene.state, "t1")}


def failing(scene: Scene, level: int = 2) -> set[str]:
    return {id for id, r in results(scene).items() if r.state == "fail" and r.level <= level}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(WORLD, WORLD), (1, WORLD), (WORLD, 1), (2, WORLD), (1, 1)]
)
@pytest.mark.parametrize("threads", [False, True])
def test_faithful_ranks_pass_however_many_there_are_on_either_side(
    ours: int, theirs: int, threads: bool
) -> None:
    found = results(session(ours, theirs, threads=threads))
    of_l1 = {r.state for id, r in found.items() if r.level == 1 and id not in ranks.WHOLE}
    assert of_l1 <= {"pass", "not run"}
    assert {"L1.grad_norm", "L1.clip", "L1.trajectory", "L1.first_loss", "L1.events"} <= {
        id for id, r in found.items() if r.state == "pass"
    }
    assert found["L1.global_batch"].state == "pass"
    assert "128 samples a step" in found["L1.global_batch"].summary
    several = "pass" if theirs > 1 else "not run"
    assert found["L1.reduce"].state == found["L2.replicas"].state == several
    assert found["L3.budget"].state == "pass"
    if ours == theirs > 1:
        assert found["L1.clip"].evidence["ranks"] == WORLD


@pytest.mark.parametrize(("ours", "theirs"), [(WORLD, WORLD), (WORLD, 1), (1, WORLD)])
def test_a_run_in_its_own_precision_is_held_against_the_same_ranks(ours: int, theirs: int) -> None:
    scene = session(ours, theirs)
    signals: list[JSON]
    steps, signals = records(theirs, xla=True, parity=True)
    for step in steps:
        step["loss"] *= 1.003
    run_id = scene.start("parity", "target own", against="r2")
    scene.records(run_id, steps, signals)
    scene.end(run_id)
    found = results(scene)
    assert found["L1.first_loss"].state == found["L1.trajectory"].state == "pass"
    assert "own precision" in str(found["L1.first_loss"].evidence)


def of(wanted: int | None, edit: Callable[[JSON], Any]) -> Change:
    """An edit of every step of one rank, or of all."""

    def change(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps if wanted in (None, rank) else []:
            edit(step)

    return change


def test_a_rank_with_another_loss_is_named() -> None:
    found = results(session(change=of(2, lambda r: r.update(loss=r["loss"] * 1.2))))
    loss = found["L1.first_loss"]
    assert (loss.state, loss.evidence["failing ranks"]) == ("fail", [2])
    assert loss.summary.startswith("rank 2 of 4: ")
    assert found["L1.grad_norm"].state == "pass"


def test_a_clip_on_each_rank_before_the_reduce_is_refuted_with_the_norms_and_the_order() -> None:
    def clip_first(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["signature"] = "B C(1) R S M L Z"
            step["grad_norm"] *= 1 + 0.05 * rank
            if "grad_norm_after" in step:
                step["grad_norm_after"] = 0.717

    found = results(session(change=clip_first))
    assert {"L1.events", "L1.clip", "L1.reduce"} <= {
        i for i, r in found.items() if r.state == "fail"
    }
    assert "before they are averaged" in found["L1.events"].summary
    assert found["L1.reduce"].actual.count(",") == WORLD - 1
    assert found["L1.clip"].summary.startswith("clip coefficient differs from step 1 on")


def test_an_original_that_clips_before_the_reduce_is_followed() -> None:
    scene = Scene(target={"chips": WORLD})
    for purpose, of_, xla in (
        ("reference", "", False),
        ("parity", "reference", False),
        ("attempt", "", True),
        ("parity", "target", True),
    ):
        if purpose == "attempt":
            scene.snapshot("t1")
        steps, signals = records(WORLD, xla=xla, parity=purpose == "parity")
        for step in steps:
            step["signature"] = "B C(1) R S M L Z" if xla else "B C(1) R S L Z"
        scene.run(purpose, of_, steps=steps, signals=signals)
    assert results(scene)["L1.events"].state == "pass"


@pytest.mark.parametrize("ours", [1, WORLD])
def test_gradients_that_are_summed_are_seen_on_one_rank_and_on_as_many(ours: int) -> None:
    change = of(None, lambda r: r.update(grad_norm=r["grad_norm"] * WORLD))
    assert "L1.grad_norm" in failing(session(ours, change=change))


def test_replicas_that_drift_are_seen() -> None:
    def drift(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            if "param_norm" in step and step["n"] > 1:
                step["param_norm"] *= 1 + 1e-4 * rank

    found = results(session(change=drift))["L2.replicas"]
    assert found.state == "fail"
    assert "differs from step 2 on" in found.summary


@pytest.mark.parametrize(
    ("errors", "state"),
    [
        ([0.0, 1.41, 1.39, 1.42], "fail"),  # each seeded with its rank
        ([1.41, 1.41, 1.41, 1.41], "pass"),  # drawn on another device, and broadcast
        ([0.0, 0.0, 0.0, 0.0], "pass"),
        ([0.0, None, 0.0, 0.0], "pass"),  # not known for all: nothing is told by it
    ],
)
def test_replicas_that_start_apart_are_seen_though_a_replay_starts_them_alike(
    errors: list[float | None], state: str
) -> None:
    def start(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        who = {key: steps[0][key] for key in ("pid", "tid", "rank")}
        signals.append(
            {"k": "start", **who, "matched": 3, "natural_error": errors[rank], "loaded": True}
        )

    found = results(session(change=start))["L2.replicas"]
    assert found.state == state
    if state == "fail":
        assert "start from other parameters" in found.summary
        assert "1.41" in found.actual


def test_one_rank_with_another_learning_rate_is_seen() -> None:
    def halve(step: JSON) -> None:
        step["groups"] = [{**g, "lr": g["lr"] / 2} for g in step["groups"]]

    found = results(session(change=of(3, halve)))
    assert found["L1.schedule"].evidence["failing ranks"] == [3]
    assert found["L2.replicas"].state == "fail"
    assert "learning rates" in found["L2.replicas"].summary


def test_a_batch_that_was_not_divided_by_the_ranks_is_four_times_the_batch() -> None:
    found = results(session(change=of(None, lambda r: r.update(samples=128))))
    assert found["L1.global_batch"].summary == "512 samples a step over 4 ranks instead of 128"
    assert found["L3.budget"].state == "fail"


def test_a_reference_whose_ranks_have_parts_of_the_model_has_no_replicas_to_agree() -> None:
    def part(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            for field in ("param_norm", "grad_norm"):
                if field in step:
                    step[field] *= 1 + rank

    scene = Scene(target={"chips": WORLD})
    for purpose, of_, xla in (
        ("reference", "", False),
        ("parity", "reference", False),
        ("attempt", "", True),
        ("parity", "target", True),
    ):
        if purpose == "attempt":
            scene.snapshot("t1")
        steps, signals = records(WORLD, xla=xla, parity=purpose == "parity", change=part)
        scene.run(purpose, of_, steps=steps, signals=signals)
    found = results(scene)
    assert found["L1.reduce"].state == found["L2.replicas"].state == "not run"
    assert "too" in found["L2.replicas"].reason


def test_each_process_counts_its_own_chips() -> None:
    found = results(session())["L2.chips"]
    assert (found.state, found.summary) == ("pass", "4 of 4 chip(s)")
    assert results(session(theirs=1))["L2.chips"].state == "fail"


def test_a_check_that_could_not_be_made_for_one_rank_is_no_pass() -> None:
    def forget(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        if rank == 1:
            for step in steps:
                step.pop("grad_norm", None)

    found = results(session(change=forget))["L1.grad_norm"]
    assert found.state == "not run"
    assert found.reason.startswith("Rank 1: ")


@pytest.mark.parametrize(
    ("ours", "theirs", "fed", "state"),
    [
        (1, WORLD, True, "not run"),  # DistributedSampler deals out other samples
        (WORLD, 1, True, "not run"),
        (1, WORLD, False, "fail"),
        (WORLD, WORLD, True, "fail"),
    ],
)
def test_other_batches_of_another_number_of_ranks_say_nothing_if_they_were_replaced(
    ours: int, theirs: int, fed: bool, state: str
) -> None:
    def other(rank: int, steps: list[JSON], signals: list[JSON]) -> None:
        who = {key: steps[0][key] for key in ("pid", "tid", "rank") if key in steps[0]}
        signals.append(
            {"k": "batch", **who, "n": 0, "source": "loader", "state": "unlike", "fed": fed}
        )

    found = results(session(ours, theirs, change=other))["L1.batches"]
    assert found.state == state
    if state == "not run":
        assert "waive" in found.reason


@given(
    st.lists(
        st.tuples(
            st.integers(1, 6), st.sampled_from([None, 0, 1, 2]), st.one_of(st.none(), st.floats())
        ),
        max_size=20,
    )
)
def test_no_records_of_ranks_are_too_odd_to_be_put_together(
    rows: list[tuple[int, int | None, float | None]],
) -> None:
    scene = Scene()
    steps = [
        {"k": "step", "pid": 1, "tid": rank or 0, "n": n, "rank": rank, "loss": loss, "samples": 8}
        for n, rank, loss in rows
    ]
    scene.run("attempt", steps=steps, signals=[])
    (run,) = scene.state.runs.values()
    merged = ranks.as_one(run)
    assert isinstance(merged.steps, RunSteps)
    for rank in ranks.ranks(run):
        assert len(ranks.of_rank(run, rank).steps) <= len(run.steps)
    assert len(ranks.trained(run)) == max(1, len(ranks.ranks(run)))
