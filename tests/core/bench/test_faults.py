"""The fault bench: reading projects, applying patches, judging, and the whole on a stand-in.

The stand-in for Pilotage's commands answers what a file of the verified copy says, so that every
verdict is tried without training anything.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import pilotage
from core.bench import fault_report, faults
from core.bench.fault_judging import METHODS, Judged, failed, holds, judge, of_method, ours
from core.bench.fault_projects import (
    ProjectError,
    Variant,
    find_projects,
    read_project,
    to_toml,
)
from core.bench.fault_runs import Processes, StepFailed, apply_patch, lay_out
from core.config import load
from core.errors import PilotageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOML = """
title = "a tiny project"
[reference]
command = "python train.py"
[target]
kind = "xla-cpu"
command = "python train.py"
env = { PJRT_DEVICE = "CPU" }
[metric]
name = "loss"
pattern = 'loss: ([0-9.]+)'
[criteria]
parity_steps = 4
[[faithful]]
name = "plain"
patch = "faithful/plain.patch"
[[faithful]]
name = "half"
patch = "faithful/plain.patch"
precision = "bf16"
command = "python half.py"
env = { CPU_NUM_DEVICES = "4" }
[[fault]]
name = "clip-lost"
kind = "clip dropped"
patch = "faults/clip.patch"
level = 1
category = "C3"
[[fault]]
name = "on-half"
kind = "metric"
patch = "faults/clip.patch"
base = "half"
level = 3
"""
PLAIN = """--- a/train.py
+++ b/train.py
@@ -1,2 +1,2 @@
-device = "cuda"
+device = "xla"
 clip = 1
"""
CLIP = """--- a/train.py
+++ b/train.py
@@ -1,2 +1,2 @@
 device = "xla"
-clip = 1
+clip = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "projects" / "tiny"
    for name in ("project", "faithful", "faults"):
        (place / name).mkdir(parents=True)
    (place / "project.toml").write_text(TOML)
    (place / "project/train.py").write_text('device = "cuda"\nclip = 1\n')
    (place / "faithful/plain.patch").write_text(PLAIN)
    (place / "faults/clip.patch").write_text(CLIP)
    return place.parent


# --- reading -----------------------------------------------------------------------------------


def test_a_project_is_read_with_what_each_variant_is_made_of(folder: Path) -> None:
    (project,) = find_projects(folder)
    plain, half, clip, on_half = project.variants
    assert [v.id for v in (plain, on_half)] == ["tiny/plain", "tiny/on-half"]
    assert [p.name for p in clip.patches] == ["plain.patch", "clip.patch"]
    assert (clip.base, on_half.base, clip.level, plain.level) == ("plain", "half", 1, None)
    assert half.tables["target"]["precision"] == on_half.tables["target"]["precision"] == "bf16"
    assert on_half.tables["target"]["command"] == "python half.py"
    assert on_half.tables["target"]["env"] == {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4"}
    assert clip.tables["target"]["command"] == "python train.py"


def test_the_settings_of_a_variant_are_a_configuration(folder: Path, tmp_path: Path) -> None:
    (project,) = find_projects(folder)
    (tmp_path / "pilotage.toml").write_text(to_toml(project.variants[3].tables))
    config = load(tmp_path, agent=False)
    assert (config.target.precision, config.project.copy) == ("bf16", True)
    assert config.metric.pattern == "loss: ([0-9.]+)"
    assert config.criteria["parity_steps"] == 4


values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=4))
def test_what_is_written_as_toml_is_read_as_it_was(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml({"t": table})) == {"t": table}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "a tiny project"', "", "title is missing"),
        ("level = 1", "level = 7", "level has to be 0 to 4, not 7"),
        ("level = 1", 'level = "one"', "level has to be a whole number, not 'one'"),
        ("level = 1", "", "level is missing"),
        ('kind = "clip dropped"', "", "kind is missing"),
        ('category = "C3"', 'category = "C9"', "category has to be C1 to C6"),
        ('base = "half"', 'base = "quarter"', "there is no base 'quarter'"),
        ("faults/clip.patch", "faults/lost.patch", "there is no patch faults/lost.patch"),
        ("faults/clip.patch", "../../../etc/passwd", "there is no patch"),
        ('name = "on-half"', 'name = "plain"', "the name is taken"),
        ('name = "on-half"', 'name = "../x"', "a name has letters"),
        ("[criteria]\nparity_steps", "[criteria]\nparity_stepz", "parity_stepz"),
        ('kind = "xla-cpu"', 'kind = "gpu"', "there is no target kind 'gpu'"),
        ("[metric]\nname", "[metrics]\nname", "there is no 'metrics'"),
        ("[[faithful]]\nname", "[[faithful]]\nlevel = 1\nname", "there is no 'level'"),
        ('CPU_NUM_DEVICES = "4"', "CPU_NUM_DEVICES = 4", "env has to be a table of texts"),
        ("[reference]", "[reference", "is no TOML"),
    ],
)
def test_a_mistake_in_a_project_is_a_sentence(folder: Path, old: str, new: str, said: str) -> None:
    file = folder / "tiny" / "project.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(PilotageError, match="tiny") as found:
        find_projects(folder)
    assert said in str(found.value)


