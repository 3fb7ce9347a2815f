"""Rounding that grows along the parity steps is no difference of the code; a jump is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.body import JSON
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, signal_records, step_records

K = 12
#: As a U-Net's migration to torch_xla did, in its gradient norm.
GROWING = (5e-7, 2e-7, 7e-7, 3e-7, 6e-8, 3e-7, 1e-5, 6e-5, 2e-4, 3e-4, 9e-4, 7e-3)
FIELDS = ("grad_norm", "grad_norm_after", "update_norm")


def states(change: Callable[[list[JSON]], None]) -> dict[str, tuple[str, str]]:
    """State and summary of the L1 checks of numbers, of a target whose steps are changed."""
    scene = Scene(criteria={"parity_steps": K}).references().snapshot("t1")
    scene.run("attempt")
    steps, signals = (
        step_records(K, xla=True, parity=True),
        signal_records(K, xla=True, parity=True),
    )
    change(steps)
    scene.run("parity", "target", steps=steps, signals=signals, lines=())
    return {
        r.check.removeprefix("L1."): (r.state, r.summary)
        for r in evaluate(scene.state, "t1")
        if r.level == 1
    }


def apart(*errors: float) -> Callable[[list[JSON]], None]:
    def change(steps: list[JSON]) -> None:
        for step, error in zip(steps, errors, strict=True):
            for field in FIELDS:
                step[field] *= 1 + error

    return change


def test_rounding_that_grows_is_judged_up_to_where_it_shows() -> None:
    found = states(apart(*GROWING))
    assert found["grad_norm"][0] == found["update"][0] == "pass"
    assert found["grad_norm"][1].endswith(", up to step 11")


@pytest.mark.parametrize(
    "errors",
    [
        (*GROWING[:8], 7e-3, 7e-3, 7e-3, 7e-3),  # comes from nowhere
        (2e-5, *GROWING[1:]),  # is there in the first step
        (5e-7, 2e-4, 7e-3, *GROWING[3:]),  # too early
        (*GROWING[:11], 0.7),  # another size
        (*GROWING[:10], 2e-3, 0.9),
    ],
    ids=["jump", "first step", "early", "other size", "lost later"],
)
def test_what_did_not_grow_from_rounding_fails(errors: tuple[float, ...]) -> None:
    assert states(apart(*errors))["grad_norm"][0] == "fail"


def test_an_update_that_is_lost_after_rounding_has_grown_fails() -> None:
    def change(steps: list[JSON]) -> None:
        apart(*GROWING)(steps)
        steps[-1]["update_norm"] = 0.0

    assert states(change)["update"][0] == "fail"


def test_steps_that_are_missing_are_no_rounding() -> None:
    def change(steps: list[JSON]) -> None:
        apart(*GROWING)(steps)
        del steps[-1]

    assert states(change)["trajectory"][0] == "fail"


@pytest.mark.parametrize(
    ("errors", "distance", "state"),
    [
        (GROWING, 0.0202, "pass"),
        (GROWING, 0.1, "fail"),
        (GROWING[:6] * 2, 0.0202, "fail"),
    ],
)
def test_a_copy_of_the_weights_is_held_less_closely_once_rounding_has_grown(
    errors: tuple[float, ...], distance: float, state: str
) -> None:
    def kept(at: float) -> JSON:
        copies = [{"root": 0, "name": "EMA", "distance": at}]
        return {"k": "copies", "pid": 7, "tid": 7, "n": K, "copies": copies}

    scene = Scene(criteria={"parity_steps": K}).snapshot("t0")
    scene.run("reference")
    for xla, of, at in ((False, "reference", 0.02), (True, "target", distance)):
        if xla:
            scene.snapshot("t1").run("attempt")
        steps = step_records(K, xla=xla, parity=True)
        signals = [*signal_records(K, xla=xla, parity=True), kept(at)]
        if xla:
            apart(*errors)(steps)
        scene.run("parity", of, steps=steps, signals=signals, lines=())
    found = {r.check: r for r in evaluate(scene.state, "t1")}["L1.update"]
    assert found.state == state
    if state == "fail":
        assert found.summary.startswith("a copy of the weights (EMA)")
