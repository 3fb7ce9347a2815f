"""A configuration is checked key by key, and a mistake is named with file and line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, SessionConfig, load
from core.config.source import Source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def test_names_of_parameters_are_mapped_and_nobody_needs_a_script_to_verify(file: Path) -> None:
    text = GOOD.replace('script = "agent.toml"', "")
    file.write_text(f'{text}\n[parity]\nrename = {{ "head.weight" = "out.weight" }}\n')
    with pytest.raises(ConfigError, match="needs a script"):
        load(file)
    config = load(file, agent=False, bundle=str(file))
    assert config.parity.rename == {"head.weight": "out.weight"}
    assert (config.agent.driver, config.reference.bundle) == ("manual", str(file))
    assert SessionConfig.from_json(config.to_json()) == config


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
    config = load(file, python="sh", speed=4, script="other.toml")
    assert config.project.python == "sh"
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


MANUAL = """
reference.command = 'x'
target.command = 'x'
agent.driver = 'manual'
"""


@pytest.mark.parametrize(
    ("section", "line", "says"),
    [
        (r'project.path = "a\u0000b"', 1, "has a NUL character"),
        (r'project.path = "\u001b[31mx"', 1, "/x is not there"),
        (f'project.path = "{"x" * 5000}"', 1, " ... "),
        ('project.path = "~nobody-of-this-name/x"', 1, "no such home directory"),
        ('project.python = "~nobody-of-this-name/x"', 1, "no such home directory"),
        (r'agent.script = "a\u0000b"', 1, "has a NUL character"),
        (f'agent.script = "{"x" * 5000}"', 1, "is not there"),
        ("agent.model = " + "9" * 5000, 0, "thousands of digits"),
        ("reference.command = '" + "x " * 70_000 + "'", 1, "longer than 131,072 bytes"),
        ("criteria.goal_points = inf", 1, "goal_points in [criteria] can't be inf"),
        ("criteria.parity_steps = " + "9" * 20, 1, "it is no limit"),
        ("prices.override.tpu-v5e = inf", 1, "usd_per_hour"),
    ],
)
def test_a_value_no_file_or_number_can_have_is_a_sentence(
    file: Path, section: str, line: int, says: str
) -> None:
    manual = MANUAL.replace("reference.command = 'x'", "") if "reference" in section else MANUAL
    file.write_text(f"{section}\n{manual}")
    with pytest.raises(ConfigError) as caught:
        load(file)
    said = str(caught.value)
    assert said.startswith(f"{file}, line {line}: " if line else f"{file}: ") and says in said
    assert said.isprintable() and len(said) < 800


def test_a_file_that_is_no_configuration_is_a_sentence(file: Path) -> None:
    file.write_bytes(b"[project]\n# caf\xe9\n")
    with pytest.raises(ConfigError, match="line 2: this is not UTF-8"):
        load(file)
    for other, says in (
        ("/dev/zero", "too large"),
        ("~nobody-of-this-name/x", "home directory"),
        ("x" * 5000, "can't be read"),
    ):
        with pytest.raises(ConfigError, match=says):
            load(other)


NEW = """
[budgets]
agent_usd = 20
attempts = 30
hours = 1.5
"""


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[budgets]\nattempts = 1.5", 22, "a whole number, not 1.5"),
        ("[budgets]\nhours = -1", 22, "can't be below 0"),
        ("[budgets]\nagent_usd = true", 22, "a number, not true"),
        ("[budgets]\nattempt = 3", 22, "Did you mean attempts?"),
        ("[budget]\nattempts = 3", 21, "Did you mean [budgets]?"),
        ("[criteria]\ngoal_point = 3", 22, "Did you mean goal_points?"),
        ("[criteria]\nparity_steps = 2.5", 22, "a whole number"),
        ("[parity]\nbudget_mb = 0", 22, "1 or more"),
        ('[parity]\nrename = { a = "" }', 22, "a name in the reference and one in"),
        ('[parity.rename]\na = "b"\n" " = "c"', 23, "a name in the reference and one in"),
        ('[parity]\nrename = { a = "b\\u0000" }', 22, "a name in the reference and one in"),
        (f"[parity]\nrename = {{ a = '{'x' * 140_000}' }}", 22, "longer than 131,072 bytes"),
        ('[guard]\nprotect = ["../eval.py"]', 22, "no glob of files relative to the project"),
        ("[criteria]\nparity_steps = 0", 22, "1 or more: with none nothing is compared"),
        ("[parity]\nrenames = { a = 'b' }", 22, "Did you mean rename?"),
        ("[parity.rename]\na = 1", 21, "a table of texts"),
        ("[agent.policy]\nshel = 'ask'", 22, "no tool 'shel'"),
        ("[agent.policy]\n\nshell = 'maybe'", 23, "has to be allow, ask or deny, not 'maybe'"),
        ("[target.env]\nA = 'x'\nB-1 = 'x'", 23, "no variable name"),
        ("[reference.env]\n'A' = '''\nx\\ny'''\n\"B C\" = 'x'", 24, "no variable name"),
        ("target.chip = 4", 21, "has no key 'chip'. Did you mean chips?"),
        ("reference.seeds = [1, -2]", 21, "the seed -2"),
        ("reference.seeds = 'x'", 21, "a list of whole numbers"),
        ("reference.seeds = [3, 3]", 21, "one seed twice"),
        ("reference.repeats = 21", 21, "has to be 0 to 20"),
        ("reference.cuda_on_cpu = 1", 21, "true or false"),
        ("reference.bundle = 'none.pilotage'", 21, "is not there"),
        ("target.precision = 'fp16'", 21, "no precision 'fp16': use fp32 or bf16"),
        ("metric.reader = 'hf dicts'", 21, "no reader 'hf dicts'"),
        ("metric.file = '/tmp/x.json'", 21, "inside the project"),
    ],
)
def test_mistakes_in_later_keys_have_their_line(
    file: Path, text: str, line: int, says: str
) -> None:
    base = GOOD
    if text.startswith(("[target", "[reference")):
        base = base.replace("env = { PJRT_DEVICE", "# { PJRT_DEVICE")
    first = text.split("\n")[0]
    if first.startswith("["):
        base = f"{base}\n{text}"
    else:  # into the section that it names
        section, _, first = text.partition(".")
        base = base.replace(f"[{section}]\n", f"[{section}]\n{first}\n")
    line += base.split("\n").index(first) + 1 - 21
    file.write_text(base)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert says in str(caught.value)
    assert f", line {line}:" in str(caught.value)


def test_budgets_policies_and_models_are_read(file: Path) -> None:
    text = GOOD + 'model = "m"\npolicy = { shell = "deny", edit = "ask" }\n' + NEW
    file.write_text(text)
    config = load(file)
    assert (config.budgets.agent_usd, config.budgets.attempts, config.budgets.hours) == (
        20,
        30,
        1.5,
    )
    assert config.agent.policy == {"shell": "deny", "edit": "ask"} and config.agent.model == "m"
    assert SessionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("driver", ["anthropic", "claude-code"])
def test_drivers_of_later_releases_are_refused_as_such(file: Path, driver: str) -> None:
    file.write_text(GOOD.replace('script = "agent.toml"', f'driver = "{driver}"'))
    with pytest.raises(ConfigError, match="is not in this release. Use manual"):
        load(file)


def test_without_a_script_the_scripted_driver_names_the_manual_one(file: Path) -> None:
    file.write_text(GOOD.replace('script = "agent.toml"', ""))
    with pytest.raises(ConfigError, match='Without one set driver = "manual"'):
        load(file)
    file.write_text(GOOD.replace('script = "agent.toml"', 'driver = "manual"'))
    assert load(file).agent.driver == "manual"


def test_a_metric_without_points_is_compared_by_its_share(file: Path) -> None:
    file.write_text(GOOD.replace("points = 100", "points = 0"))
    assert load(file).metric.points == 0


def test_syntax_errors_begin_with_file_and_line(file: Path) -> None:
    file.write_text('[project]\npath = "proj\n')
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}, line 2: this is not TOML: ")
    file.write_text("[project]\npath =")
    with pytest.raises(ConfigError, match="this is not TOML: .*end of the file"):
        load(file)
    file.write_text("x = " + "[" * 20_000)
    with pytest.raises(ConfigError, match="this is not TOML"):
        load(file)


# --- the lines of keys ---------------------------------------------------------------------------

_KEY = st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=8)
_VALUE = st.one_of(
    st.text(max_size=12),
    st.integers(-9, 9),
    st.booleans(),
    st.lists(st.text(max_size=4), max_size=3),
)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(value: object, long: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if long and "\\" not in value and value.isprintable() and "'" not in value:
            return f"'''\n# [no.header]\nnot = 1\n{value}'''"
        return _quoted(value)
    if isinstance(value, list):
        gap = "\n  # x = ]\n  " if long else " "
        return "[" + "".join(f"{gap}{_quoted(v)}," for v in value) + gap + "]"
    return str(value)


@given(
    st.dictionaries(
        _KEY, st.dictionaries(_KEY, st.tuples(_VALUE, st.booleans()), max_size=4), max_size=4
    ),
    st.sampled_from(["table", "inline", "dotted"]),
)
def test_the_line_of_every_key_is_known(
    data: dict[str, dict[str, tuple[object, bool]]], style: str
) -> None:
    """However a table is written, and whatever its values look like, each key has its line."""
    text, expected = "# a = 1\n", {}
    for table, pairs in data.items():
        if style == "table":
            text += f"\n[ {_quoted(table)} ] # [x]\n"
        elif style == "inline":
            text += f"{_quoted(table)} = {{ "
        for number, (key, (value, long)) in enumerate(pairs.items()):
            expected[table, key] = text.count("\n") + 1
            if style == "table":
                text += f"  {_quoted(key)} = {_written(value, long)} # y = 2\n"
            elif style == "inline":
                text += (", " if number else "") + f"{_quoted(key)} = {_written(value, False)}"
            else:
                text += f"{_quoted(table)} . {_quoted(key)} = {_written(value, long)}\n"
        text += " }\n" if style == "inline" else ""
    assert set(tomllib.loads(text)) == set(data) - (
        {t for t in data if not data[t]} if style == "dotted" else set()
    )
    lines = Source("x", text).lines
    assert {path: lines.get(path) for path in expected} == expected


@given(st.text(max_size=200))
def test_any_text_has_lines_or_none(text: str) -> None:
    dict(Source("x", text).lines)


def test_a_bundle_stands_for_the_reference_command(file: Path) -> None:
    bundle = file.parent / "x.pilotage"
    bundle.write_bytes(b"")
    command = next(line for line in GOOD.split("\n") if "command" in line)
    text = GOOD.replace(command, "bundle = 'x.pilotage'", 1)
    file.write_text(text)
    config = load(file)
    assert config.reference.command == ""
    assert config.reference.bundle == str(bundle)


def test_a_command_with_a_seed_needs_seeds(file: Path) -> None:
    command = next(line for line in GOOD.split("\n") if "command" in line)
    file.write_text(GOOD.replace(command, "command = 'python train.py --seed {seed}'", 1))
    with pytest.raises(ConfigError, match="contains {seed}, and there are no seeds"):
        load(file)
