"""L3.checkpoint: what is saved is what was trained, and all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.body import JSON
from core.verify.checkpoint import MAX_LOADS, _by_name, _saved
from tests.core.verify.light import STEPS, Change, K, results

# The parity runs of these sessions start with norms 20, 10 and 0.5.
TRAINED = {"embed.weight": 21.0, "head.weight": 10.5, "head.bias": 0.6}


def saved(n: int = 8, **fields: Any) -> JSON:
    return {
        "k": "saved",
        "pid": 7,
        "tid": 7,
        "wall": float(n),
        "path": "last.pt",
        "format": "torch.save",
        "tensors": 3,
        "elements": 1500,
        "norms": TRAINED,
        "keys_hash": "abc",
        "n": n,
        **fields,
    }


def verdict(ours: list[JSON], theirs: list[JSON]) -> tuple[str, str]:
    found = results(ours, theirs)["L3.checkpoint"]
    return found.state, found.summary


@pytest.mark.parametrize(
    "theirs",
    [
        [saved()],
        [saved(norms={k: v * 1.01 for k, v in TRAINED.items()})],
        [saved(norms=dict.fromkeys(TRAINED))],
        [saved(path="model.safetensors", format="safetensors", keys_hash="other")],
        [saved(path="epoch-2.pt"), saved(n=4, path="epoch-1.pt")],
        [saved(tensors=4, elements=2000)],
        [saved(norms={f"model.module.{k}": v for k, v in TRAINED.items()}, keys_hash="x")],
    ],
    ids=["same", "trained else", "on a device", "another format", "names", "untied", "wrapped"],
)
def test_trained_weights_are_right_under_any_name(theirs: list[JSON]) -> None:
    assert verdict([saved()], theirs)[0] == "pass"


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        ([], "saves no tensors at all"),
        ([saved(tensors=2, elements=1000)], "last.pt holds 2 tensors of 1000 elements instead"),
        ([saved(n=0)], "last.pt is saved before the first step"),
        (
            [saved(norms={**TRAINED, "head.weight": 0.0})],
            "1 tensor(s) in last.pt are all zero, first head.weight",
        ),
        (
            [saved(norms={"embed.weight": 20.0, "head.weight": 10.0, "head.bias": 0.5})],
            "3 tensor(s) in last.pt are as they were before the training, first embed.weight",
        ),
        (
            [saved(norms={"net.model." + k: v for k, v in {**TRAINED, "head.bias": 0.5}.items()})],
            "1 tensor(s) in last.pt are as they were before the training, first net.model.head.bias",
        ),
    ],
    ids=["nothing", "fewer keys", "before training", "zero", "the base", "nested, in part"],
)
def test_other_files_than_the_reference_s_fail(theirs: list[JSON], text: str) -> None:
    state, summary = verdict([saved()], theirs)
    assert (state, summary[: len(text)]) == ("fail", text)


def test_what_the_reference_does_not_train_either_may_stay() -> None:
    still = {"embed.weight": 20.0, "head.weight": 10.5, "head.bias": 0.6}
    assert verdict([saved(norms=still)], [saved(norms=still)])[0] == "pass"


def test_files_that_never_change_fail_where_the_reference_s_do() -> None:
    names = {"ema.0": 3.0, "ema.1": 4.0}
    moving = [saved(n=n, norms={k: v + n for k, v in names.items()}) for n in (4, 8)]
    fixed = [saved(n=n, norms=names) for n in (4, 8)]
    assert verdict(moving, moving)[0] == "pass"
    assert verdict(fixed, fixed)[0] == "pass"
    assert verdict(moving, fixed) == ("fail", "last.pt never changes from save to save")


def test_a_file_that_is_missing_among_several_fails() -> None:
    other = saved(path="adapter.pt", keys_hash="def", norms={"lora.A": 1.0, "lora.B": 0.3})
    assert verdict([saved(), other], [saved(), other])[0] == "pass"
    state, summary = verdict([saved(), other], [saved()])
    assert (state, summary) == ("fail", "no file like adapter.pt is saved")


def test_a_reference_that_saves_nothing_says_nothing() -> None:
    assert results([], [saved()])["L3.checkpoint"].state == "not run"


@given(
    st.lists(
        st.sampled_from(["module.", "model.", "_orig_mod.", "net.", "state_dict."]), max_size=4
    )
)
def test_a_parameter_is_found_under_any_prefix(prefixes: list[str]) -> None:
    key = "".join(prefixes) + "head.bias"
    assert _by_name(_saved(saved(norms={key: 1.0})), {"head.bias": 0.5}) == [("head.bias", key)]


def loaded(n: int, **fields: Any) -> JSON:
    return {
        "k": "loaded",
        "pid": 7,
        "tid": 7,
        "what": "module",
        "cls": "Net",
        "keys": 3,
        "n": n,
    } | (fields)


def test_what_goes_into_memory_is_no_file() -> None:
    message = saved(path=None, tensors=1, elements=1, norms={"": 14.0}, keys_hash="m")
    assert verdict([saved()], [message]) == ("fail", "saves no tensors at all")
    assert verdict([saved()], [message, saved()])[1].startswith("1 file(s)")
    in_memory = saved(path=None)
    assert verdict([in_memory], [in_memory])[0] == "pass"


def test_weights_that_the_reference_tests_are_loaded_here_too() -> None:
    ours, theirs = [saved(), loaded(STEPS)], [saved(), loaded(STEPS, cls="Wrapped")]
    assert verdict(ours, theirs)[0] == "pass"
    for none in ([], [loaded(0)], [loaded(STEPS, what="optimizer")], [loaded(STEPS - 1)]):
        state, summary = verdict(ours, [saved(), *none])
        assert state == "fail"
        assert summary.startswith("no weights are loaded after the last step")
    assert verdict([saved(), loaded(STEPS - 1)], [saved()])[0] == "pass"
    many = [loaded(1) for _ in range(MAX_LOADS)]
    assert verdict(ours, [saved(), *many])[0] == "pass"  # later ones are not on record


def at(*numbers: int) -> Change:
    """Saves after these steps of the parity run."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        if len(steps) == K:
            signals += [saved(n) for n in numbers]

    return change


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        ((1, 2), (1, 2), ""),
        ((1, 2), (1,), "weights are saved after other parity steps than in the reference: 1 inst"),
        ((2,), (1, 2), "weights are saved after other parity steps than in the reference: 1, 2 in"),
        ((2, K), (2,), ""),  # the run may have ended before it saved
        ((), (2,), ""),
    ],
)
def test_the_best_weights_are_saved_after_the_same_steps(
    ours: tuple[int, ...], theirs: tuple[int, ...], text: str
) -> None:
    again = [saved(), loaded(STEPS)]
    found = results(again, again, before=at(*ours), change=at(*theirs))["L3.checkpoint"]
    assert (found.state, found.summary[: len(text)]) == ("fail" if text else "pass", text)
    unread = results([saved()], [saved()], before=at(*ours), change=at(*theirs))["L3.checkpoint"]
    assert unread.state == "pass"  # how often a run saves what it does not read is its own affair
