"""L1: each way in which a migration may differ fails the check that is meant to see it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from core.body import JSON
from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from core.verify.ranks import WHOLE
from core.verify.structure import canonical
from tests.core.scene import Scene, healthy, signal, signal_records, step_records

K = 4


def parity(change: Callable[[list[JSON], list[JSON]], None], **config: JSON) -> Scene:
    """A session whose target parity run differs from the reference's by ``change``."""
    steps = step_records(K, xla=True, parity=True)
    signals = signal_records(K, xla=True, parity=True)
    change(steps, signals)
    scene = Scene(**config).references().snapshot("t1")
    scene.run("attempt")
    scene.run("parity", "target", steps=steps, signals=signals, lines=())
    return scene


def l1(scene: Scene) -> dict[str, CheckEvaluated]:
    """Results of L1 by name, without what is asked of full runs or ranks or of newer records."""
    left_out = {*WHOLE, "L1.frozen", "L1.dropout"}
    results = [r for r in evaluate(scene.state, "t1") if r.level == 1 and r.check not in left_out]
    return {r.check.removeprefix("L1."): r for r in results}


def failing(scene: Scene) -> set[str]:
    return {id for id, r in l1(scene).items() if r.state == "fail"}


def test_a_faithful_migration_passes_all_of_l1() -> None:
    results = l1(healthy())
    assert {r.state for r in results.values()} == {"pass"}
    assert results["trajectory"].runs == ["r4"]
    assert results["trajectory"].reference_runs == ["r2"]
    assert len(results["trajectory"].evidence["loss"]["actual"]) == K


def test_without_either_parity_run_or_a_step_nothing_is_compared() -> None:
    missing = Scene().references().snapshot("t1")
    missing.run("attempt")
    assert {r.state for r in l1(missing).values()} == {"not run"}
    no_reference = Scene()
    no_reference.run("reference")
    no_reference.snapshot("t1").run("parity", "target", lines=())
    results = l1(no_reference)
    assert {r.state for r in results.values()} == {"not run"}
    assert "the reference" in results["events"].reason
    no_step = Scene().references().snapshot("t1")
    no_step.run("parity", "target", steps=[], signals=[], exit_code=1, lines=())
    results = l1(no_step)
    assert {r.state for r in results.values()} == {"not run"}
    assert "no optimizer step in parity run #3" in results["events"].reason


def test_a_parity_run_of_another_tree_does_not_count() -> None:
    scene = healthy().snapshot("t2")
    scene.run("attempt")
    results = [r for r in evaluate(scene.state, "t2") if r.level == 1 and r.check not in WHOLE]
    assert {r.state for r in results} == {"not run"}


def test_other_weights_at_the_start_leave_the_numbers_uncompared() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signals.remove(signal(signals, "start"))  # a session of an earlier release
        signal(signals, "model")["norms"][1] = 10.2
        for step in steps:
            step["loss"] *= 1.5

    results = l1(parity(change))
    assert results["start"].state == "fail"
    assert "head.weight has norm 10.2" in results["start"].reason
    for id in ("first_loss", "trajectory", "grad_norm", "clip", "update"):
        assert results[id].state == "not run"
        assert "different weights" in results[id].reason
    assert results["events"].state == "pass"


def test_unrecorded_norms_are_no_same_start() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signals.remove(signal(signals, "start"))
        signal(signals, "model").pop("norms")

    results = l1(parity(change))
    assert results["start"].state == "not run"
    assert results["first_loss"].state == "not run"


def test_a_lost_tie_shows_in_ties_and_parameters() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        model = signal(signals, "model")
        model |= {"tied": [], "parameters": 2000, "trainable": 2000, "tensors": 4}
        model["names"].append("decoder.weight")
        model["norms"].append(20.0)
        signal(signals, "optimizer")["groups"][0]["n_elements"] = 1500

    results = l1(parity(change))
    assert {id for id, r in results.items() if r.state == "fail"} == {
        "parameters",
        "ties",
        "optimizer",
    }
    assert results["ties"].summary == "lost decoder.weight = embed.weight"
    assert results["start"].state == "pass"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cls": "SGD"}, "SGD instead of AdamW"),
        ({"groups": []}, "0 parameter groups instead of 2"),
    ],
)
def test_another_optimizer_fails(change: JSON, text: str) -> None:
    scene = parity(lambda _, signals: signal(signals, "optimizer").update(change))
    result = l1(scene)["optimizer"]
    assert (result.state, result.summary) == ("fail", text)


