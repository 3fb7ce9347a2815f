"""The rules over findings: which one speaks, one fault one finding, and the words of a result."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from core.body import JSON
from core.detectors import ranking
from core.detectors.base import (
    CATEGORIES,
    DETECTORS,
    OUTPUT_DETECTORS,
    Detector,
    OutputDetector,
    detector,
)
from core.diagnose import WIDTH, describe, describe_detectors, detectors, verdict
from core.findings import detect
from pilotage import cli
from tests.core.diagnosing.test_logs import diagnosis
from tests.core.scene import Scene, step_records

FALLING = "\n".join(f"step {i * 10} loss {2.3 * 0.97**i:.4f}" for i in range(20)) + "\n"
SLOW = "pt-xla-profiler: CompileTime too slow: longest instance took 13m05s576ms438us.\n"
NOT_LOWERED = "pt-xla-profiler: Op(s) not lowered: aten::sgn,  Please open a GitHub issue\n"
READS = "pt-xla-profiler: TransferFromDeviceTime too frequent: {} counts during 20 steps\n"


def names(text: str) -> list[str]:
    return [f["detector"] for f in diagnosis(text)["findings"]]


def test_an_error_speaks_before_what_is_silent() -> None:
    found = diagnosis(
        NOT_LOWERED + "RuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm."
    )
    assert [f["detector"] for f in found["findings"]] == ["hbm_oom", "aten_fallback"]
    assert (found["category"], found["silent"]) == ("C6", False)


def test_an_error_without_a_category_takes_that_of_a_silent_sign() -> None:
    found = diagnosis("WARNING:root:Defaulting to PJRT_DEVICE=CPU\nValueError: 3 is not in list")
    assert (found["category"], found["silent"]) == ("C1", False)
    assert verdict([]) == (None, False)


def test_what_is_sure_speaks_before_what_is_suspected() -> None:
    text = "epoch 1 loss 2.3026\nepoch 2 loss 2.3025\nepoch 3 loss 2.3026\n" + SLOW
    assert names(text) == ["compile_too_slow", "params_unchanged"]


def test_an_operator_on_the_host_explains_its_own_reads_and_no_others() -> None:
    assert names(NOT_LOWERED + READS.format(60))[0] == "aten_fallback"
    assert names(NOT_LOWERED + READS.format(4000))[0] == "transfer_per_step"
    by_data = NOT_LOWERED.replace("sgn", "nonzero")
    assert names(by_data + READS.format(60))[0] == "transfer_per_step"


def test_a_held_chip_explains_the_hosts_cpu() -> None:
    text = "libtpu.so already in use by another process.\nDefaulting to PJRT_DEVICE=CPU\n"
    assert names(text + FALLING) == ["cpu_fallback_warning"]
    text = "No GPU/TPU found, falling back to CPU.\nDefaulting to PJRT_DEVICE=CPU\n"
    assert names(text + FALLING) == ["pjrt_cpu_fallback"]


def test_a_kill_is_silent_and_an_interrupt_is_no_failure() -> None:
    killed = diagnosis(FALLING + "Killed")
    assert (killed["category"], killed["silent"], killed["ended"]) == ("C6", True, "killed")
    by_hand = diagnosis(FALLING + "Traceback (most recent call last):\nKeyboardInterrupt")
    assert (by_hand["category"], by_hand["silent"], by_hand["ended"]) == (
        None,
        False,
        "interrupted",
    )


@pytest.mark.parametrize(
    ("text", "flat"),
    [
        ("epoch 1 loss 2.3026\nepoch 2 loss 2.3025\nepoch 3 loss 2.3026", True),
        ("epoch 1 loss 2.3026\nepoch 2 loss 2.2796", False),  # 1 %
        ("step 1 loss 2.3026\nstep 2 loss 2.3026", False),  # too near to each other
        ("epoch 1 loss 2.30\nepoch 2 loss 2.30\nepoch 3 loss 2.30", False),  # too few digits
        ("\n".join(f"epoch {i} loss {2.3026 - i * 2e-4:.4f}" for i in range(6)), False),  # falls
        ("epoch 1 loss 0.0012\nepoch 2 loss 0.0012\nepoch 3 loss 0.0012", False),  # converged
    ],
)
def test_a_loss_is_flat_where_its_digits_can_tell(text: str, flat: bool) -> None:
    assert ("params_unchanged" in names(text)) == flat


def test_every_output_detector_has_its_place_and_a_source() -> None:
    assert set(ranking.ORDER) == set(OUTPUT_DETECTORS)
    for name, found in OUTPUT_DETECTORS.items():
        assert name == found.NAME
        assert (found.NEEDS, found.SILENT) == ("output", True)
        assert found.CATEGORY in CATEGORIES
        assert len(found.SOURCE) > 20
        assert type(found).__doc__
    known = set(DETECTORS) | set(OUTPUT_DETECTORS)
    assert {x for d in OUTPUT_DETECTORS.values() for x in d.SAME_FAULT} <= known
    assert {x for a, b in ranking.EXPLAINS.items() for x in (a, *b)} <= set(OUTPUT_DETECTORS)


def test_the_registry_refuses_a_name_twice_and_a_category_that_is_none() -> None:
    class Twice(OutputDetector):
        NAME, CATEGORY = "nan", "C5"

    class Nowhere(Detector):
        NAME, CATEGORY = "nowhere", "C9"

    class Unknown(Detector):
        NAME, CATEGORY, NEEDS = "unknown", "C5", "luck"

    for cls in (Twice, Nowhere, Unknown):
        with pytest.raises(ValueError):
            detector(cls)
    assert not {"nowhere", "unknown"} & (set(DETECTORS) | set(OUTPUT_DETECTORS))


# --- in a live run ---------------------------------------------------------------------------


def live(steps: list[JSON], *lines: str) -> list[str]:
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt", steps=steps, lines=lines)
    return [f.detector for f in detect(scene.state, run_id)]


def test_a_fault_seen_by_the_probe_and_in_the_output_is_one_finding() -> None:
    steps = step_records(40, xla=True)
    for step in steps:
        step["loss"] = "nan"
    assert live(steps, *(f"step {i} loss nan" for i in range(20))) == ["nan"]


def test_a_printed_number_is_not_asked_where_the_probe_has_read_it() -> None:
    flat = [f"step {i * 10} loss 2.3026" for i in range(20)]
    assert live(step_records(40, xla=True), *flat) == []  # the probe has seen the loss fall
    steps = step_records(40, xla=True)
    for step in steps:
        step.pop("loss")
    assert live(steps, *flat) == ["params_unchanged"]


def test_what_is_only_suspected_is_not_opened_in_a_session() -> None:
    steps = step_records(40, xla=True)
    for step in steps:
        step.pop("loss")
    few = [f"step {i * 10} loss 2.3026" for i in range(3)]
    assert live(steps, *few) == []
    assert names("\n".join(few)) == ["params_unchanged"]


def test_a_run_that_goes_on_is_given_time() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start()
    scene.output(run_id, *(f"step {i * 10} loss 2.3026 grad_norm 0.3" for i in range(8)))
    scene.output(run_id, "step 80 grad_norm nan")
    assert detect(scene.state, run_id) == []
    scene.output(run_id, *(f"step {i * 10} loss 2.3026 grad_norm nan" for i in range(9, 25)))
    assert [f.detector for f in detect(scene.state, run_id)] == ["nan", "params_unchanged"]


def test_the_output_of_a_live_run_shows_what_no_probe_sees() -> None:
    line = "UserWarning: Found missing adapter keys: ['base_model.model.layers.0.lora_A.weight']"
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt", lines=("starting", line))
    (found,) = detect(scene.state, run_id)
    assert (found.detector, found.category, found.silent) == ("checkpoint_equals_base", "C3", True)
    assert found.finding_id == f"{run_id}.checkpoint_equals_base"
    assert found.evidence == [line]


# --- words -----------------------------------------------------------------------------------


def test_the_text_is_plain_and_80_columns_wide() -> None:
    for text in (FALLING, NOT_LOWERED + READS.format(60), "KeyError: 'a'", "x" * 300 + " loss nan"):
        words = describe(diagnosis(text))
        assert all(len(line) <= WIDTH for line in words.splitlines())
        assert words.isascii() or "…" in words
    assert describe(diagnosis(FALLING)) == "a.log: no sign of a failure."
    words = describe(diagnosis(NOT_LOWERED))
    assert words.startswith(
        "a.log: silent failure (no error was raised), C5 operators and numerics."
    )
    assert "line 1: pt-xla-profiler: Op(s) not lowered: aten::sgn" in words
    assert "Next: " in words
    assert "Threshold: " in words
    assert ".." not in words


def test_the_detectors_are_listed() -> None:
    listed = detectors()
    assert {r["detector"] for r in listed} >= set(OUTPUT_DETECTORS) | {"import_error", "hbm_oom"}
    assert all(r["sees"].endswith(".") and len(r["source"]) > 20 for r in listed)
    assert all(len(line) <= WIDTH for line in describe_detectors().splitlines())


def test_the_command_answers_for_each_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("logs")
    good, bad = folder / "good.log", folder / "bad.log"
    good.write_text(FALLING)
    bad.write_text("step 10 loss nan\n")
    run = CliRunner().invoke

    one = run(cli, ["diagnose", str(bad), "--json"])
    assert one.exit_code == 0
    found = json.loads(one.stdout)
    assert (found["file"], found["category"], found["silent"]) == (str(bad), "C5", True)
    assert set(found["findings"][0]) == {
        "detector", "category", "title", "silent", "evidence", "next_step", "threshold", "source",
    }  # fmt: skip

    several = run(cli, ["diagnose", str(good), str(folder / "gone"), str(bad), "--json"])
    assert several.exit_code == 2
    rows = [json.loads(line) for line in several.stdout.splitlines()]
    assert [r["category"] for r in rows] == [None, None, "C5"]
    assert [r["silent"] for r in rows] == [False, None, True]
    assert "no file" in rows[1]["error"]
    assert "no file" in several.stderr

    words = run(cli, ["diagnose", str(good), str(folder / "gone"), str(bad)])
    assert words.exit_code == 2
    assert "no sign of a failure" in words.stdout
    assert "C5 operators and numerics" in words.stdout
    assert run(cli, ["diagnose", "-"], input=FALLING).exit_code == 0
    assert run(cli, ["diagnose"]).exit_code == 2
    assert "aten_fallback" in run(cli, ["diagnose", "--list"]).stdout
