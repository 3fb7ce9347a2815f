"""The command: what it finds besides, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from core.config import load
from core.init import read_project
from core.init.python import ask, find_pythons
from core.init.render import toml
from core.init.settings import find_seeds, read_settings
from core.risk.tree import list_files
from core.text import clean
from pilotage import cli
from tests.core.init.reading import TRAINS, entries, write

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = {"train.py": TRAINS + "print(f'test accuracy: {a:.3f}')\n", "requirements.txt": "apex\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write(tmp_path / "melora", PROJECT)


def _init(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["init", *map(str, args), "--python", sys.executable])


def _git(root: Path, *args: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *who, *args], cwd=root, check=True, capture_output=True)


# --- writing ---------------------------------------------------------------------------------


def test_it_writes_a_file_that_loads_and_says_what_it_found(project: Path) -> None:
    done = _init(project)
    assert done.exit_code == 0, done.output
    file = project / "pilotage.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    config = load(file)
    assert config.project.path == str(project)
    assert config.reference.command == "python train.py"
    assert config.metric.pattern and config.agent.driver == "manual"
    for word in ("Wrote", "python train.py", "from train.py:8", "test accuracy", "C1", "Next:"):
        assert word in done.output
    assert max(len(line) for line in done.output.split("\n") if "/" not in line) <= 80
    assert [p.name for p in project.iterdir() if p.name.startswith(".")] == []


def test_every_value_says_where_it_is_from(project: Path) -> None:
    _init(project)
    lines = (project / "pilotage.toml").read_text().split("\n")
    for key in ("python", "command", "device", "kind", "name", "higher_is_better", "driver"):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
        before = [ln for ln in lines[max(0, at - 6) : at] if ln.startswith("# ")]
        assert before, key
    assert max(len(line) for line in lines if line.startswith("#")) <= 92


def test_a_file_that_is_there_is_kept_without_force(project: Path) -> None:
    (project / "pilotage.toml").write_text("mine")
    done = _init(project)
    assert done.exit_code == 2 and "is there already: --force overwrites it" in done.output
    assert (project / "pilotage.toml").read_text() == "mine"
    assert _init(project, "--force").exit_code == 0
    assert (project / "pilotage.toml").read_text() != "mine"


def test_another_place(project: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    assert _init(project, "--output", place).exit_code == 0
    assert load(place).project.path == str(project)
    assert not (project / "pilotage.toml").exists()
    assert _init(project, "--output", place / "m.toml").exit_code == 0
    assert load(place / "m.toml").project.path == str(project)


def test_a_dry_run_prints_the_file_and_writes_nothing(project: Path) -> None:
    done = _init(project, "--dry-run")
    assert done.exit_code == 0 and not (project / "pilotage.toml").exists()
    assert tomllib.loads(done.output)["reference"]["command"] == "python train.py"
    (project / "pilotage.toml").write_text("mine")
    assert _init(project, "--dry-run").exit_code == 0


def test_json_has_everything(project: Path) -> None:
    result = json.loads(_init(project, "--json").output)
    assert result["written"] and result["edits"] == []
    assert result["text"] == (project / "pilotage.toml").read_text()
    assert result["entries"][0]["why"][0] == "main 30"
    assert result["metrics"][0]["source"] == "train.py:10"
    assert result["risks"]["counts"]["C1"]["sure"] == 1
    assert result["python"]["path"] == sys.executable


def test_the_scan_alone(project: Path) -> None:
    done = CliRunner().invoke(cli, ["init", str(project), "--scan-only"])
    assert done.exit_code == 0 and "A package or image built for CUDA" in done.output
    assert not (project / "pilotage.toml").exists()
    done = CliRunner().invoke(cli, ["init", str(project), "--scan-only", "--json"])
    assert json.loads(done.output)["hits"][0]["file"] == "requirements.txt"


@pytest.mark.parametrize("more", [[], ["--scan-only"]])
def test_what_is_no_project_is_a_sentence(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        done = CliRunner().invoke(cli, ["init", str(path), *more])
        assert done.exit_code == 2 and "give the directory of a project" in done.output


def test_a_directory_that_is_not_there_for_the_output(project: Path) -> None:
    done = _init(project, "--output", project / "no" / "m.toml")
    assert done.exit_code == 2 and "can't be written" in done.output


def test_a_project_without_anything_gives_a_file_that_says_what_to_edit(tmp_path: Path) -> None:
    done = _init(tmp_path)
    assert done.exit_code == 0
    assert "To edit before the first run:" in done.output
    assert "no way to start a training was found" in done.output
    assert load(tmp_path).reference.command == "python train.py"


def test_a_command_in_which_no_training_was_seen_is_for_an_edit(tmp_path: Path) -> None:
    write(tmp_path, {"serve.py": "import torch\nif __name__ == '__main__':\n    pass\n"})
    done = _init(tmp_path)
    assert "no training was seen in what serve.py starts" in " ".join(done.output.split())
    assert "# EDIT: no training was seen" in (tmp_path / "pilotage.toml").read_text()


def test_names_of_a_stranger_reach_neither_the_terminal_nor_the_file(tmp_path: Path) -> None:
    name = 'tr"ain\x1b[2J\\.py'
    root = write(tmp_path / 'pro"j\\ect', {name: TRAINS + 'print("acc\x1b[31m:", acc)\n'})
    done = _init(root)
    assert done.exit_code == 0, done.output
    text = (root / "pilotage.toml").read_text()
    for line in (*done.output.split("\n"), *text.split("\n")):
        assert clean(line) == line
    assert load(root).reference.command


@given(st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.text()))
def test_any_value_is_written_as_toml(value: object) -> None:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


# --- what it finds ---------------------------------------------------------------------------


def test_the_python_of_the_project_comes_first(tmp_path: Path) -> None:
    for place in (".venv", "venv"):
        (tmp_path / place / "bin").mkdir(parents=True)
    answer = '{"python": "3.9.1", "torch": %s, "torch_xla": null}'
    for place, torch in ((".venv", "null"), ("venv", '"2.1.0"')):
        python = tmp_path / place / "bin" / "python"
        python.write_text(f"#!/bin/sh\necho '{answer % torch}'\n")
        python.chmod(0o755)
    found = find_pythons(tmp_path)
    assert found[0].path == str(tmp_path / "venv/bin/python") and found[0].torch == "2.1.0"
    assert any(p.path == str(tmp_path / ".venv/bin/python") and p.torch is None for p in found)
    assert find_pythons(tmp_path, sys.executable)[0].source == "--python"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", "does not start"),
        ("echo no", "does not start"),
        ("echo boom >&2; exit 1", "boom"),
    ],
)
def test_a_python_that_is_none_is_told(script: str, problem: str, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    assert problem in ask(str(fake), "here").problem
    done = CliRunner().invoke(cli, ["init", str(tmp_path), "--python", str(fake)])
    assert done.exit_code == 2 and "does not start" in done.output
    assert "does not start" in ask(str(tmp_path / "none"), "here").problem


def test_a_python_named_from_here_is_written_from_there(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "env" / "bin").mkdir(parents=True)
    (project / "env" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(project.parent)
    args = ["init", "melora", "--python", "melora/env/bin/python"]
    assert CliRunner().invoke(cli, args).exit_code == 0
    assert 'python = "env/bin/python"' in (project / "pilotage.toml").read_text()
    assert load(project).project.python == str(project / "env/bin/python")
    monkeypatch.chdir(project)
    assert CliRunner().invoke(cli, ["init", "--force", "--python", "python3"]).exit_code == 0
    assert Path(load(project).project.python).is_absolute()


def test_a_python_is_asked_beside_the_project_not_in_it(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the project was imported')")
    assert not ask(sys.executable, "here").problem


def test_what_is_no_python_can_not_fill_the_memory_or_stay(tmp_path: Path) -> None:
    endless, helper = tmp_path / "endless", tmp_path / "helper"
    endless.write_text("#!/bin/sh\nexec yes\n")
    started = tmp_path / "started"
    helper.write_text(f"#!/bin/sh\nsleep 600 >&- 2>&- &\necho $! > {started}\n")
    for file in (endless, helper):
        file.chmod(0o755)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "does not start" in ask(str(endless), "here").problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
    assert "does not start" in ask(str(helper), "here").problem
    child = Path("/proc", started.read_text().strip(), "stat")
    until = time.monotonic() + 20
    while child.exists() and child.read_text().split(")")[1].split()[0] != "Z":
        assert time.monotonic() < until, "what it started is still there"


def test_a_name_that_is_not_utf8_is_escaped_in_json(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(root)).mkdir()
    Path(os.fsdecode(root), "train.py").write_text(PROJECT["train.py"])
    done = _init(os.fsdecode(root), "--json")
    assert done.exit_code == 0
    assert os.fsdecode(root) == json.loads(done.stdout_bytes.decode())["project"]


def test_huge_lines_are_read_in_bounded_time(tmp_path: Path) -> None:
    size = 1_900_000
    write(
        tmp_path,
        {
            "train.py": TRAINS,
            "Makefile": "A =" + " " * size + "x\n" + "b" * 30_000 + "\nt:\n\tpython train.py\n",
            "README.md": "`" * size,
            "docs/README.rst": "    python train.py " + "-a " * 500_000,
            "old.py": "import torch\n" + "\n" * size + "print 'x'",
            "blank.py": "import torch  # parse_args\n" + " " * size + "def f(:",
            "run.sh": "A=$A$A$A$A\n" * 4_000 + "python train.py $A " + "'\"" * 200_000,
            "conf.yaml": "a" * size,
            "setup.cfg": "x = " + "\n " * 500_000,
            "pyproject.toml": "x = " + "[" * size,
        },
    )
    done = _init(tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["reference"]["command"].startswith("python train.py")


def test_files_that_name_a_python_can_not_hold_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".python-version")
    (tmp_path / "environment.yml").symlink_to("/dev/zero")
    assert find_pythons(tmp_path)


def test_seeds_and_settings(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "run.sh": "python train.py --config conf/a.yaml",
            "conf/a.yaml": "# x\nseed: 13\ntrain:\n  epochs: 5   # five\n  batch_size: 32\n  lr: 1e-3\n",
            "train.py": TRAINS + "torch.manual_seed(4)\n",
        },
    )
    found, scripts = entries(tmp_path)
    settings = read_settings(["conf/a.yaml"], list_files(tmp_path))
    assert [(f.value, f.source) for f in settings] == [
        ("seed 13", "conf/a.yaml:2"),
        ("epochs 5", "conf/a.yaml:4"),
        ("batch_size 32", "conf/a.yaml:5"),
        ("lr 1e-3", "conf/a.yaml:6"),
    ]
    seeds = find_seeds(found[0], scripts, settings)
    assert seeds is not None and (seeds.value, seeds.source) == ([13], "conf/a.yaml:2")
    in_code = find_seeds(found[0], scripts, [])
    assert in_code is not None and (in_code.value, in_code.source) == ([4], "train.py:10")


def test_ignored_data_is_linked_and_uncommitted_code_is_copied(tmp_path: Path) -> None:
    root = write(
        tmp_path / "p",
        {
            "train.py": TRAINS + "load('corpus/train.txt')\n",
            ".gitignore": "data/\ncorpus/\nsecret/\nruns/\n",
            "data/x.bin": "1",
            "corpus/train.txt": "1",
            "secret/y": "1",
            "runs/z": "1",
        },
    )
    _git(root, "init", "-q")
    facts, _, _ = read_project(root, sys.executable)
    assert facts.copy is not None and "no git repository with a commit" in facts.copy.source
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "x")
    facts, _, _ = read_project(root, sys.executable)
    assert facts.copy is None
    assert sorted(f.value for f in facts.link) == ["corpus", "data"]
    (root / "notes.md").write_text("x")
    facts, _, _ = read_project(root, sys.executable)
    assert facts.copy is None and "Uncommitted changes of 1 file" in facts.notes[0]
    (root / "train.py").write_text(TRAINS)
    facts, _, _ = read_project(root, sys.executable)
    assert facts.copy is not None and "train.py" in facts.copy.source


def test_directories_that_runs_write_to(tmp_path: Path) -> None:
    code = TRAINS + "import argparse\np = argparse.ArgumentParser()\n"
    code += "p.add_argument('--save-dir', default='exp/base')\np.add_argument('--log-level', default='x')\n"
    root = write(tmp_path, {"train.py": code, "run.sh": "python train.py --output_dir results/a"})
    facts, _, _ = read_project(root, sys.executable)
    assert sorted(f.value for f in facts.outputs) == ["exp/", "results/"]


def test_notebooks_are_told(tmp_path: Path) -> None:
    write(tmp_path, {"a.ipynb": '{"cells": []}', "train.py": TRAINS})
    facts, _, _ = read_project(tmp_path, sys.executable)
    assert any("1 notebook (a.ipynb)" in note for note in facts.notes)