def test_an_optimizer_that_is_described_again_is_one() -> None:
    """As after a copy of the model was moved to the CPU and saved."""

    def again(lr: float, id: int, **group: JSON) -> Callable[[list[JSON], list[JSON]], None]:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            first = signal(signals, "optimizer")
            first["optimizer_id"] = 1
            more = {**copy.deepcopy(first), "optimizer_id": id}
            more["groups"][0] |= {"lr": lr, **group}
            signals.append(more)

        return change

    assert l1(parity(again(1e-9, 1)))["optimizer"].state == "pass"
    for other in (again(1e-9, 2), again(1e-9, 1, weight_decay=0.5)):
        assert l1(parity(other))["optimizer"].summary == "2 optimizers instead of 1"


def test_a_changed_hyperparameter_is_named() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "optimizer")["groups"][1]["betas"] = [0.9, 0.99]

    assert "group 1: betas" in l1(parity(change))["optimizer"].summary


def test_switches_of_the_implementation_do_not_count() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "optimizer")["groups"][0] |= {"fused": True, "foreach": None}

    assert l1(parity(change))["optimizer"].state == "pass"


def test_a_schedule_that_stands_still_fails_at_its_step() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps[2:]:
            step["groups"][1]["lr"] = steps[1]["groups"][1]["lr"]

    result = l1(parity(change))["schedule"]
    assert result.state == "fail"
    assert result.evidence == {"step": 3, "group": 1}


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("B S C(1) M L Z", "moved behind the optimizer step"),
        ("B S M L Z", "clipping C(1) happens 0 time(s) instead of 1"),
        ("B C(5) S M L Z", "changed from C(1) to C(5)"),
        ("B C(1) S M Z", "schedule L happens 0 time(s)"),
        ("B C(1) L S M Z", "order of events"),
        ("B B C(1) S M L Z", "backward B happens 2 time(s)"),
        ("B C(1) S M L", "zero_grad Z happens 0 time(s)"),
    ],
)
def test_another_order_of_events_fails_and_says_what_moved(signature: str, words: str) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        steps[1]["signature"] = signature

    result = l1(parity(change))["events"]
    assert result.state == "fail"
    assert words in result.summary
    assert result.evidence == {"step": 2}


@pytest.mark.parametrize("signature", ["B C(1) S L Z M", "M B C(1) R S Z L", "B M C(1) S M L Z"])
def test_syncs_and_what_commutes_do_not_count(signature: str) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["signature"] = signature

    assert l1(parity(change))["events"].state == "pass"


def test_with_several_chips_clipping_before_the_average_fails() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["signature"] = "B C(1) R S M L Z"

    result = l1(parity(change, target={"kind": "tpu-v5e-4", "chips": 4}))["events"]
    assert result.state == "fail"
    assert "before they are averaged" in result.summary
    assert canonical("B R C(1) S", 4) == ["B", "R", "C(1)", "S"]
    assert canonical("B CV(0.1) M CV(0.1) S", 1) == ["B", "CV(0.1)", "S"]  # group by group
    assert canonical("B C(1) C(1) S", 1) == ["B", "C(1)", "C(1)", "S"]


def test_another_first_loss_fails_beyond_rounding() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        steps[0]["loss"] *= 1 + 3e-5

    assert failing(parity(change)) == {"first_loss"}


def test_a_loss_curve_that_drifts_fails_at_the_step_where_it_leaves() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for i, step in enumerate(steps):
            step["loss"] *= 1 + 6e-4 * i

    result = l1(parity(change))["trajectory"]
    assert result.state == "fail"
    assert result.summary.startswith("loss differs from step 3 on")


def test_a_parity_run_that_broke_off_fails_the_curve() -> None:
    result = l1(parity(lambda steps, _: steps.__delitem__(slice(2, None))))["trajectory"]
    assert (result.state, result.summary) == ("fail", "the parity run took 2 of 4 steps")


