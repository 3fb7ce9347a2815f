"""Verifying without a terminal: real runs of small programs, as CI and the fault bench do it."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.config import load
from core.errors import PilotageError
from core.recorder.verifying import replace_files
from core.verification import describe
from pilotage import cli

#: Trains three layers on the CPU; the norm of its gradients is far above the limit.
TRAIN = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
x = torch.randn(64, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16, shuffle=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(a), b).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.12)
        optimizer.step()
print("accuracy: 0.9")
"""

CONFIG = """
[reference]
command = "python train.py"
[target]
kind = "xla-cpu"
command = "python train.py"
[metric]
name = "accuracy"
pattern = 'accuracy: ([0-9.]+)'
points = 100
[criteria]
parity_steps = 4
"""


def project(at: Path, code: str) -> Path:
    at.mkdir()
    (at / "train.py").write_text(code)
    (at / "pilotage.toml").write_text(CONFIG)
    return at


def verify(*args: object) -> Result:
    words = [*map(str, args), "--python", sys.executable] if len(args) > 2 else map(str, args)
    return CliRunner().invoke(cli, ["verify", *words])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path / "home"


def test_clipping_that_is_gone_is_refuted_with_its_coefficient_although_all_looks_well(
    tmp_path: Path, home: Path
) -> None:
    original = project(tmp_path / "original", TRAIN)
    lost = TRAIN.replace("        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.12)\n", "")
    migrated = project(tmp_path / "migrated", lost)
    done = verify(migrated, "--baseline", original, "--level", 1, "--keep", "--json")
    assert done.exit_code == 1, done.output
    result = json.loads(done.stdout)
    assert (result["measured"], result["level_asked"], result["holds"]) == (0, 1, False)
    assert [r["exit_code"] for r in result["runs"]] == [0, 0, 0, 0]
    assert result["metric"]["reference"] == result["metric"]["target"] == [0.9]
    checks = {c["id"]: c for c in result["checks"]}
    clip = checks["L1.clip"]
    assert (clip["state"], clip["category"]) == ("fail", "C3")
    assert "clip coefficient 1 instead of 0.0" in clip["summary"]
    assert "clip_grad_norm_(0.12)" in clip["expected"]
    # What it is not is as plain: the same weights, batches, modules and gradients.
    for id in ("start", "batches", "precision", "forward", "first_loss", "gradients"):
        assert checks[f"L1.{id}"]["state"] == "pass", (id, checks[f"L1.{id}"])
    assert "run #4: parity of the target ended" in done.stderr
    # The session is there, and verifying it again makes no run anew.
    again = verify(result["session"], "--json")
    assert (again.exit_code, "run #5" in again.stderr) == (1, False)
    assert json.loads(again.stdout)["first"] == result["first"] == "L1.events"
    text = verify(result["session"])
    assert "first difference: L1.events: clipping C(0.12) happens 0 time(s)" in text.stdout
    assert sorted(p.name for p in home.iterdir()) == [result["session"]]


