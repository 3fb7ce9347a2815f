"""The real thing: a small project is run, its bundle looked at, compared, and used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import pilotage
from core.config import load
from core.levels import PASS
from core.process import program
from core.reference.opening import Bundle
from core.reference.recording import with_options
from core.state import fold
from core.verify.evaluate import measure
from sessions.home import home
from sessions.log import EventLog
from sessions.opening import create, play_headless

TRAIN = """\
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
seed = parser.parse_args().seed
torch.manual_seed(seed)
x = torch.randn(96, 6)
y = (x.sum(1) > 0).long()
data = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(2):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
model.eval()
print("acc", (model(x).argmax(1) == y).float().mean().item())
"""

CONFIG = """
[project]
title = "tiny"
path = "proj"
[reference]
command = "python train.py --seed {seed}"
seeds = [5]
env = { OMP_NUM_THREADS = "1", API_TOKEN = "hunter2hunter2" }
[target]
command = "python train.py"
[metric]
name = "acc"
pattern = 'acc ([0-9.]+)'
points = 100
[criteria]
parity_steps = 4
goal_points = 60.0
[agent]
script = "agent.toml"
speed = 0
verify_on_claim = false
"""


def project(place: Path, train: str = TRAIN, config: str = CONFIG) -> Path:
    (place / "proj").mkdir(parents=True)
    (place / "proj" / "train.py").write_text(train)
    (place / "agent.toml").write_text('[[step]]\nsay = "hello"\n')
    (place / "pilotage.toml").write_text(config)
    return place


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(pilotage.cli, [str(a) for a in args])


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Result]:
    """A project, its bundle, and what the command said."""
    place = project(tmp_path_factory.mktemp("recorded"))
    bundle = place / "tiny.pilotage"
    done = call(
        *("reference", "record", place, "-o", bundle, "--seed", "1", "--seed", "2"),
        *("--repeats", "1", "--json"),
    )
    assert done.exit_code == 0, done.output
    return place, bundle, done


def test_two_seeds_a_parity_run_and_its_repeat(recorded: tuple[Path, Path, Result]) -> None:
    _, bundle, done = recorded
    data = json.loads(done.stdout)
    assert [(r["purpose"], r["of"], r["seed"]) for r in data["runs"]] == [
        ("reference", "", 1),
        ("reference", "", 2),
        ("parity", "reference", 1),
        ("parity", "reference repeat", 1),
    ]
    assert data["seeds"] == [1, 2] and data["seeding"] == "command"
    assert all(0 < r["metric"] <= 1 for r in data["runs"][:2])
    assert [r["steps"] for r in data["runs"]] == [12, 12, 4, 4]
    assert (data["K"], data["budget_mb"], data["bytes"]) == (4, 256, bundle.stat().st_size)
    assert data["packages"]["torch"] and data["python"] and data["hardware"]["cores"] >= 1
    assert "hunter2" not in done.output and data["env"]["OMP_NUM_THREADS"] == "1"
    assert "run 1: in full, seed 1: python train.py --seed 1" in done.stderr
    assert not home().exists()  # the session it was recorded in is gone


def test_the_tensors_are_there_and_the_repeat_equals_them(
    recorded: tuple[Path, Path, Result],
) -> None:
    data = json.loads(recorded[2].stdout)
    (capture,) = data["capture"]
    assert (capture["run"], capture["rank"], capture["steps"]) == (3, 0, 4)
    assert capture["weights"] == 4 and capture["modules"] >= 4 and capture["gradients"] == 4
    assert data["variation"]["repeats"] == 1
    assert data["variation"]["forward"] == pytest.approx(0, abs=1e-6)
    assert data["variation"]["gradients"] == pytest.approx(0, abs=1e-6)


def test_show_and_compare(recorded: tuple[Path, Path, Result]) -> None:
    _, bundle, done = recorded
    shown = call("reference", "show", bundle, "--json")
    assert shown.exit_code == 0 and json.loads(shown.stdout) == json.loads(done.stdout)
    text = call("reference", "show", bundle).stdout
    assert "project    tiny" in text and "the budget was 256 MiB" in " ".join(text.split())
    same = call("reference", "compare", bundle, bundle)
    assert same.exit_code == 0 and "they agree" in same.stdout


def test_a_new_session_takes_the_bundle_instead_of_running(
    recorded: tuple[Path, Path, Result], tmp_path: Path
) -> None:
    """And the checks see it: the code is the reference's own, so it is the same training."""
    _, bundle, _ = recorded
    config = CONFIG.replace("command =", f"bundle = '{bundle}'\nignore =", 1)
    place = project(tmp_path, config="\n".join(x for x in config.split("\n") if "ignore" not in x))
    (place / "agent.toml").write_text("[[step]]\nrun = true\n")
    path = create(load(place), "0.0.test")
    play_headless(path, lambda line: None)
    with EventLog.read(path) as log:
        state = fold(log.events())
    made = [(r.started.purpose, r.started.by) for r in state.runs.values()]
    assert made[:4] == [("reference", "bundle")] * 2 + [("parity", "bundle")] * 2
    assert all(purpose == "attempt" for purpose, _ in made[4:]) and len(made) == 5
    results, _ = measure(state, state.tree)
    states = {r.check: r.state for r in results}
    assert states["L3.metric"] == PASS
    assert (path.parent / "runs" / "r3" / "capture" / "rank0" / "index.json").is_file()
    assert state.runs["r4"].started.against == "r3"