def test_a_nan_loss_fails() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        steps[2]["loss"] = "nan"

    result = l1(parity(change))["trajectory"]
    assert result.state == "fail"
    assert result.evidence["largest relative error"] == "inf"


def test_gradients_that_are_not_clipped_fail_by_what_the_optimizer_got() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:  # the call is there, and does nothing
            step["grad_norm_after"] = step["grad_norm"]

    assert failing(parity(change)) == {"clip"}


def test_no_clipping_on_either_side_is_the_same() -> None:
    scene = Scene()
    scene.run("reference")
    for of in ("reference", "target"):
        steps = step_records(K, xla=of == "target", parity=True)
        for step in steps:
            step |= {"clips": [], "signature": "B S L Z", "grad_norm_after": step["grad_norm"]}
        if of == "target":
            scene.snapshot("t1").run("attempt")
        scene.run("parity", of, steps=steps, lines=())
    assert l1(scene)["clip"].state == "pass"


def test_clipping_by_norm_is_the_same_however_it_is_called() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["clips"] = [dict(call, fn="clip_grads_with_norm_") for call in step["clips"]]

    assert not failing(parity(change))

    def of_another_norm(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["clips"] = [dict(call, norm_type=1.0) for call in step["clips"]]

    assert failing(parity(of_another_norm)) == {"clip"}


@pytest.mark.parametrize(
    ("scale", "events", "fails"),
    [
        (1.0, "B H S M L Z", set()),
        (1.01, "B H S M L Z", {"events", "clip"}),
        (1.0, "B S H M L Z", {"events"}),
        (1.0, "B H B S M L Z", {"events"}),
    ],
)
def test_clipping_written_out_is_known_by_what_it_did(
    scale: float, events: str, fails: set[str]
) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step |= {"clips": [], "signature": events, "by_hand": True}
            step["grad_norm_after"] *= scale

    found = l1(parity(change))
    failed = {id for id, r in found.items() if r.state == "fail"}
    assert failed == fails
    if scale != 1.0:
        assert "clip coefficient" in found["clip"].summary


def test_parameters_that_stay_the_same_fail_the_update() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["update_norm"] = 0.0

    result = l1(parity(change))["update"]
    assert (result.state, result.summary) == ("fail", "the parameters do not change in step 1")


def test_the_furthest_tensor_is_named() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        steps[0]["grad_norm"] *= 1.01
        steps[0]["grad_norms"][2] *= 1.2

    result = l1(parity(change))["grad_norm"]
    assert result.state == "fail"
    assert result.evidence["furthest tensor in step 1"] == "head.bias"


def test_the_tolerance_follows_the_dtype_and_says_so() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "model")["dtypes"] = {"bfloat16": 1500}
        for step in steps:
            step["loss"] *= 1.01

    result = l1(parity(change))["first_loss"]
    assert result.state == "pass"
    assert result.tolerance == "relative 0.016 (parameters in bfloat16)"


@pytest.mark.parametrize(
    ("field", "check"),
    [
        ("loss", "trajectory"),
        ("grad_norm", "grad_norm"),
        ("grad_norm_after", "clip"),
        ("update_norm", "update"),
        ("signature", "events"),
    ],
)
def test_a_step_that_was_not_recorded_is_not_taken_for_equal(field: str, check: str) -> None:
    result = l1(parity(lambda steps, _: steps[2].pop(field)))[check]
    assert result.state == "not run"
    assert "recorded" in result.reason


def test_ties_that_were_not_recorded_are_not_taken_for_equal() -> None:
    result = l1(parity(lambda _, signals: signal(signals, "model").pop("tied")))["ties"]
    assert result.state == "not run"


def test_records_of_the_wrong_shape_are_never_a_pass() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            for field in list(step):
                if field not in ("k", "pid", "tid", "n"):
                    step[field] = [["x"]]
        for record in signals:
            for field in list(record):
                if field not in ("k", "pid", "tid"):
                    record[field] = "x"

    assert {r.state for r in l1(parity(change)).values()} <= {"not run", "fail"}