def test_an_attempt_that_fails_still_gives_the_whole_object(tmp_path: Path, home: Path) -> None:
    original = project(tmp_path / "original", "print('accuracy: 0.9')\n")
    migrated = project(tmp_path / "migrated", "raise SystemExit(3)\n")
    done = verify(migrated, "--baseline", original, "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    checks = {c["id"]: c for c in result["checks"]}
    assert (result["measured"], result["first"]) == (-1, "L0.exit")
    assert checks["L0.exit"]["actual"] == "exit 3"
    assert "no parity run was made" in checks["L1.forward"]["reason"]
    text = describe(result)
    assert max(map(len, text.splitlines())) <= 80
    # One reason of many checks is said once, and every check is still named.
    assert text.count("what does not run is not") == 2  # in L1 and in L2
    for check in result["checks"]:
        assert check["title"].split()[0] in text
    assert not home.exists()


def test_what_git_ignores_is_there_for_the_run(tmp_path: Path) -> None:
    code = "print(open('data/x').read())\n"
    original = project(tmp_path / "original", code)
    migrated = project(tmp_path / "migrated", code)
    for at in (original, migrated):
        (at / "data").mkdir()
        (at / "data" / "x").write_text("accuracy: 0.9")
    (migrated / ".gitignore").write_text("data/\n")
    done = verify(migrated, "--baseline", original, "--level", 0, "--json")
    checks = {c["id"]: c["state"] for c in json.loads(done.stdout)["checks"]}
    assert checks["L0.exit"] == checks["L0.result"] == "pass"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "nothing to measure against"),
        (("--reference", "no.pilotage"), "There is no file no.pilotage"),
        (("--reference", "x" * 300), "There is no file xxx"),
        (("--reference", "/dev/zero"), "There is no file /dev/zero"),
        (("--reference", "~nobody-of-this-name/x"), "There is no file ~nobody"),
        (("--reference", "."), "There is no file ."),
        (("--baseline", "nowhere"), "There is no directory"),
        (("--baseline", "x" * 300), "There is no directory"),
        (("--baseline", ".", "--level", "4"), "can't be reached on xla-cpu"),
        (("--baseline", ".", "--level", "9"), "There is no level 9"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    args: tuple[str, ...], words: str, tmp_path: Path, home: Path
) -> None:
    at = project(tmp_path / "migrated", "print(1)\n")
    done = CliRunner().invoke(cli, ["verify", str(at), *args, "--keep", "--json"])
    assert done.exit_code == 2
    assert words in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr
    assert not home.exists() or not any(home.iterdir())


def test_pipes_and_sockets_of_a_project_are_left_where_they_are(tmp_path: Path) -> None:
    at = project(tmp_path / "m", "print(1)\n")
    os.mkfifo(at / "pipe")
    (at / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(at / "a socket"))
        (tmp_path / "root").mkdir()
        replace_files(tmp_path / "root", at)
    names = sorted(p.name for p in (tmp_path / "root").iterdir())
    assert names == ["loop", "pilotage.toml", "train.py"]


def test_a_file_that_can_not_be_copied_is_named_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, **more: object) -> None:
        raise PermissionError(13, "Permission denied", source)

    at = project(tmp_path / "m", "print(1)\n")
    (tmp_path / "root").mkdir()
    monkeypatch.setattr("shutil.copy2", refuse)
    with pytest.raises(PilotageError) as caught:
        replace_files(tmp_path / "root", at)
    text = str(caught.value)
    assert text.startswith(f"The files of {at} could not be copied: {at}/")
    assert text.endswith(": Permission denied, and 1 more.") and "[" not in text


@pytest.mark.parametrize("python", ["/nope/python", "no-such-python", "/etc/passwd", "/", ""])
def test_a_python_that_is_none(tmp_path: Path, python: str) -> None:
    at = project(tmp_path / "m", "print(1)\n")
    done = CliRunner().invoke(cli, ["verify", str(at), "--baseline", ".", "--python", python])
    assert done.exit_code == 2
    assert done.stderr == (
        f"pilotage: --python: there is no program {python!r} that can be started.\n"
    )


def test_a_directory_whose_name_is_not_utf8(tmp_path: Path) -> None:
    at = project(Path(os.fsdecode(os.fsencode(tmp_path) + b"/pr\xff")), "print(1)\n")
    with pytest.raises(PilotageError, match="has a name that is not UTF-8"):
        load(at, agent=False)


@pytest.mark.parametrize("what", ["x" * 300, "./" + "x" * 300, "~nobody-of-this-name"])
def test_what_is_neither_project_nor_session(what: str) -> None:
    done = CliRunner().invoke(cli, ["verify", what, "--json"])
    assert done.exit_code == 2
    assert "There is no session" in json.loads(done.stdout)["error"]


def test_a_session_has_its_own_reference(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["verify", "nothing-here", "--keep"])
    assert done.exit_code == 2
    assert "taken for a session" in done.stderr