def test_a_project_without_an_original_and_names_that_are_not_there(folder: Path) -> None:
    with pytest.raises(ProjectError, match="no project 'other' .*; there is: tiny"):
        find_projects(folder, ["other"])
    with pytest.raises(ProjectError, match="no variant 'tiny/x'"):
        find_projects(folder, ["tiny/x"])
    (chosen,) = find_projects(folder, ["tiny/on-half"])
    assert [v.name for v in chosen.variants] == ["on-half"]
    (folder / "tiny/project").rename(folder / "tiny/other")
    with pytest.raises(ProjectError, match="original"):
        read_project(folder / "tiny")


def test_every_project_of_this_repository_can_be_read_and_its_patches_apply(tmp_path: Path) -> None:
    """Each is whole: at least two faithful migrations, one in bf16, and five faults."""
    for project in find_projects(faults.PROJECTS):
        good = [v for v in project.variants if v.faithful]
        assert len(good) >= 2, project.name
        assert len(project.variants) - len(good) >= 5, project.name
        for variant in project.variants:
            place = tmp_path / project.name / variant.name
            place.mkdir(parents=True)
            lay_out(project.original, place, variant.tables, variant.patches)


# --- patches -----------------------------------------------------------------------------------


def test_patches_are_applied_in_their_order_even_inside_a_repository(folder: Path) -> None:
    (project,) = find_projects(folder)
    place = folder / "tiny" / "out"  # git sees no repository here, whatever lies above
    (folder / ".git").mkdir()
    place.mkdir()
    copy = lay_out(project.original, place, project.variants[2].tables, project.variants[2].patches)
    assert (copy / "train.py").read_text() == 'device = "xla"\nclip = 0\n'
    assert (copy / "pilotage.toml").is_file()
    assert (project.original / "train.py").read_text().startswith('device = "cuda"')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLIP, "does not apply: error: "),
        ("no patch at all\n", "does not apply"),
        (PLAIN.replace("a/train.py", "../../x").replace("b/train.py", "../../x"), "does not apply"),
    ],
)
def test_a_broken_patch_is_a_sentence_and_leaves_the_copy_alone(
    folder: Path, text: str, said: str
) -> None:
    patch = folder / "tiny/faults/clip.patch"
    patch.write_text(text)
    copy = folder / "tiny/project"
    before = (copy / "train.py").read_text()
    with pytest.raises(StepFailed) as found:
        apply_patch(copy, patch)
    assert said in str(found.value)
    assert "tiny/faults/clip.patch" in str(found.value)
    assert (copy / "train.py").read_text() == before


# --- judging -----------------------------------------------------------------------------------

FAULT = Variant("p", "f", (), kind="clip", level=1, category="C3")
FAITHFUL = Variant("p", "g", ())