def test_import_by_the_command(recorded: tuple[Path, Path, Result], tmp_path: Path) -> None:
    _, bundle, _ = recorded
    path = create(load(project(tmp_path)), "0.0.test")
    done = call("reference", "import", path, bundle, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"] == ["r1", "r2", "r3", "r4"]
    again = call("reference", "import", path, bundle)
    assert (again.exit_code, again.stdout) == (2, "") and "already" in again.stderr
    checked = call("check", path)
    assert checked.exit_code == 0, checked.output


def test_a_bundle_of_another_project_by_the_command(
    recorded: tuple[Path, Path, Result], tmp_path: Path
) -> None:
    _, bundle, _ = recorded
    other = "\n".join(f"do_something_{i}()" for i in range(50))
    path = create(load(project(tmp_path, other)), "0.0.test")
    before = path.read_bytes()
    done = call("reference", "import", path, bundle, "--json")
    assert done.exit_code == 2 and "of another project" in json.loads(done.stdout)["error"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["show", "import", "compare"])
def test_a_damaged_bundle_is_one_sentence(
    recorded: tuple[Path, Path, Result], tmp_path: Path, command: str
) -> None:
    bad = tmp_path / "bad.pilotage"
    content = recorded[1].read_bytes()
    bad.write_bytes(content[: len(content) // 2])
    first: list[str | Path] = [bad]
    if command == "import":
        first = [create(load(project(tmp_path)), "0.0.test"), bad]
    elif command == "compare":
        first = [recorded[1], bad]
    done = call("reference", command, *first)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "cut off or damaged" in done.stderr


# --- without torch ------------------------------------------------------------------------------

FAILS = 'print("so far so good")\nraise SystemExit("no GPU here, says the project")\n'
PLAIN = "import os\nprint('seed', os.environ.get('PILOTAGE_SEED'))\nprint('acc 0.5')\n"


def test_a_project_that_fails_is_told_with_its_last_lines(tmp_path: Path) -> None:
    place = project(tmp_path / "p", FAILS)
    done = call("reference", "record", place, "-o", tmp_path / "x.pilotage")
    assert done.exit_code == 1 and done.stdout == ""
    assert "ended with exit 1, so there is nothing to compare with" in done.stderr
    assert "  no GPU here, says the project" in done.stderr
    assert not (tmp_path / "x.pilotage").exists() and not list(tmp_path.glob(".*part"))


def test_a_parity_run_that_fails_costs_only_the_tensors(tmp_path: Path) -> None:
    """The full run may have taken hours."""
    code = PLAIN + "if os.environ['PILOTAGE_PROBE_MODE'] == 'parity':\n    raise SystemExit(7)\n"
    place = project(tmp_path / "p", code, CONFIG.replace(" --seed {seed}", ""))
    file = tmp_path / "x.pilotage"
    done = call("reference", "record", place, "-o", file, "--json")
    assert done.exit_code == 1 and file.is_file()
    assert "ended with exit 7, so the bundle has no tensors of it" in done.stderr
    data = json.loads(done.stdout)
    assert data["metric"] == 0.5 and "it ended with exit 7" in data["parity"]
    assert call("reference", "show", file).exit_code == 0


def test_a_program_without_an_optimizer_has_no_parity_and_says_so(tmp_path: Path) -> None:
    config = CONFIG.replace(" --seed {seed}", "")
    place = project(tmp_path / "p", PLAIN, config)
    file = tmp_path / "x.pilotage"
    done = call("reference", "record", place, "-o", file, "--seed", "3", "--seed", "4", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["seeding"] == "environment" and data["seeds"] == [3, 4]
    assert "the probe saw no optimizer step" in data["parity"]
    assert "All runs had the same metric, as if it does not" in done.stderr
    with Bundle(file) as bundle:
        lines = [
            line
            for run in bundle.manifest.runs
            for _, body, _ in bundle.events(run)
            for line in getattr(body, "lines", [])
            if line.startswith("seed") and isinstance(line, str)
        ]
    assert lines == ["seed 3", "seed 4", "seed 3"]


def _git(place: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", *identity, *args], cwd=place, check=True, capture_output=True, text=True
    ).stdout


def test_a_repository_is_left_as_it_was_and_what_is_not_in_it_is_said(tmp_path: Path) -> None:
    place = project(tmp_path / "p", PLAIN, CONFIG.replace(" --seed {seed}", ""))
    _git(place / "proj", "init", "-q", "-b", "main")
    _git(place / "proj", "add", ".")
    _git(place / "proj", "commit", "-q", "-m", "first")
    (place / "proj" / "train.py").write_text(PLAIN + "raise SystemExit(1)\n")
    refs = _git(place / "proj", "for-each-ref")
    file = tmp_path / "x.pilotage"
    done = call("reference", "record", place, "-o", file, "--json")
    assert done.exit_code == 0, done.output  # HEAD was run, and it works
    about = json.loads(done.stdout)["project"]
    assert about["dirty"] is True and "train.py" in about["note"]
    assert about["commit"] == _git(place / "proj", "rev-parse", "HEAD").strip()
    assert about["tree"] == _git(place / "proj", "rev-parse", "HEAD^{tree}").strip()
    assert _git(place / "proj", "for-each-ref") == refs
    assert len(_git(place / "proj", "worktree", "list").splitlines()) == 1


def _without_textual(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a Python that has only what the README names for a recording machine."""
    code = (
        "import runpy, sys;"
        "sys.modules.update(dict.fromkeys(('textual', 'rich', 'anthropic', 'genai_prices',"
        " 'claude_agent_sdk', 'torch', 'numpy')));"
        f"sys.argv = ['pilotage', *{[str(a) for a in args]!r}];"
        f"runpy.run_path({str(program())!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_a_machine_without_the_cockpit_can_record_and_show(tmp_path: Path) -> None:
    place = project(tmp_path / "p", PLAIN, CONFIG.replace(" --seed {seed}", ""))
    file = tmp_path / "x.pilotage"
    done = _without_textual("reference", "record", place, "-o", file)
    assert done.returncode == 0, done.stderr
    assert file.is_file() and "project    tiny" in done.stdout
    attached = _without_textual("attach", create(load(place), "0.0.test"))
    assert (attached.returncode, attached.stdout) == (2, "")
    assert attached.stderr.startswith("pilotage: The cockpit needs textual")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("record", "nope", "-o", "x"), "no configuration"),
        (("record", "."), "Missing option '-o'"),
        (("record", ".", "-o", "x", "--seed", "-1"), "Invalid value for '--seed'"),
        (("record", ".", "-o", "x", "--seed", "1", "--seed", "1"), "one seed twice"),
        (("record", ".", "-o", "no/such/x"), "There is no directory"),
        (("record", ".", "-o", "x", "--budget", "0"), "Invalid value for '--budget'"),
        (("record", ".", "-o", "."), "is a directory"),
        (("record", ".", "-o", "/dev/null"), "is a pipe or a device"),
        (("record", ".", "-o", "x" * 300), "can't be written there (File name too long)"),
        (("show", "nope"), "There is no bundle"),
        (("show", "."), "can't be read: Is a directory"),
        (("show", "x" * 300), "can't be read: File name too long"),
        (("compare", "~nobody-of-this-name/x", "nope"), "There is no bundle"),
        (("import", "./" + "x" * 300, "nope"), "There is no session"),
        (("import", "nope", "nope"), "There is no session"),
    ],
)
def test_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], says: str
) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = call("reference", *args)
    assert done.exit_code == 2 and says in done.stderr and done.stdout == ""
    assert not (tmp_path / "x").exists()


def test_options_take_the_place_of_the_file(tmp_path: Path) -> None:
    config = load(project(tmp_path))
    changed = with_options(config, seeds=[7, 8], cuda_on_cpu=True, repeats=3, budget_mb=17)
    reference: Any = changed.reference
    assert (reference.seeds, reference.cuda_on_cpu, reference.repeats) == ([7, 8], True, 3)
    assert changed.parity.budget_mb == 17 and "PILOTAGE_SEED" not in reference.env
    assert with_options(config).reference == config.reference
