"""What shows against the reference: clips that were lost or moved, samples not evaluated."""

from __future__ import annotations

import pytest

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, each, kinds
from tests.core.scene import signal


@pytest.mark.parametrize(
    ("signature", "title"),
    [
        ("B S M L Z", "no longer called"),
        ("B S C(1) M L Z", "after the optimizer's step"),
        ("B C(5) S M L Z", "another limit"),
        ("B CV(1) S M L Z", "another limit"),
        ("B B B B S M L Z", "no longer called"),
    ],
)
def test_a_clip_that_is_not_the_references_is_seen(signature: str, title: str) -> None:
    found = attempt(each(signature=signature))
    assert kinds(found) == {("clip_changed", "C3")}
    finding = found["clip_changed"]
    assert title in finding.title
    assert finding.evidence[0] == "the reference's step: clip (1), step"
    assert "40 of the first 40" in finding.evidence[1]


@pytest.mark.parametrize(
    "signature",
    [
        "B C(1) S M L Z",
        "B B B C(1) S L Z M",  # accumulation
        "B C(1) R S M Z",  # xm.optimizer_step on one device reduces nothing
        "B R C(1) S M Z",
    ],
)
def test_the_same_clip_is_no_finding(signature: str) -> None:
    assert attempt(each(signature=signature)) == {}


def test_a_clip_in_some_steps_is_the_programs_own_affair() -> None:
    sometimes = each(signature=lambda s: "B C(1) S M" if s["n"] % 4 == 0 else "B S M")
    assert attempt(sometimes, before=sometimes) == {}
    assert attempt(sometimes) == {}


def test_nothing_is_said_of_clips_where_the_reference_has_none_or_is_not_there() -> None:
    assert attempt(each(signature="B S M"), reference=False) == {}
    assert attempt(each(signature="B C(1) S M"), before=each(signature="B S")) == {}
    assert attempt(each(signature="B S M"), count=3) == {}


def test_another_command_than_the_targets_is_not_held_against_the_reference() -> None:
    assert attempt(each(signature="B S M"), command="python quick.py") == {}


def evaluated(samples: int | None) -> Change:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        each(loss=lambda s: s["loss"] * (1 + 0.01 * s.get("rank", 0)))(steps, signals)
        for record in signals:
            if record["k"] == "finish":
                record["eval_last"] = samples

    return change


def test_fewer_evaluated_samples_are_seen() -> None:
    found = attempt(evaluated(352))
    assert kinds(found) == {("eval_sample_count", "C3")}
    assert found["eval_sample_count"].evidence == [
        "352 samples in the last evaluation, 360 in the reference's"
    ]


@pytest.mark.parametrize("samples", [360, 368, None, 0])
def test_as_many_padded_or_unknown_is_no_finding(samples: int | None) -> None:
    assert attempt(evaluated(samples)) == {}


def test_the_parts_that_ranks_evaluate_add_up() -> None:
    assert attempt(evaluated(90), ranks=4) == {}
    assert set(attempt(evaluated(88), ranks=4)) == {"eval_sample_count"}


def test_a_lost_tie_shows_from_the_move_alone() -> None:
    moved: JSON = {"k": "moved", "pid": 7, "tid": 7, "root": "Inkformer", "replaced": 3}

    def untied(names: list[str], tied: list[list[str]], *, prefix: str = "") -> Change:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            group = ["embed.weight", "decoder.weight"]
            signals.insert(0, moved | {"ties_before": [group], "ties_after": []})
            signal(signals, "model").update(names=names, tied=tied)

        return change

    lost = untied(["embed.weight", "decoder.weight", "head.bias"], [])
    found = attempt(lost, reference=False)
    assert kinds(found) == {("param_count_changed", "C3")}
    assert found["param_count_changed"].evidence == [
        "no longer tied: decoder.weight = embed.weight"
    ]
    inside = untied(["model.embed.weight", "model.decoder.weight"], [])
    assert set(attempt(inside, reference=False)) == {"param_count_changed"}
    # Tied again before the optimizer was made; and another module's decoder is not this one's.
    again = untied(["embed.weight"], [["embed.weight", "decoder.weight"]])
    assert attempt(again, reference=False) == {}
    others = untied(["a.embed.weight", "b.decoder.weight"], [])
    assert attempt(others, reference=False) == {}


def sampled(samples: int, last: int = 0) -> Change:
    """Steps of so many samples, with another number in every tenth."""
    return each(samples=lambda s: last if last and s["n"] % 10 == 0 else samples)


def test_a_batch_that_every_rank_takes_whole_is_seen() -> None:
    data = each(loss=lambda s: s["loss"] * (1 + 0.01 * s["rank"]))

    def whole(steps: list[JSON], signals: list[JSON]) -> None:
        data(steps, signals)
        sampled(32)(steps, signals)

    found = attempt(whole, ranks=4)
    assert kinds(found) == {("global_batch_changed", "C3")}
    assert found["global_batch_changed"].evidence == [
        "128 samples a step over 4 ranks, the reference has 32"
    ]
    assert attempt(data, ranks=4) == {}


def test_a_smaller_batch_is_seen_and_a_smaller_last_one_is_none() -> None:
    assert set(attempt(sampled(8))) == {"global_batch_changed"}
    assert attempt(sampled(32, last=7), before=sampled(32, last=15)) == {}
    assert attempt(sampled(31)) == {}
    assert attempt(sampled(0)) == attempt(sampled(8), count=3) == {}