def answer(**states: str) -> dict[str, Any]:
    """The JSON of a verification: everything passes but what is named, as in ``L1_clip="fail"``."""
    every = {
        "L0.exit": "", "L0.result": "", "L1.forward": "C5", "L1.clip": "C3", "L1.reduce": "C3",
        "L2.device": "C2", "L3.metric": "", "L4.time": "",
    }  # fmt: skip
    given_states = {id.replace("_", ".", 1): state for id, state in states.items()}
    assert set(given_states) <= set(every)
    return {
        "checks": [
            {
                "id": id,
                "level": int(id[1]),
                "state": given_states.get(id, "pass"),
                "category": category,
                "summary": f"{id} says so",
                "reason": "why",
            }
            for id, category in every.items()
        ]
    }


@pytest.mark.parametrize(
    ("states", "verdict", "check", "at"),
    [
        ({"L1_clip": "fail", "L3_metric": "fail"}, "right", "L1.clip", 1),
        ({"L0_exit": "fail", "L1_clip": "not run"}, "right", "L0.exit", 0),
        ({"L3_metric": "fail"}, "late", "L3.metric", 3),
        ({"L1_clip": "not run"}, "missed", "", None),
        ({"L1_clip": "stale"}, "missed", "", None),
        ({"L1_clip": "waived"}, "missed", "", None),
        ({"L4_time": "fail"}, "missed", "", None),
        ({}, "missed", "", None),
    ],
)
def test_a_fault_is_detected_by_a_failure_at_its_level_or_below(
    states: dict[str, str], verdict: str, check: str, at: int | None
) -> None:
    row = judge(FAULT, answer(**states), 1.5)
    assert (row.verdict, row.check, row.at) == (verdict, check, at)
    assert row.good == (verdict == "right")
    if at == 0:
        assert "expected at L1, refused at L0" in row.notes


def test_another_category_than_expected_is_said() -> None:
    row = judge(FAULT, answer(L1_forward="fail"), 1.0)
    assert (row.verdict, row.category) == ("right", "C5")
    assert "expected C3" in row.notes[-1]
    both = judge(FAULT, answer(L1_forward="fail", L1_clip="fail"), 1.0)
    assert (both.check, both.category, both.notes) == ("L1.forward", "C3", ())


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ({}, "right"),
        ({"L4_time": "fail"}, "right"),  # what it costs is another question
        ({"L1_reduce": "not run"}, "right"),  # optional: one process has no ranks
        ({"L1_forward": "not run"}, "unproven"),
        ({"L2_device": "fail"}, "false alarm"),
        ({"L3_metric": "fail", "L1_forward": "not run"}, "false alarm"),
    ],
)
def test_a_faithful_variant_alarms_if_any_check_fails(states: dict[str, str], verdict: str) -> None:
    row = judge(FAITHFUL, answer(**states), 1.0)
    assert row.verdict == verdict
    assert row.good == (verdict != "false alarm")


def test_a_fault_of_cost_is_judged_at_l4() -> None:
    slow = Variant("p", "slow", (), kind="slow", level=4)
    assert judge(slow, answer(L4_time="fail"), 1.0).verdict == "right"


@pytest.mark.parametrize("result", [{}, {"checks": []}, {"checks": "x"}, {"checks": [{"id": 1}]}])
def test_an_answer_that_says_nothing_is_an_error_for_both_kinds(result: dict[str, Any]) -> None:
    for variant in (FAULT, FAITHFUL):
        row = judge(variant, result, 1.0)
        assert (row.verdict, row.good) == ("error", False)
        assert set(row.noticed.values()) == {None}


