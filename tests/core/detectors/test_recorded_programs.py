"""Judgements on recorded runs of real programs (``recorded_runs.py``): faithful ones, and two more faults.

They were made on torch 2.9.1, torch_xla 2.9.0 (PJRT on the CPU) and transformers' Trainer.
"""

from __future__ import annotations

import pytest

from tests.core.detectors.recorded_runs import RECORDED, RUNS, load

FAITHFUL = ("converged", "two_optimizers", "own_tensor", "trainer")
#: Two ranks under torchrun on torch's CPU, where gloo reduces; what is on the host is said, too.
REPLICAS = {
    "replicas": set(),
    "replicas_same": {("same_data_on_ranks", "C3")},
    "replicas_unreduced": {("replica_hash_mismatch", "C3")},
    "replicas_early": {("grad_norm_scale_mismatch", "C3")},
}


def test_every_recording_is_judged_here() -> None:
    assert {path.name.removesuffix(".json.gz") for path in RECORDED.glob("*.gz")} == set(RUNS)
    assert set(RUNS) == {
        *FAITHFUL,
        "masked_loss",
        "cuda_amp",
        "forced_dtype",
        "trainer_mask",
        *REPLICAS,
    }


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_faithful_run_opens_none(name: str) -> None:
    played = load(name)
    assert played.seen == set()
    assert played.run.ok_exit
    assert len(played.run.steps) >= 27


def test_the_converged_run_does_end_at_a_constant_loss() -> None:
    steps = load("converged").run.steps
    losses = [step["loss"] for step in steps if step.get("loss") is not None]
    assert len(set(losses[:10])) == 10
    assert len(set(losses[-10:])) == 1


def test_a_mask_that_sizes_the_batch_is_one_finding_though_it_reads_and_recompiles() -> None:
    played = load("masked_loss")
    assert played.seen == {("aten_fallback", "C5")}
    assert played.opened["aten_fallback"].evidence[0].startswith("aten::nonzero: ")
    steps = played.run.steps[3:]
    assert 0.3 < sum(step["compiles"] > 0 for step in steps) / len(steps) < 0.6
    assert all(step["transfers"] for step in steps)


def test_mixed_precision_for_cuda_is_one_finding_though_its_scaler_reads() -> None:
    played = load("cuda_amp")
    assert played.seen == {("cuda_amp", "C2")}
    assert all(step["transfers"] for step in played.run.steps)


def test_a_type_that_a_variable_changes_is_one_finding_though_every_dtype_says_float32() -> None:
    played = load("forced_dtype")
    assert played.seen == {("forced_dtype", "C5")}
    model = played.run.signal("model")
    assert model is not None
    assert set(model["dtypes"]) == {"float32"}


def test_a_librarys_own_read_names_the_librarys_line() -> None:
    played = load("trainer_mask")
    assert played.seen == {("transfer_per_step", "C4")}
    evidence = played.opened["transfer_per_step"].evidence
    assert "transformers/masking_utils.py:" in evidence[1]
    assert "_ignore_bidirectional_mask_sdpa" in evidence[1]


def test_on_a_tpu_target_all_of_them_ran_on_the_host() -> None:
    """That they did is what a TPU session says of them, next to what else was found."""
    assert load("converged", "tpu-v5e-1").seen == {("pjrt_cpu_fallback", "C1")}
    assert load("cuda_amp", "tpu-v5e-1").seen == {("pjrt_cpu_fallback", "C1"), ("cuda_amp", "C2")}


@pytest.mark.parametrize("name", REPLICAS)
def test_what_is_wrong_with_replicas_is_one_finding(name: str) -> None:
    played = load(name)
    assert {step["rank"] for step in played.run.steps} == {0, 1}
    assert played.seen == {("model_on_cpu", "C2"), *REPLICAS[name]}
