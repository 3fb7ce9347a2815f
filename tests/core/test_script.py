"""Scripts of the scripted agent: what they may say, and how mistakes in them are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.agents.script import ScriptError, load

STAGES = """
[[stage]]
name = "one"
[[stage.edit]]
path = "a.py"
search = "x"
replace = "y"
[[stage.edit]]
path = "b.py"
search = "x"
replace = "y"

[[fault]]
name = "bad"
base = "one"
[[fault.edit]]
path = "a.py"
search = "y"
replace = "z"
"""


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "edits.toml").write_text(STAGES)
    path = tmp_path / "script.toml"
    path.write_text(text)
    return path


def test_a_stage_becomes_one_step_per_edit(tmp_path: Path) -> None:
    script = load(
        write(
            tmp_path,
            'edits = "edits.toml"\npace_s = 2\n[[step]]\nsay = "hi"\n[[step]]\nedit_stage = "one"\n'
            '[[step]]\nedit_stage = "bad"\n[[step]]\nclaim = 3\ntext = "done"\n',
        )
    )
    assert [(s.number, s.action) for s in script.steps] == [
        (1, "say"),
        (2, "edit"),
        (2, "edit"),
        (3, "edit"),
        (4, "claim"),
    ]
    assert script.steps[2].input == {"path": "b.py", "search": "x", "replace": "y"}
    assert script.steps[4].level == 3 and script.steps[4].text == "done"
    assert script.pace_s == 2.0


def test_run_has_the_command_and_the_finding_to_stop_on(tmp_path: Path) -> None:
    script = load(
        write(
            tmp_path,
            '[[step]]\nrun = true\nstop_on = "C4"\nif_finding = {C4 = "stopped"}\n'
            '[[step]]\nrun = "make"\npause_s = 3\n',
        )
    )
    first, second = script.steps
    assert first.input == {"stop_on": "C4"} and first.finding_replies == {"C4": "stopped"}
    assert second.input == {"command": "make"} and second.pause_s == 3.0


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('[[step]]\nsay = "a"\n\n[[step]]\nsya = "b"\n', 4, "it has none"),
        ('[[step]]\nsay = "a"\nread = "b"\n', 1, "it has say and read"),
        ('[[step]]\nsay = "a"\nstop_on = "C4"\n', 1, "no key 'stop_on'"),
        ("[[step]]\nsay = 3\n", 1, "has to be a text"),
        ("[[step]]\nclaim = 7\n", 1, "a level from 0 to 4"),
        ("[[step]]\nclaim = true\n", 1, "a level from 0 to 4"),
        ("[[step]]\nrun = false\n", 1, "has to be true"),
        ("[[step]]\nverify = 1\n", 1, "has to be true"),
        ('[[step]]\nedit = {path = "a", search = "b"}\n', 1, "path, search and replace"),
        ('[[step]]\nwrite = {path = "a"}\n', 1, "path and content"),
        ('[[step]]\nedit_stage = "two"\n', 1, "there is no stage 'two'"),
        ('[[step]]\nsay = "a"\npause_s = -1\n', 1, "pause_s"),
        ('[[step]]\nsay = "a"\npause_s = inf\n', 1, "0 to a day"),
        ('[[step]]\nsay = "a"\npause_s = nan\n', 1, "0 to a day"),
        ('[[step]]\nsay = """\n[[step]]\n"""\n\n[[step]]\nnot = 1\n', 6, "step 2"),
    ],
)
def test_mistakes_name_line_and_step(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ScriptError) as caught:
        load(path)
    assert f"{path}, line {line}, step " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        ('on = "tea"\naction = "allow"', "on has to be one of"),
        ('on = "ask"\naction = "dance"', "action has to be one of"),
        ('on = "run"\naction = "allow"', "only an ask"),
        ('on = "ask"\naction = "allow"\nafter_s = "soon"', "wrong type"),
        ('on = "ask"\naction = "allow"\nafter_s = -1', "0 to a day"),
        ('on = "ask"\naction = "allow"\nafter_s = inf', "0 to a day"),
        ('on = "ask"\naction = "allow"\nwhen = "now"', "no key 'when'"),
    ],
)
def test_mistakes_of_the_operators_acts(tmp_path: Path, act: str, says: str) -> None:
    path = write(tmp_path, f'[[step]]\nsay = "a"\n\n[[operator]]\n{act}\n')
    with pytest.raises(ScriptError) as caught:
        load(path)
    assert f"{path}, line 4, operator 1: " in str(caught.value)
    assert says in str(caught.value)


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="There is no script"):
        load(tmp_path / "none.toml")
    with pytest.raises(ScriptError, match="is not TOML"):
        load(write(tmp_path, "[[step\n"))
    with pytest.raises(ScriptError, match="do nothing"):
        load(write(tmp_path, 'title = "empty"\n'))
    with pytest.raises(ScriptError, match="pace_s"):
        load(write(tmp_path, 'pace_s = inf\n[[step]]\nsay = "a"\n'))
    with pytest.raises(ScriptError, match="no key 'steps'"):
        load(write(tmp_path, 'steps = 3\n[[step]]\nsay = "a"\n'))


def test_the_hash_follows_the_steps(tmp_path: Path) -> None:
    one = load(write(tmp_path, '[[step]]\nsay = "a"\n')).hash()
    two = load(write(tmp_path, '[[step]]\nsay = "b"\n')).hash()
    same = load(write(tmp_path, 'title = "t"\n[[step]]\nsay = "a"\n')).hash()
    assert one != two and one == same


def test_every_edit_of_the_demo_script_applies_in_its_order() -> None:
    import core.demo

    place = Path(core.demo.__file__).parent
    script = load(place / "migration.toml")
    files: dict[str, str] = {}
    for step in script.steps:
        if step.action != "edit":
            continue
        path = step.input["path"]
        text = files.setdefault(path, (place / "project" / path).read_text())
        assert text.count(step.input["search"]) == 1, (step.number, step.input)
        files[path] = text.replace(step.input["search"], step.input["replace"])
    assert "torch_xla" in files["inkformer/train.py"]