def test_the_simpler_methods_are_judged_on_the_same_runs() -> None:
    rows = [
        judge(FAULT, answer(L1_clip="fail"), 1.0),  # nobody else sees it
        judge(FAULT, answer(L1_forward="fail", L3_metric="fail"), 1.0),
        judge(FAULT, answer(L0_result="fail", L3_metric="not run", L1_forward="not run"), 1.0),
        judge(FAITHFUL, answer(L3_metric="fail"), 1.0),
        failed(FAULT, "It took too long."),
    ]
    word, metric, forward = METHODS
    assert rows[2].noticed == {word: True, metric: None, forward: None}
    assert (ours(rows).detected, ours(rows).faults, ours(rows).alarms) == (3, 4, 1)
    assert [of_method(rows, m).detected for m in METHODS] == [1, 1, 1]
    assert [of_method(rows, m).alarms for m in METHODS] == [0, 1, 0]
    assert not holds(rows)
    assert holds(rows[:3])
    assert not holds([])


checks = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["L0.exit", "L1.clip", "L1.forward", "L3.metric", "L9.new", ""]),
            "level": st.sampled_from([0, 1, 2, 3, 4, "1", None]),
            "state": st.sampled_from(["pass", "fail", "not run", "stale", "waived", "odd", None]),
        },
        optional={"summary": st.text(), "category": st.sampled_from(["C3", "", None])},
    ),
    max_size=8,
)


@given(checks, st.sampled_from([None, 0, 1, 3, 4]))
def test_only_a_failure_detects_and_only_a_failure_alarms(
    rows: list[dict[str, Any]], level: int | None
) -> None:
    row = judge(Variant("p", "v", (), level=level), {"checks": rows}, 0.0)
    failures = [c["level"] for c in rows if c["state"] == "fail" and isinstance(c["level"], int)]
    if level is None:
        assert (row.verdict == "false alarm") == any(n <= 3 for n in failures)
    else:
        assert (row.verdict == "right") == any(n <= level for n in failures)


# --- the whole, on a stand-in ------------------------------------------------------------------

STAND_IN = """
import json, pathlib, sys, time
words = sys.argv[1:]
copy = pathlib.Path(words[2] if words[0] == "reference" else words[1])
print("working", file=sys.stderr)
if words[0] == "reference":
    if (copy / "broken").exists():
        print(json.dumps({"error": "The reference ended with exit 1."}))
        sys.exit(1)
    pathlib.Path(words[words.index("-o") + 1]).write_text("bundle")
    print(json.dumps({"made": True}))
    sys.exit(0)
assert pathlib.Path(words[words.index("--reference") + 1]).read_text() == "bundle"
text = (copy / "train.py").read_text()
if (copy / "slow").exists() and "clip = 0" in text:
    time.sleep(60)
if (copy / "mute").exists():
    print("no object")
    sys.exit(1)
state = "fail" if "clip = 0" in text else "pass"
print(json.dumps({"checks": [
    {"id": "L0.exit", "level": 0, "state": "pass"},
    {"id": "L1.clip", "level": 1, "state": state, "category": "C3", "summary": "clip factor 1, not 0.5"},
    {"id": "L3.metric", "level": 3, "state": "pass"},
]}))
sys.exit(state == "fail")
"""


def run(folder: Path, tmp_path: Path, **more: Any) -> tuple[faults.Report, list[str]]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    said: list[str] = []
    report = faults.measure(
        find_projects(folder),
        jobs=2,
        python=None,
        say=said.append,
        processes=Processes([sys.executable, str(script)]),
        **{"keep": None, **more},
    )
    return report, said


def test_the_bench_records_once_verifies_each_variant_and_says_what_was_said(
    folder: Path, tmp_path: Path
) -> None:
    report, said = run(folder, tmp_path, keep=tmp_path / "kept")
    assert [row.variant.name for row in report.rows] == ["plain", "half", "clip-lost", "on-half"]
    assert [row.verdict for row in report.rows] == ["right"] * 4
    assert report.holds
    assert sum("recording the reference" in line for line in said) == 1
    assert any("[4/4] tiny/" in line for line in said)
    text, result = fault_report.describe(report), fault_report.as_json(report)
    assert "L1.clip: clip factor 1, not 0.5" in text
    assert "expected at L3, refused at L1" in text
    assert text.endswith("It holds.")
    assert result["methods"]["the ladder"] == {
        "detected": 2, "faults": 2, "false_alarms": 0, "faithful": 2,
    }  # fmt: skip
    assert result["methods"]["final metric only"]["detected"] == 0
    assert result["short"] == []
    assert (tmp_path / "kept/tiny/clip-lost/verify.json").is_file()
    json.dumps(result)
    with pytest.raises(PilotageError, match="not empty"):
        run(folder, tmp_path, keep=tmp_path / "kept")


