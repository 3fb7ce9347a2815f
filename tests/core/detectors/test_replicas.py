"""Data parallelism: replicas that drift apart, train on the same data, or clip too early."""

from __future__ import annotations

import pytest

from core.body import JSON
from core.findings import detect
from tests.core.detectors.judging import Change, attempt, each, kinds
from tests.core.scene import Scene, signal_records, step_records

SPARSE = (1, 2, 5, 10, 20)


def both(*changes: Change) -> Change:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for one in changes:
            one(steps, signals)

    return change


#: Each rank has batches of its own: other losses, the same reduced gradient.
DATA = each(
    loss=lambda s: s["loss"] * (1 + 0.01 * s.get("rank", 0)),
    signature="B R C(1) S M L Z",
)


def drift(by: float, start: float = 0.0) -> Change:
    """Norms that part by ``start`` and ``by`` more a step, for each rank."""
    return each(
        param_norm=lambda s: (
            30.0 * (1 + s.get("rank", 0) * (start + by * s["n"])) if s["n"] in SPARSE else None
        )
    )


def test_faithful_replicas_open_nothing() -> None:
    assert attempt(DATA, ranks=4) == {}
    assert attempt(both(DATA, drift(0.0, 1e-7)), ranks=4) == {}


def test_replicas_that_drift_apart_are_seen() -> None:
    unreduced = both(DATA, each(signature="B C(1) S M L Z"), drift(1e-4))
    found = attempt(unreduced, ranks=2, reference=False)
    assert kinds(found) == {("replica_hash_mismatch", "C3")}
    evidence = found["replica_hash_mismatch"].evidence
    assert evidence[0] == "norm of the parameters in step 20: 30, 30.06"
    assert evidence[1] == "apart by 1.0e-04 in step 1, 2.0e-03 now"
    assert "no reduction" in evidence[2]


def test_replicas_that_began_with_other_weights_are_seen_against_the_reference() -> None:
    """By its size the reference shows that each rank has the whole model and no shard of it."""
    other = both(DATA, drift(0.0, 0.05))
    assert set(attempt(other, ranks=2)) == {"replica_hash_mismatch"}
    assert attempt(other, ranks=2, reference=False) == {}  # may be shards


def test_shards_are_no_replicas() -> None:
    def sharded(steps: list[JSON], signals: list[JSON]) -> None:
        for record in signals:
            if record["k"] == "model":
                record.update(root="FullyShardedDataParallel", parameters=375, tied=[])

    assert attempt(both(DATA, drift(1e-3, 0.3), sharded), ranks=4) == {}


def test_processes_without_a_rank_are_no_replicas() -> None:
    def alone(steps: list[JSON], signals: list[JSON]) -> None:
        for record in [*steps, *signals]:
            record.pop("rank", None)

    assert attempt(both(DATA, drift(0.01), alone), ranks=2) == {}


def test_the_same_batches_on_every_rank_are_seen() -> None:
    found = attempt(each(signature="B R C(1) S M L Z"), ranks=2)
    assert kinds(found) == {("same_data_on_ranks", "C3")}
    assert "equal in each of 40 steps" in found["same_data_on_ranks"].evidence[0]


def test_a_clip_before_the_reduce_is_seen_on_several_ranks_only() -> None:
    early = both(DATA, each(signature="B C(1) R S M L Z"))
    found = attempt(early, ranks=2)
    assert kinds(found) == {("grad_norm_scale_mismatch", "C3")}
    assert "before the reduce in 80 of 80 steps" in found["grad_norm_scale_mismatch"].evidence[0]
    assert attempt(each(signature="B C(1) R S M L Z")) == {}


@pytest.mark.parametrize(
    ("factor", "seen"), [(4.0, True), (0.25, True), (1.0, False), (1.3, False)]
)
def test_a_summed_gradient_shows_against_the_reference(factor: float, seen: bool) -> None:
    scaled = both(
        each(loss=lambda s: s["loss"] * (1 + 1e-5 * s["rank"]), signature="B R C(1) S M L Z"),
        each(grad_norm=lambda s: s["grad_norm"] * factor),
    )
    found = attempt(scaled, ranks=4)
    assert set(found) == ({"grad_norm_scale_mismatch"} if seen else set())
    if seen:
        assert f"{factor:.3g} times as much" in found["grad_norm_scale_mismatch"].evidence[0]


def test_a_norm_at_another_loss_is_not_compared() -> None:
    other = both(DATA, each(grad_norm=lambda s: s["grad_norm"] * 4, loss=lambda s: s["loss"] * 2))
    assert attempt(other, ranks=4) == {}


def test_a_parity_run_shows_weights_that_an_attempt_on_a_lazy_device_does_not_read() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("parity", "target")
    steps = [
        {
            **record,
            "rank": rank,
            "pid": rank,
            "loss": 2.0,
            "param_norm": 30.0 + rank * record["n"] / 99,
        }
        for record in step_records(4, xla=True, parity=True)
        for rank in (0, 1)
    ]
    scene.records(run_id, steps, signal_records(4, xla=True, parity=True))
    scene.end(run_id)
    assert {f.detector for f in detect(scene.state, run_id)} == {"replica_hash_mismatch"}
