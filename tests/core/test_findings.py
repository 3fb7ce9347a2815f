"""Findings: which detector sees what, that healthy runs show nothing, and when one is over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core import events as ev
from core.body import JSON
from core.events import FindingOpened
from core.findings import CATEGORIES, DETECTORS, detect, every_detector, resolved
from tests.core.scene import Scene, healthy, signal, signal_records, step_records

CUDA = (
    "Traceback (most recent call last):",
    '  File "/w/train.py", line 70, in main',
    "    model = model.cuda()",
    '  File "/v/site-packages/torch/cuda/__init__.py", line 410, in _lazy_init',
    "RuntimeError: Found no NVIDIA driver on your system.",
)


def findings(scene: Scene, run_id: str) -> dict[str, FindingOpened]:
    return {f.detector: f for f in detect(scene.state, run_id)}


def attempt(
    change: Callable[[list[JSON], list[JSON]], object] = lambda *_: None,
    count: int = 40,
    lines: tuple[str, ...] = (),
    **config: JSON,
) -> dict[str, FindingOpened]:
    steps, signals = step_records(count, xla=True), signal_records(count, xla=True)
    change(steps, signals)
    scene = Scene(**config).references().snapshot("t1")
    return findings(scene, scene.run("attempt", steps=steps, signals=signals, lines=lines))


def loud(*stderr: str, **end: object) -> dict[str, FindingOpened]:
    scene = Scene().references().snapshot("t1")
    more = {"exit_code": 1, **end}
    run_id = scene.run("attempt", steps=[], signals=[], stderr=stderr, lines=(), **more)  # type: ignore[arg-type]
    return findings(scene, run_id)


# --- healthy ---------------------------------------------------------------------------------


def test_healthy_runs_of_every_purpose_open_nothing() -> None:
    scene = healthy()
    assert [f for run_id in scene.state.runs for f in detect(scene.state, run_id)] == []
    assert detect(scene.state, "r99") == []


def test_even_a_failing_reference_is_not_judged() -> None:
    scene = Scene()
    run_id = scene.run("reference", stderr=CUDA, exit_code=1)
    assert detect(scene.state, run_id) == []


def test_every_detector_says_where_its_sign_comes_from() -> None:
    for name, detector in DETECTORS.items():
        assert name == detector.NAME
        assert detector.CATEGORY in CATEGORIES
        assert len(detector.SOURCE) > 20


# --- loud ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "detector", "category"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", "cuda_assumed", "C2"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "cuda_assumed", "C2"),
        ("RuntimeError: Expected all tensors to be on the same device", "cuda_assumed", "C2"),
        ("ImportError: /x/_XLAC.so: undefined symbol: _ZN5torch8auto", "import_error", "C1"),
        ("ModuleNotFoundError: No module named 'torch_xla'", "import_error", "C1"),
        ("OSError: libcudart.so.12: cannot open shared object file", "import_error", "C1"),
        ("RuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in hbm", "hbm_oom", "C6"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory", "C6"),
        ("RuntimeError: don't know how to restore data location of x", "restore_error", "C3"),
        ("NotImplementedError: Could not run 'aten::foo' with XLA", "operator_missing", "C5"),
        ("RuntimeError: device_ready_queues_ INTERNAL ASSERT FAILED", "lazy_runtime_error", "C4"),
        ("ValueError: too many values to unpack", "error", "uncategorised"),
    ],
)
def test_the_last_words_of_a_run_give_its_category(
    error: str, detector: str, category: str
) -> None:
    found = loud("Traceback (most recent call last):", '  File "a.py", line 1, in f', error)
    assert set(found) == {detector}
    finding = found[detector]
    assert (finding.category, finding.silent) == (category, False)
    assert error in finding.evidence
    assert finding.next_step
    assert finding.finding_id == f"r3.{detector}"


def test_the_place_named_is_the_projects_own() -> None:
    assert loud(*CUDA)["cuda_assumed"].evidence[0] == "at /w/train.py:70"


def test_a_source_line_of_the_traceback_does_not_decide() -> None:
    found = loud(
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "    torch.cuda.synchronize(), raise_out_of_memory()",
        "ValueError: bad split",
    )
    assert set(found) == {"error"}
    assert found["error"].title == "ValueError: bad split"


def test_an_earlier_caught_traceback_does_not_decide() -> None:
    found = loud(*CUDA, "Traceback (most recent call last):", "KeyError: 'label'")
    assert set(found) == {"error"}


def test_a_warning_that_came_last_is_not_what_ended_the_run() -> None:
    warning = "train.py:80: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated."
    found = loud(warning, exit_code=None, reason="signalled", signal="SIGKILL")
    assert set(found) == {"error"}
    native = loud(warning, "F0101 check.cc:3] Check failed: RESOURCE_EXHAUSTED", exit_code=None,
                  reason="signalled", signal="SIGABRT")  # fmt: skip
    assert set(native) == {"out_of_memory"}


def test_a_signal_is_loud_and_a_stop_is_nothing() -> None:
    killed = loud(exit_code=None, reason="signalled", signal="SIGSEGV")
    assert killed["error"].title == "SIGSEGV"
    assert loud(exit_code=None, reason="stopped") == {}
    assert loud(exit_code=None, reason="cut off") == {}


def test_a_parity_run_is_only_listened_to_for_errors() -> None:
    scene = Scene().references().snapshot("t1")
    steps = step_records(4, xla=True, parity=True)
    for step in steps:
        step |= {"params_changed": False, "update_norm": 0.0, "transfers": 9}
    run_id = scene.run("parity", "target", steps=steps, stderr=CUDA, exit_code=1, lines=())
    assert set(findings(scene, run_id)) == {"cuda_assumed"}


# --- silent ----------------------------------------------------------------------------------


def test_an_optimizer_made_before_the_move_is_one_finding() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "optimizer").update(orphaned=3, devices={"cpu": 1500})
        for step in steps:
            step["loss"] = 2.3
            if "params_changed" in step:
                step |= {"params_changed": False, "update_norm": 0.0}

    found = attempt(change)
    assert set(found) == {"params_unchanged"}
    finding = found["params_unchanged"]
    assert (finding.category, finding.silent) == ("C2", True)
    assert "3 of 3 tensors" in finding.evidence[0]
    assert "after the model has been moved" in finding.next_step


def test_parameters_that_changed_once_are_not_unchanged() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps[1:]:
            step["params_changed"] = False

    assert attempt(change) == {}


def compiling(which: Callable[[int], bool]) -> Callable[[list[JSON], list[JSON]], None]:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["compiles"] = int(which(step["n"]))

    return change


def test_recompiling_every_step_is_seen_after_four_steps_beyond_the_warm_up() -> None:
    always = compiling(lambda n: True)
    assert attempt(always, count=6) == {}
    assert set(attempt(always, count=7)) == {"recompile"}
    finding = attempt(always)["recompile"]
    assert finding.category == "C4"
    assert finding.evidence == ["compilations: 37 in the 37 steps up to step 40 (0.0 s)"]


def test_recompiling_in_most_steps_is_seen_from_step_10_on() -> None:
    mostly = compiling(lambda n: n % 4 != 0)
    assert attempt(mostly, count=9) == {}
    assert set(attempt(mostly, count=11)) == {"recompile"}
    assert attempt(compiling(lambda n: n % 3 == 0), count=40) == {}


@pytest.mark.parametrize(
    ("field", "value", "detector", "category"),
    [
        ("transfers", 1, "transfer_per_step", "C4"),
        ("executes", 0, "no_step_boundary", "C4"),
        ("fallbacks", {"aten::nonzero": 1}, "aten_fallback", "C5"),
        ("loss", 2.302585, "loss_constant", "C2"),
        ("loss", "nan", "nan", "C5"),
        ("grad_norm", "inf", "nan", "C5"),
    ],
)
def test_a_sign_in_the_steps_opens_its_finding(
    field: str, value: object, detector: str, category: str
) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step[field] = value

    found = attempt(change)
    assert {(f.detector, f.category, f.silent) for f in found.values()} == {
        (detector, category, True)
    }


def test_infinite_gradients_under_a_scaler_are_its_business() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        steps[3] |= {"grad_norm": "inf", "loss_source": "backward, unscaled"}

    assert "nan" not in attempt(change)


def test_reading_a_scalar_is_no_fallback() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "finish")["fallbacks"] = {"aten::_local_scalar_dense": 40}

    assert attempt(change) == {}


def test_a_model_left_on_the_cpu_is_seen_for_the_target_command_only() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "model")["devices"] = {"cpu": 1500}

    assert attempt(change)["model_on_cpu"].category == "C2"
    scene = Scene().references().snapshot("t1")
    run_id = scene.start(command="python -m inkformer.train --device cpu")
    scene.records(run_id, step_records(40, xla=False), signal_records(40, xla=False))
    scene.end(run_id)
    assert detect(scene.state, run_id) == []


def test_falling_back_to_the_host_is_a_finding_where_a_tpu_was_asked_for() -> None:
    line = ("WARNING:root:Defaulting to PJRT_DEVICE=CPU",)
    found = attempt(lines=line, target={"kind": "tpu-v5e-1"})
    assert found["pjrt_cpu_fallback"].category == "C1"
    assert attempt(lines=line) == {}  # on xla-cpu it is what was asked for


def test_a_lost_tie_is_seen_against_the_reference() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "model").update(tied=[], parameters=2000)

    finding = attempt(change)["param_count_changed"]
    assert finding.category == "C3"
    assert finding.evidence[0] == "no longer tied: decoder.weight = embed.weight"


def test_memory_that_grows_with_every_step_is_seen() -> None:
    def grow(per_step: float) -> Callable[[list[JSON], list[JSON]], None]:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            for step in steps:
                step["rss_mb"] = 900 + per_step * step["n"]

        return change

    assert set(attempt(grow(3.0), count=250)) == {"rss_slope"}
    assert attempt(grow(0.5), count=250) == {}


def test_one_long_compilation_is_seen() -> None:
    found = attempt(lambda steps, _: steps[0].update(compile_s=400.0))
    assert set(found) == {"compile_too_slow"}


@pytest.mark.parametrize(
    ("line", "detector"),
    [
        ("pt-xla-profiler: CompileTime too frequent: 21 counts during 11 steps", "recompile"),
        ("pt-xla-profiler: TransferFromServerTime too frequent: 9 counts", "transfer_per_step"),
        ("pt-xla-profiler: Op(s) not lowered: aten::nonzero,  Please open", "aten_fallback"),
        ("pt-xla-profiler: CompileTime too slow: longest instance took 13m", "compile_too_slow"),
    ],
)
def test_the_profilers_own_lines_are_read(line: str, detector: str) -> None:
    found = attempt(lines=(line,))
    assert set(found) == {detector}
    assert line in found[detector].evidence


# --- asked again and again -------------------------------------------------------------------


def test_findings_of_a_run_that_goes_on_keep_their_ids() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start()
    steps = step_records(40, xla=True)
    for step in steps:
        step["compiles"] = 1
    scene.add(ev.RunSignalled(signal_records(40, xla=True)[:2]), run_id)
    seen: list[str] = []
    for i in range(0, 40, 5):
        scene.add(ev.RunStepped(steps[i : i + 5]), run_id)
        found = detect(scene.state, run_id)
        assert detect(scene.state, run_id) == found
        seen += [f.finding_id for f in found]
    assert set(seen) == {"r3.recompile"}
    assert len(seen) == 7  # from step 10 on; of 5 steps two are beyond the warm-up


def test_asking_a_long_run_is_quick() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start()
    scene.records(run_id, step_records(20_000, xla=True), signal_records(20_000, xla=True))
    for i in range(100):
        scene.output(run_id, *(f"step {i} loss 0.1" for _ in range(1_000)))
    state = scene.state
    began = time.process_time()
    for _ in range(5):
        assert detect(state, run_id) == []
    assert time.process_time() - began < 2.0  # CPU seconds; measured 0.3


@pytest.mark.parametrize("junk", [None, "x", -1, [], {}, [{}], {"a": "b"}, 1e400, True])
def test_records_of_any_shape_never_break_a_detector(junk: object) -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for record in [*steps, *signals]:
            for field in list(record):
                if field != "k":
                    record[field] = junk

    attempt(change)


# --- over ------------------------------------------------------------------------------------


def faulty_then(first_steps: int, **then: object) -> list[ev.FindingResolved]:
    """A recompiling attempt, its finding on record, and a second attempt."""
    scene = Scene().references().snapshot("t1")
    steps = step_records(first_steps, xla=True)
    for step in steps:
        step["compiles"] = 1
    run_id = scene.run("attempt", steps=steps, signals=signal_records(first_steps, xla=True))
    for finding in detect(scene.state, run_id):
        scene.add(finding, run_id)
    assert len(scene.state.findings) == 1
    later = scene.run("attempt", **then)  # type: ignore[arg-type]
    return resolved(scene.state, later)


def test_a_finding_is_over_when_a_later_run_got_as_far_without_it() -> None:
    over = faulty_then(40)
    assert [(r.finding_id, r.reason) for r in over] == [
        ("r3.recompile", "Run #4 got as far and does not show it.")
    ]
    assert over[0].author == ""


def test_it_is_not_over_when_the_later_run_stopped_short_or_says_nothing() -> None:
    short = {"steps": step_records(20, xla=True), "signals": signal_records(20, xla=True)}
    assert faulty_then(40, **short) == []
    assert faulty_then(40, steps=[], signals=[]) == []
    assert len(faulty_then(20, **short)) == 1


def test_a_loud_finding_is_over_once_a_run_gets_past_it() -> None:
    def then(**more: object) -> list[ev.FindingResolved]:
        scene = Scene().references().snapshot("t1")
        run_id = scene.run("attempt", steps=[], signals=[], stderr=CUDA, exit_code=1)
        for finding in detect(scene.state, run_id):
            scene.add(finding, run_id)
        later = scene.run("attempt", **more)  # type: ignore[arg-type]
        return resolved(scene.state, later)

    assert len(then()) == 1
    assert len(then(exit_code=1)) == 1  # another error, but 40 steps later
    assert then(steps=[], signals=[], stderr=("KeyError: 1",), exit_code=1) == []


def test_a_run_of_another_command_resolves_nothing() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt", steps=[], signals=[], stderr=CUDA, exit_code=1)
    scene.add(detect(scene.state, run_id)[0], run_id)
    other = scene.end(scene.start(command="python -m pytest"))
    assert resolved(scene.state, other) == []


# --- public cases ----------------------------------------------------------------------------

#: Key lines of public cases, as quoted in their threads, that a loud detector has to place.
CASES = [
    ("ImportError: /home/USER/x/_XLAC.so: undefined symbol: _ZN5torch4lazy...", "C1"),
    ("OSError: libsbitsandbytes_cpu.so: cannot open shared object file: No such file", "C1"),
    ("RuntimeError: don't know how to restore data location of torch.FloatStorage", "C3"),
    ("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating", "C6"),
    ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm.", "C6"),
]


@pytest.mark.parametrize(("line", "category"), CASES)
def test_public_cases_are_put_where_their_threads_put_them(line: str, category: str) -> None:
    assert [f.category for f in loud(line).values()] == [category]


def test_findings_can_be_stored() -> None:
    for finding in loud(*CUDA).values():
        assert json.loads(ev.encode_payload(finding))["category"] == "C2"


def test_the_package_has_no_detector_outside_the_registry() -> None:
    folder = Path(__file__).parents[2] / "core" / "detectors"
    declared = sum(p.read_text().count("\n@detector\n") for p in folder.glob("*.py"))
    assert declared == len(every_detector())
