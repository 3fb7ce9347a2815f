"""A configuration is checked key by key, and a mistake is named with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.config import ConfigError, SessionConfig, load

GOOD = """\
[project]
title = "thing"
path = "proj"

[reference]
command = "python train.py"

[target]
kind = "xla-cpu"
command = "python train.py --device xla"
env = { PJRT_DEVICE = "CPU" }

[metric]
name = "accuracy"
pattern = 'acc ([0-9.]+)'
points = 100

[agent]
script = "agent.toml"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "proj").mkdir()
    (tmp_path / "agent.toml").write_text('[[step]]\nsay = "hello"\n')
    path = tmp_path / "pilotage.toml"
    path.write_text(GOOD)
    return path


def test_paths_are_absolute_and_defaults_filled_in(file: Path) -> None:
    config = load(file)
    assert config.project.path == str(file.parent / "proj")
    assert config.agent.script == str(file.parent / "agent.toml")
    assert config.target.env == {"PJRT_DEVICE": "CPU"}
    assert config.metric.points == 100.0 and config.metric.higher_is_better
    assert config.agent.verify_on_claim and config.recorder.grace_s == 600.0
    assert config.title == "thing"


def test_a_directory_means_the_file_in_it(file: Path) -> None:
    assert load(file.parent) == load(file)


def test_json_round_trip(file: Path) -> None:
    config = load(file)
    again = SessionConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config


def test_options_replace_what_the_file_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    (file.parent / "other.toml").write_text("")
    config = load(file, python="python3.11", speed=4, script="other.toml")
    assert config.project.python == "python3.11"
    assert config.agent.speed == 4.0
    assert config.agent.script == str(file.parent / "other.toml")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('kind = "xla-cpu"', 'kid = "xla-cpu"', 9, "no key 'kid'"),
        ('kind = "xla-cpu"', "chips = 0", 9, "1 or more"),
        ('kind = "xla-cpu"', "chips = true", 9, "a whole number"),
        ('kind = "xla-cpu"', 'chips = "4"', 9, "a whole number"),
        ('kind = "xla-cpu"', "chips = 99999999999999999999", 9, "a whole number"),
        ('kind = "xla-cpu"', 'kind = "xla_cpu"', 9, "no target kind 'xla_cpu'"),
        ("points = 100", "points = 1" + "0" * 400, 16, "a number"),
        ("points = 100", "points = inf", 16, "a number"),
        ('path = "proj"', 'path = "proj"\nlink = ["../data"]', 4, "inside the project"),
        ('path = "proj"', 'path = "proj"\nlink = ["data"]', 4, "there is no"),
        ('command = "python train.py"', 'command = "python\\u0000 train.py"', 6, "NUL"),
        ('env = { PJRT_DEVICE = "CPU" }', 'env = { A = "\\u0000" }', 11, "NUL"),
        ("[metric]", "[metrics]", 13, "no section [metrics]"),
        ("pattern = 'acc ([0-9.]+)'", "pattern = 'acc [0-9'", 15, "no regular expression"),
        ("pattern = 'acc ([0-9.]+)'", "pattern = 'acc [0-9.]+'", 15, "needs a group"),
        ("points = 100", "points = -1", 16, "above 0"),
        ("points = 100", "reader = 'tea leaves'", 16, "no reader 'tea leaves'"),
        ("points = 100", "file = '../result.json'", 16, "inside the project"),
        ('path = "proj"', 'path = "nowhere"', 3, "is not there"),
        ('script = "agent.toml"', 'driver = "ghost"', 19, "no driver 'ghost'"),
        ('script = "agent.toml"', 'script = "gone.toml"', 19, "is not there"),
        ('script = "agent.toml"', "speed = -1\nscript = 'agent.toml'", 19, "below 0"),
        ('command = "python train.py"', 'device = "cpu"', 5, "needs a command"),
        ('env = { PJRT_DEVICE = "CPU" }', "env = { PJRT_DEVICE = 1 }", 11, "a table of texts"),
        ('env = { PJRT_DEVICE = "CPU" }', 'env = { "A B" = "1" }', 11, "no variable name"),
        ("[agent]", "[prices]\ntarget = 'tpu-v99'\n[agent]", 19, "no price 'tpu-v99'"),
        ("[agent]", "[prices.override]\nmine = 2.5\n[agent]", 19, "needs usd_per_hour"),
        ("[agent]", "[prices.override]\nmine = {usd_per_hour = -1}\n[agent]", 19, "0 or more"),
        ("[agent]", "[criteria]\ngoal_rtoll = 1\n[agent]", 19, "goal_rtoll"),
    ],
)
def test_mistakes_are_sentences_with_a_line(
    file: Path, old: str, new: str, line: int, says: str
) -> None:
    assert GOOD.count(old) == 1
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load(file)
    text = str(caught.value)
    assert says in text
    assert f"{file}, line {line}:" in text


def test_prices_of_ones_own(file: Path) -> None:
    own = """
[prices]
target = "mine"
override = { mine = { usd_per_hour = 2.5, scope = "chip" }, tpu-v5e = 1.0 }
"""
    file.write_text(GOOD + own)
    config = load(file)
    assert config.prices.override["mine"] == {"usd_per_hour": 2.5, "scope": "chip"}
    assert SessionConfig.from_json(config.to_json()) == config


def test_a_mark_at_the_beginning_of_the_file_is_no_mistake(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(file).title == "thing"


@pytest.mark.parametrize("kind", ["xla-cpu", "tpu-v5e-4", "tpu-v5litepod-8", "tpu-v6e"])
def test_target_kinds(file: Path, kind: str) -> None:
    file.write_text(GOOD.replace('kind = "xla-cpu"', f'kind = "{kind}"'))
    assert load(file).target.kind == kind


def test_what_is_no_toml_or_not_there(file: Path, tmp_path: Path) -> None:
    file.write_text("[project\n")
    with pytest.raises(ConfigError, match=r"line 1: this is not TOML: "):
        load(file)
    with pytest.raises(ConfigError, match="There is no configuration"):
        load(tmp_path / "none.toml")


def test_the_demo_configuration_is_good() -> None:
    import core.demo

    config = load(Path(core.demo.__file__).parent)
    assert config.project.copy
    assert Path(config.project.path, "inkformer", "train.py").is_file()
