"""L1.resume: what was saved is taken over, by a second process or by a second optimizer."""

from __future__ import annotations

from typing import Any

import pytest

from core.body import JSON
from tests.core.scene import step_records
from tests.core.verify.light import Change, results


def second(
    state: int = 6,
    lr: float = 5e-4,
    *,
    missing: int | None = 0,
    first: int = 0,
    resumes: bool = True,
) -> Change:
    """A second process goes on from what the first has saved."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        optimizer = next(r for r in signals if r["k"] == "optimizer")
        optimizer |= {"optimizer_id": 1, "state_tensors": first}
        for step in steps:
            step["optimizer_id"] = 1
        if steps[0].get("grad_norms") or not resumes:
            return  # the parity runs do not come so far
        who: JSON = {"pid": 8, "tid": 8}
        later = step_records(4, xla=False)
        for step in later:
            step.update(who, optimizer_id=1, groups=[{"lr": lr * step["n"], "weight_decay": 0.0}])
        steps.extend(later)
        loaded: JSON = {"k": "loaded", **who, "n": 0}
        if missing is not None:
            signals.append(
                {**loaded, "what": "module", "cls": "Net", "keys": 3, "missing": missing}
            )
        signals.append({**loaded, "what": "optimizer", "cls": "AdamW", "state_tensors": state})
        signals.append({**optimizer, **who, "state_tensors": state})

    return change


def verdict(change: Change, before: Change | None = None) -> tuple[str, str]:
    found = results([], [], before=before or second(), change=change)["L1.resume"]
    return found.state, found.summary


def test_the_same_state_the_same_weights_and_the_same_rates_are_right() -> None:
    assert verdict(second()) == ("pass", "goes on from the same state")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"state": 0}, "its state is lost: it starts without momenta"),
        ({"state": 3}, "it starts with 3 tensors of state instead of 6"),
        ({"lr": 1e-3}, "lr is 0.001 in the first step after the resume instead of 0.0005"),
        ({"missing": 2}, "2 keys of Net are missing in what it loads"),
        ({"missing": None}, "its model's weights are not loaded"),
    ],
    ids=["momenta", "part of them", "schedule", "keys", "weights"],
)
def test_what_is_lost_at_a_resume_fails(fields: dict[str, Any], text: str) -> None:
    assert verdict(second(**fields)) == ("fail", f"optimizer 2 of 2: {text}")


def test_a_state_that_the_reference_does_not_start_with_fails() -> None:
    found = verdict(second(first=6, resumes=False), second(resumes=False))
    assert found == ("fail", "it starts with 6 tensors of state, the reference's with none")


def test_a_resume_that_does_not_happen_fails() -> None:
    state, summary = verdict(second(resumes=False))
    assert (state, summary) == ("fail", "1 optimizer(s) take steps instead of 2")


def test_runs_that_start_anew_are_not_judged() -> None:
    assert verdict(second(resumes=False), second(resumes=False))[0] == "not run"
    assert results([], [])["L1.resume"].state == "not run"
