"""L1 on the records of a run that was fed the reference's tensors: the first place that differs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.body import JSON
from core.events import CheckEvaluated
from core.levels import ladder
from core.verify.evaluate import evaluate, measure
from core.verify.forward import first_diverging, modules
from tests.core.scene import Scene, signal, signal_records, step_records

K = 4
Change = Callable[[list[JSON], list[JSON]], None]


def parity(change: Change, own: Change | None = None, **config: JSON) -> Scene:
    """A session whose target parity run differs by ``change``, and its run in its own dtype."""
    scene = Scene(**config).references().snapshot("t1")
    scene.run("attempt")
    play(scene, change, "target")
    if own is not None:
        play(scene, own, "target own")
    return scene


def play(scene: Scene, change: Change, of: str) -> None:
    xla = of.startswith("target")
    steps = step_records(K, xla=xla, parity=True)
    signals = signal_records(K, xla=xla, parity=True)
    change(steps, signals)
    scene.run("parity", of, steps=steps, signals=signals, lines=())


def l1(scene: Scene) -> dict[str, CheckEvaluated]:
    return {r.check.removeprefix("L1."): r for r in evaluate(scene.state, "t1") if r.level == 1}


def module(signals: list[JSON], name: str) -> JSON:
    return next(m for m in signal(signals, "forward")["modules"] if m["name"] == name)


def nothing(steps: list[JSON], signals: list[JSON]) -> None:
    pass


def records(signals: list[JSON], k: str) -> list[JSON]:
    return [r for r in signals if r["k"] == k]


# --- where both begin --------------------------------------------------------------------------


def test_own_weights_that_are_unlike_are_no_failure_once_the_references_are_loaded() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "start").update(natural_error=0.3, worst="head.weight")

    result = l1(parity(change))["start"]
    assert result.state == "pass"
    assert result.summary == "3 tensors, the reference's loaded"
    assert result.evidence["footnotes"] == ["its own differ by 0.3 in head.weight, not counted"]


def test_weights_that_could_not_be_loaded_leave_the_numbers_unjudged_and_say_the_way_out() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "start").update(
            loaded=False, natural_error=None, missing=["embed.weight"], extra=["tok.weight"]
        )
        for step in steps:
            step["loss"] *= 2

    results = l1(parity(change))
    assert results["start"].state == "not run"
    assert "embed.weight only in the reference" in results["start"].reason
    assert "[parity] rename" in results["start"].reason
    for id in ("forward", "first_loss", "gradients", "grad_norm", "update", "trajectory"):
        assert results[id].state == "not run", id
        assert "could not be loaded" in results[id].reason


def test_other_weights_that_could_not_be_loaded_fail() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "start").update(
            loaded=False, natural_error=0.3, worst="head.weight", why="It is a closed file."
        )

    result = l1(parity(change))["start"]
    assert result.state == "fail"
    assert "head.weight differs by a relative 0.3" in result.reason
    assert "closed file" in result.reason


# --- what both are fed -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["padded", "reordered"])
def test_padded_and_reordered_batches_pass_with_a_footnote(state: str) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        records(signals, "batch")[2].update(state=state, fed=True)

    result = l1(parity(change))["batches"]
    assert result.state == "pass"
    assert "1 of 4 batches" in result.evidence["footnotes"][0]
    assert result.actual == f"3 same, 1 {state}"


def test_another_batch_fails_and_names_its_leaf_and_once_fed_the_rest_is_judged() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for record in records(signals, "batch")[1:]:
            record.update(state="unlike", leaf="labels", detail="3 of 32 values differ.", fed=True)

    results = l1(parity(change))
    assert results["batches"].state == "fail"
    assert results["batches"].summary == (
        "3 of 4 batches differ, first batch 2, labels: 3 of 32 values differ"
    )
    assert "fed instead in 3" in results["batches"].reason
    assert results["forward"].state == results["trajectory"].state == "pass"


def test_batches_that_were_not_fed_explain_every_number_after_them() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        records(signals, "batch")[0].update(state="missing", leaf=None, fed=False)
        module(signals, "head").update(error=0.5, isolated=0.5)
        for step in steps:
            step["loss"] *= 2

    results = l1(parity(change))
    assert results["batches"].state == "fail"
    for id in ("forward", "first_loss", "gradients", "grad_norm", "clip", "update", "trajectory"):
        assert results[id].state == "not run", id
        assert "other batches from batch 1 on" in results[id].reason
    assert results["events"].state == "pass"  # not a number


def test_without_batches_on_record_it_is_not_run() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signals[:] = [r for r in signals if r["k"] != "batch"]

    result = l1(parity(change))["batches"]
    assert (result.state, "DataLoader" in result.reason) == ("not run", True)


# --- module by module --------------------------------------------------------------------------


def test_the_innermost_module_that_differs_by_itself_is_named() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        module(signals, "blocks.0.up").update(error=5e-4, isolated=5e-4)
        for name in ("blocks.0", "head", ""):  # what comes after it, and what holds it
            module(signals, name).update(error=3e-4, isolated=5e-4 if name != "head" else 2e-7)
        steps[0]["loss"] *= 1.01
        for step in steps:
            step["grad_norm"] *= 1.01

    results = l1(parity(change))
    assert results["forward"].state == "fail"
    assert results["forward"].summary.startswith("first differs in blocks.0.up (Linear): fed the")
    assert results["forward"].tolerance == "relative L2 1e-05"
    for id in ("first_loss", "grad_norm"):
        assert results[id].state == "not run"
        assert "differs already, first in blocks.0.up (Linear) (L1.forward)" in results[id].reason


def test_another_shape_is_a_fault_where_it_is_the_models_own_and_nothing_is_padded() -> None:
    def inner(steps: list[JSON], signals: list[JSON]) -> None:
        module(signals, "head").update(error="inf", isolated=None, shape_unlike=True)

    def whole(steps: list[JSON], signals: list[JSON]) -> None:
        inner(steps, signals)
        module(signals, "").update(error="inf", isolated=None, shape_unlike=True)

    def padded(steps: list[JSON], signals: list[JSON]) -> None:
        whole(steps, signals)
        records(signals, "batch")[0].update(state="padded")

    def wrong(steps: list[JSON], signals: list[JSON]) -> None:
        inner(steps, signals)
        module(signals, "head").update(isolated=0.1)

    result = l1(parity(inner))["forward"]
    assert result.state == "pass"
    assert result.evidence["footnotes"] == [
        "head (Linear): of another shape, so not compared in place"
    ]
    assert "in head (Linear): its output has another shape" in l1(parity(whole))["forward"].summary
    assert l1(parity(padded))["forward"].state == "pass"
    assert "head" in l1(parity(wrong))["forward"].summary


def test_a_difference_between_the_modules_is_told_from_one_in_a_module() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        module(signals, "head").update(error=0.2)
        module(signals, "").update(error=0.2, isolated=None)

    result = l1(parity(change))["forward"]
    assert result.state == "fail"
    assert "look at the code that runs before it" in result.summary


def test_what_a_layer_says_of_padding_does_not_count_where_the_models_own_output_is_alike() -> None:
    def unread(steps: list[JSON], signals: list[JSON]) -> None:
        # A GRU that runs on over the padding: the original packed it, and took the last state.
        module(signals, "head").update(error=0.8, isolated=None)

    def read(steps: list[JSON], signals: list[JSON]) -> None:
        unread(steps, signals)
        module(signals, "").update(error=0.3)

    def itself(steps: list[JSON], signals: list[JSON]) -> None:
        module(signals, "head").update(error=0.8, isolated=0.8)

    def itself_padded(steps: list[JSON], signals: list[JSON]) -> None:
        itself(steps, signals)
        records(signals, "batch")[0].update(state="padded")

    def of_no_model(steps: list[JSON], signals: list[JSON]) -> None:
        unread(steps, signals)
        module(signals, "").update(error=None)

    result = l1(parity(unread))["forward"]
    assert result.state == "pass"
    assert "head (Linear): another output, by 0.8" in result.evidence["footnotes"][0]
    assert "relative L2 0.8" not in result.summary
    assert l1(parity(itself_padded))["forward"].state == "pass"
    for change in (read, itself, of_no_model):
        assert l1(parity(change))["forward"].state == "fail", change.__name__


def test_a_loss_is_no_module_and_fails_by_itself() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["loss"] *= 1.5

    results = l1(parity(change))
    assert results["forward"].state == "pass"
    assert results["first_loss"].state == results["trajectory"].state == "fail"


def test_modules_without_a_name_in_common_are_not_run() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "forward").update(modules=[], missing=["a"], extra=["b"])

    result = l1(parity(change))["forward"]
    assert (result.state, "[parity] rename" in result.reason) == ("not run", True)


def test_the_order_of_the_calls_decides_between_two_faults() -> None:
    found = modules(
        {"modules": [{"name": n, "error": 0.1, "isolated": 0.1} for n in ("b", "a.x", "a", "")]}
    )
    diverging = first_diverging(found, 1e-5)
    assert diverging is not None and diverging[0].name == "b"
    assert first_diverging(found, 0.5) is None


@pytest.mark.parametrize(
    ("config", "requests", "words"),
    [
        ({"target": {"kind": "tpu-v5e-4"}}, [], "bf16 on a TPU by default"),
        ({"target": {"kind": "tpu-v5e-4"}}, [{"what": "matmul precision(highest)"}], ""),
        ({}, [], ""),
    ],
)
def test_the_matmul_of_a_tpu_is_named_and_followed_unless_the_highest_was_asked_for(
    config: JSON, requests: list[JSON], words: str
) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        module(signals, "head").update(error=6e-3, isolated=6e-3)
        signal(signals, "precision")["requests"] = requests

    result = l1(parity(change, **config))["forward"]
    assert result.state == ("pass" if words else "fail")
    assert words in result.tolerance


# --- gradients ---------------------------------------------------------------------------------


def test_the_gradient_that_is_furthest_off_is_named() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "gradients")["errors"] |= {"head.weight": 0.03, "head.bias": 0.01}

    result = l1(parity(change))["gradients"]
    assert result.state == "fail"
    assert result.summary == "2 of 3 gradients differ, most in head.weight: 0.03"


def test_a_gradient_that_is_rounding_alone_does_not_count() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "gradients")["errors"]["head.bias"] = 0.9

    scene = Scene()
    scene.run("reference")
    steps = step_records(K, xla=False, parity=True)
    steps[0]["grad_norms"] = [0.8, 0.5, 1e-9]
    scene.run("parity", "reference", steps=steps, lines=())
    scene.snapshot("t1").run("attempt")
    play(scene, change, "target")
    assert l1(scene)["gradients"].state == "pass"


def test_a_lost_gradient_fails_and_a_nan_does() -> None:
    def lost(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "gradients").update(missing=["embed.weight"])

    def nan(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "gradients")["errors"]["head.weight"] = "nan"

    result = l1(parity(lost))["gradients"]
    assert (result.state, "embed.weight" in result.summary) == ("fail", True)
    assert l1(parity(nan))["gradients"].state == "fail"


def test_a_method_without_backward_has_no_gradients_and_reaches_its_level() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signals[:] = [r for r in signals if r["k"] != "gradients"]

    scene = parity(change)
    results, level = measure(scene.state, "t1")
    found = {r.check: r for r in results}["L1.gradients"]
    assert (found.state, "without backward" in found.reason) == ("not run", True)
    assert level.level == 3


# --- precision ---------------------------------------------------------------------------------

AUTOCAST = {"what": "autocast(bfloat16)", "count": 4, "at": "train.py:40"}


def half(steps: list[JSON], signals: list[JSON]) -> None:
    signal(signals, "precision")["requests"] = [AUTOCAST]


def test_half_precision_that_nobody_asked_for_fails_and_names_its_line() -> None:
    result = l1(parity(half, half))["precision"]
    assert result.state == "fail"
    assert "autocast(bfloat16) 4x at train.py:40" in result.summary
    assert 'precision = "bf16"' in result.reason


def test_a_variable_that_makes_xla_compute_in_bfloat16_fails_too() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "precision")["env"] = {"XLA_USE_BF16": "1"}

    result = l1(parity(change))["precision"]
    assert (result.state, "XLA_USE_BF16=1" in result.summary) == ("fail", True)


def test_half_precision_is_allowed_by_the_operator_or_by_a_reference_that_uses_it() -> None:
    assert l1(parity(half, half, target={"precision": "bf16"}))["precision"].state == "pass"
    scene = Scene()
    scene.run("reference")
    play(scene, half, "reference")
    scene.snapshot("t1").run("attempt")
    play(scene, half, "target")
    result = l1(scene)["precision"]
    assert (result.state, "as the reference" in result.expected) == ("pass", True)
    strict = parity(half, half, target={"precision": "fp32"})
    assert l1(strict)["precision"].state == "fail"


def test_a_run_in_its_own_dtype_is_held_to_the_tolerances_of_half_precision() -> None:
    def faithful(steps: list[JSON], signals: list[JSON]) -> None:
        half(steps, signals)
        for m in signal(signals, "forward")["modules"]:
            m.update(error=0.03, isolated=4.8e-3)
        signal(signals, "gradients")["errors"] = dict.fromkeys(["embed.weight"], 1.8e-2)
        for i, step in enumerate(steps):
            step["loss"] *= 1.01
            step["grad_norm"] *= 1 + 0.2 * i  # the first step alone is compared

    config: JSON = {"target": {"precision": "bf16"}}
    results = l1(parity(half, faithful, **config))
    assert {r.state for id, r in results.items() if id not in ("reduce", "global_batch")} >= {
        "pass"
    }
    assert not [id for id, r in results.items() if r.state == "fail"]
    assert "in its own precision" in results["trajectory"].evidence

    def wrong(steps: list[JSON], signals: list[JSON]) -> None:
        faithful(steps, signals)
        module(signals, "head").update(isolated=0.2)
        for step in steps:
            step["loss"] *= 1.3

    results = l1(parity(half, wrong, **config))
    assert results["forward"].summary.startswith("in its own precision first differs in head")
    assert results["first_loss"].summary.startswith("in its own precision")


# --- the reference's own variation, clipping, and the sentence -----------------------------------


def test_what_the_reference_varies_by_itself_widens_the_tolerance_and_is_said() -> None:
    def drift(by: float) -> Change:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            steps[2]["loss"] *= 1 + by

        return change

    scene = Scene().references()
    play(scene, drift(2e-3), "reference repeat")
    scene.snapshot("t1").run("attempt")
    play(scene, drift(5e-3), "target")
    result = l1(scene)["trajectory"]
    assert result.state == "pass"
    assert "(3 x the reference's own variation over 1 repeats)" in result.tolerance
    assert l1(parity(drift(5e-3)))["trajectory"].state == "fail"


def test_clipping_that_is_gone_is_refuted_with_the_coefficient_named() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["clips"] = []
            step["signature"] = step["signature"].replace("C(1) ", "")
            step["grad_norm_after"] = step["grad_norm"]

    scene = Scene()
    scene.run("reference")

    def clipped(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["grad_norm_after"] = 0.12 * step["grad_norm"]

    play(scene, clipped, "reference")
    scene.snapshot("t1").run("attempt")
    play(scene, change, "target")
    result = l1(scene)["clip"]
    assert result.state == "fail"
    assert result.summary == (
        "clip coefficient 1 instead of 0.12 in step 1: no clipping, the reference clip_grad_norm_(1)"
    )
    assert (result.expected, result.actual) == (
        "clip coefficient 0.12 in step 1 (clip_grad_norm_(1))",
        "clip coefficient 1 (no clipping)",
    )
    # It is in the one sentence about the session too, in which the order of events comes first.
    for body in measure(scene.state, "t1")[0]:
        scene.add(body, tree="t1")
    assert "clip coefficient 1 instead of 0.12" in ladder(scene.state).text


def test_another_limit_fails_whatever_the_numbers_rest_on() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        records(signals, "batch")[0].update(state="unlike", fed=False)
        for step in steps:
            step["clips"][0]["max_norm"] = 5.0

    results = l1(parity(change))
    assert results["clip"].state == "fail"
    assert results["grad_norm"].state == "not run"


# --- batches that a program makes by itself ------------------------------------------------------


def test_the_first_step_is_judged_where_only_later_batches_are_others() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        of = {"k": "batch", "pid": 7, "tid": 7, "source": "root", "fed": False}
        signals[:] = [r for r in signals if r["k"] != "batch"]
        signals.append({**of, "n": 0, "state": "same"})
        signals.append({**of, "n": 1, "state": "unlike", "detail": "x differs in 5 of 256 rows"})
        steps[0]["loss"] *= 1.1
        signal(signals, "gradients")["errors"] = {"body.weight": 0.3}

    found = l1(parity(change))
    states = {name: found[name].state for name in ("batches", "forward", "first_loss", "update")}
    assert states == {
        "batches": "fail",
        "forward": "pass",
        "first_loss": "fail",
        "update": "not run",
    }
    assert found["gradients"].state == "fail"

    def from_the_first(steps: list[JSON], signals: list[JSON]) -> None:
        change(steps, signals)
        records(signals, "batch")[0]["state"] = "unlike"

    found = l1(parity(from_the_first))
    assert {found[name].state for name in states if name != "batches"} == {"not run"}


def test_in_its_own_precision_a_program_may_make_other_batches() -> None:
    def own(steps: list[JSON], signals: list[JSON]) -> None:
        of = {"k": "batch", "pid": 7, "tid": 7, "source": "root", "fed": False}
        signals.append({**of, "n": 3, "state": "unlike", "detail": "x differs in 5 of 256 rows"})
        steps[3]["loss"] *= 2

    result = l1(parity(nothing, own))["trajectory"]
    assert result.state == "pass"
    assert "other batches from batch 4" in result.evidence["not in its own precision"]


# --- clipping that is written out ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("off", "state"), [(0.0, "pass"), (0.3, "fail")], ids=["by the coefficient", "by more"]
)
def test_gradients_that_the_program_has_clipped_itself_are_shorter(off: float, state: str) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step |= {"clips": [], "signature": "B H S M L Z", "by_hand": True}
        factor = steps[0]["grad_norm_after"] / steps[0]["grad_norm"]
        errors = signal(signals, "gradients")["errors"]
        for name in errors:
            errors[name] = 1 - factor + off

    result = l1(parity(change))["gradients"]
    assert result.state == state


# --- copies of the weights ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "natural", "state"),
    [
        ([0.02, 0.5], 0.0, "pass"),  # by distance: names and order are the program's own
        ([0.5, 0.020001], 0.0, "pass"),
        ([0.5, 0.1], 0.0, "fail"),
        ([0.5], 0.0, "pass"),  # it keeps none, or where it was not found
        ([0.02, 0.5, 0.7], 0.0, "pass"),
        ([0.5, 0.1], 0.3, "pass"),  # it may be of the weights before they were replaced
    ],
)
def test_an_average_of_the_weights_has_to_follow_them_alike(
    theirs: list[float], natural: float, state: str
) -> None:
    def keeping(distances: list[float]) -> Change:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            found = [{"root": 0, "name": f"EMA{n}", "distance": d} for n, d in enumerate(distances)]
            signals.append({"k": "copies", "pid": 7, "tid": 7, "n": K, "copies": found})
            for record in records(signals, "start"):
                record["natural_error"] = natural

        return change

    scene = Scene().snapshot("t0")
    scene.run("reference")
    play(scene, keeping([0.5, 0.02]), "reference")
    scene.snapshot("t1").run("attempt")
    play(scene, keeping(theirs), "target")
    update = l1(scene)["update"]
    assert update.state == state
    if state == "fail":
        assert (
            update.summary == "a copy of the weights (EMA1) is 0.1 away from them instead of 0.02"
        )