def test_what_takes_too_long_or_prints_no_object_is_an_error_and_the_others_go_on(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "tiny/project/slow").touch()
    report, _ = run(folder, tmp_path, limit_s=3.0)
    verdicts = {row.variant.name: row for row in report.rows}
    assert verdicts["plain"].verdict == "right"
    assert verdicts["clip-lost"].verdict == "error"
    assert "longer than its limit of 3 s" in verdicts["clip-lost"].said
    assert not report.holds
    assert "tiny/clip-lost (error)" in fault_report.describe(report)
    (folder / "tiny/project/mute").touch()
    (folder / "tiny/project/slow").unlink()
    report, _ = run(folder, tmp_path)
    assert {row.verdict for row in report.rows} == {"error"}
    assert "exit 1 and no JSON object. Its last words: working" in report.rows[0].said


def test_a_reference_or_a_patch_that_fails_costs_only_its_own_variants(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "tiny/project/broken").touch()
    report, _ = run(folder, tmp_path)
    assert {row.said for row in report.rows} == {"No reference: The reference ended with exit 1."}
    (folder / "tiny/project/broken").unlink()
    (folder / "tiny/faults/clip.patch").write_text("nothing\n")
    report, _ = run(folder, tmp_path)
    assert [row.verdict for row in report.rows] == ["right", "right", "error", "error"]
    assert "does not apply" in fault_report.as_json(report)["short"][0]["why"]


# --- the command -------------------------------------------------------------------------------


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(pilotage.cli, ["bench", "faults", *arguments])


def test_bad_input_is_a_sentence_and_exit_2(folder: Path) -> None:
    missing = ask("--projects", str(folder / "none"))
    assert missing.exit_code == 2
    assert "not in an installed package" in missing.stderr
    unknown = ask("--projects", str(folder), "--only", "other", "--json")
    assert unknown.exit_code == 2
    assert "there is: tiny" in json.loads(unknown.stdout)["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--projects", "x" * 300), "There is no folder"),
        (("--projects", "~nobody-of-this-name/x"), "There is no folder"),
        (("--projects", "/dev/null"), "There is no folder"),
        (("--python", "/nowhere/python"), "--python: there is no program"),
        (("--only", "tiny", "--keep", "x" * 300), "can't be used: File name too long"),
    ],
)
def test_names_that_are_none_cost_no_run(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = ask("--projects", str(folder), *arguments, "--json")
    assert done.exit_code == 2
    assert said in json.loads(done.stdout)["error"]


def test_a_pipe_in_the_place_of_a_project_is_none(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    os.mkfifo(tmp_path / "p" / "project.toml")
    assert "There is no project in" in ask("--projects", str(tmp_path)).stderr


def test_a_bench_that_is_stopped_ends_its_commands_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    stopped: list[Processes] = []
    real = Processes.stop
    monkeypatch.setattr(Processes, "stop", lambda self: (stopped.append(self), real(self))[1])

    def record(*arguments: object) -> tuple[Path, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        raise StepFailed("it was ended")

    monkeypatch.setattr("core.bench.faults.record_reference", record)
    done = ask("--projects", str(folder))
    assert (done.exit_code, len(stopped)) == (2, 1)
    assert done.stderr.endswith("pilotage: The bench was stopped by SIGTERM.\n")
    assert not [*(tmp_path / "tmp").iterdir()]


def rows_of(verdicts: list[str]) -> list[Judged]:
    return [Judged(FAULT, verdict) for verdict in verdicts]


def test_no_row_of_another_verdict_than_right_or_unproven_holds() -> None:
    for verdict in ("missed", "late", "false alarm", "error"):
        assert not holds(rows_of(["right", verdict]))
