"""The command line: what is wrong is one sentence, exit 2, and one object where --json is asked."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pilotage
from tests.core.recorder.recording import make

SAY = '[[step]]\nsay = "hello"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def call(*args: str) -> Result:
    return CliRunner().invoke(pilotage.cli, args)


@pytest.mark.parametrize(
    "args",
    [
        ("check", "nope"),
        ("rebuild", "nope"),
        ("replay", "nope"),
        ("export", "nope"),
        ("run", "nope"),
        ("run", "--resume", "nope"),
        ("demo", "--headless", "--script", "/nope.toml"),
        ("check",),
        ("sessions", "extra"),
        ("replay", "nope", "--at", "-1"),
    ],
)
def test_an_error_is_one_object_too(args: tuple[str, ...], home: Path) -> None:
    done = call(*args, "--json")
    assert done.exit_code == 2
    answer = json.loads(done.stdout)
    assert list(answer) == ["error"] and answer["error"] in done.stderr
    plain = call(*args)
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert not home.exists()


@pytest.mark.parametrize("command", ["attach", "replay"])
def test_the_cockpit_without_a_terminal_is_a_sentence(tmp_path: Path, command: str) -> None:
    done = call(command, str(make(tmp_path, SAY)))
    assert done.exit_code == 2
    assert done.stderr.startswith("pilotage: The cockpit needs a terminal")
    assert "--json" in done.stderr


@pytest.mark.parametrize(
    ("term", "encoding", "says"),
    [
        ("dumb", "utf-8", "TERM=dumb"),
        ("xterm", "latin-1", "encoding latin-1: set LANG=C.UTF-8"),
        ("xterm", "utf-8", ""),
    ],
)
def test_a_terminal_that_can_not_show_it(
    monkeypatch: pytest.MonkeyPatch, term: str, encoding: str, says: str
) -> None:
    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    for name in ("stdin", "stdout", "stderr", "__stderr__"):
        monkeypatch.setattr(f"sys.{name}", Screen(io.BytesIO(), encoding=encoding))
    monkeypatch.setenv("TERM", term)
    assert (says in pilotage.no_terminal()) if says else pilotage.no_terminal() == ""


def test_a_mistake_in_the_script_makes_no_session(tmp_path: Path, home: Path) -> None:
    make(tmp_path, SAY)
    before = list(home.iterdir())
    (tmp_path / "agent.toml").write_text('[[step]]\nsya = "hello"\n')
    done = call("run", str(tmp_path), "--no-attach")
    assert done.exit_code == 2 and "agent.toml, line 1, step 1" in done.stderr
    assert list(home.iterdir()) == before


def test_a_demo_without_torch_is_refused(tmp_path: Path, home: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = call("demo", "--headless", "--python", str(bare))
    assert done.exit_code == 2
    assert f"{bare} has no torch and no torch_xla and no scikit-learn" in done.stderr
    assert not home.exists()


def test_a_replay_of_what_does_not_hold_says_so(tmp_path: Path) -> None:
    done = call("replay", str(make(tmp_path, SAY)), "--json")
    assert not json.loads(done.stdout)["holds"] and done.exit_code == 1


def test_resume_takes_no_options_that_it_would_ignore(tmp_path: Path) -> None:
    done = call("run", "--resume", str(make(tmp_path, SAY)), "--headless")
    assert done.exit_code == 2 and "configuration it was opened with" in done.stderr


def test_headless_does_not_hold_where_the_reference_failed(tmp_path: Path) -> None:
    make(tmp_path, "[[step]]\nrun = true\n", {"train.py": "import sys\nsys.exit(3)\n"})
    done = call("run", str(tmp_path), "--headless", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 1 and not result["holds"]
    assert result["problems"] == [
        "No reference run ended with exit 0, so there is nothing to measure by."
    ]


def test_headless_says_an_agents_error_once_and_with_one_full_stop(tmp_path: Path) -> None:
    path = make(tmp_path, "[[step]]\nrun = true\n")
    (tmp_path / "agent.toml").write_text("[[step]]\n")
    from sessions.opening import play_headless
    from sessions.report import result_of

    play_headless(path, say=lambda _: None)
    problem = result_of(path, finished=True)["problems"][-1]
    assert "it has none." in problem and ".." not in problem


@pytest.mark.parametrize("answer", ["nothing", "[]", '{"a": 1}'])
def test_doctor_on_what_is_no_python(tmp_path: Path, answer: str) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\necho '{answer}'\n")
    other.chmod(0o755)
    done = call("doctor", "--python", str(other), "--json")
    lines = {line["what"]: line for line in json.loads(done.stdout)["lines"]}
    assert done.exit_code == 1
    assert lines["Python of the runs"]["state"] == "missing"
    assert "is no Python" in lines["Python of the runs"]["text"]


def test_a_session_that_could_not_be_made_leaves_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, SAY)
    monkeypatch.setattr("sessions.schema.migrate", _full)
    done = call("run", str(tmp_path), "--no-attach")
    assert done.exit_code == 2
    assert "can't be opened (database or disk is full). Check the free space" in done.stderr
    assert list(home.iterdir()) == [path.parent]
    monkeypatch.setattr("sessions.opening.new_session_id", lambda _: path.parent.name)
    assert call("run", str(tmp_path), "--no-attach").exit_code == 2
    assert path.is_file()


def _full(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def _really(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "a.log").write_text("RuntimeError: CUDA error\n")
    command = f'"{sys.executable}" "{Path(pilotage.__file__)}" {script}'
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )


@pytest.mark.parametrize(
    "args", ["diagnose a.log", "diagnose a.log --json", "--help", "run x --json"]
)
def test_an_output_that_takes_nothing_is_a_sentence(args: str, tmp_path: Path) -> None:
    done = _really(f"{args} >/dev/full", tmp_path)
    last = "pilotage: The output can't be written: No space left on device."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, last)
    assert "Traceback" not in done.stderr and "fault of Pilotage" not in done.stderr


def test_a_closed_standard_input_is_a_sentence(tmp_path: Path) -> None:
    done = _really("diagnose - --json <&-", tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] in done.stderr
    assert done.stderr.startswith("pilotage: Standard input is closed")
