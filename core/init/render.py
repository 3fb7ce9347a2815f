"""Writing what was found as a commented ``pilotage.toml``."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

from core.config import LATER_DRIVERS
from core.init.build import Command, reference_command, target_command
from core.init.entries import text_of
from core.init.facts import Interpreter, MetricPlace, Project
from core.init.script import Scripts
from core.levels import Criteria
from core.money import price_table
from core.text import clean

WIDTH = 92
OTHERS = 5
"""Alternatives that are listed in comments."""


class Draft:
    """The configuration in the making: the text, and what has to be edited before a run."""

    def __init__(self, project: Project, scripts: Scripts, at: Path) -> None:
        """``at`` is the file to be written; paths in it are relative to its directory."""
        self.project = project
        self.base = at.absolute().parent
        entry = project.entry
        self.reference = reference_command(entry, scripts, project.gpu) if entry else Command()
        self.target = (
            target_command(entry, self.reference, scripts) if entry else Command(env=_pjrt())
        )
        self.edits: list[str] = []
        if entry is None:
            self.edits.append(
                "[reference] and [target] command: no way to start a training was found."
            )
            self.reference.text, self.target.text = "python train.py", "python train.py"
        elif entry.script and "it trains +40" not in entry.why:
            self.reference.edits.append(f"no training was seen in what {entry.script} starts")
        self.edits += [f"[reference] and [target] command: {e}." for e in self.reference.edits]
        if not project.metrics:
            self.edits.append("[metric]: no line that prints a metric was found, and L3 needs one.")
        elif project.metrics[0].edit:
            self.edits.append(f"[metric]: {project.metrics[0].edit}.")
        self._lines: list[str] = []
        self.text = self._render()

    # --- pieces ----------------------------------------------------------------------------

    def _comment(self, text: str, indent: str = "") -> None:
        self._lines += textwrap.wrap(
            clean(text),
            WIDTH,
            initial_indent="# " + indent,
            subsequent_indent="# " + indent,
            break_on_hyphens=False,
            break_long_words=False,
        )

    def _set(self, key: str, value: object) -> None:
        self._lines.append(f"{key} = {toml(value)}")

    def _section(self, name: str) -> None:
        self._lines += ["", f"[{name}]"]

    def _render(self) -> str:
        self._lines = []
        self._comment(
            "Written by `pilotage init`. Each value says where it was found, or that it is a guess. "
            "Paths are relative to this file. `pilotage run` starts a session with it."
        )
        for edit in self.edits:
            self._comment(f"EDIT {edit}")
        self._project()
        self._reference()
        self._target()
        self._metric()
        self._criteria()
        self._budgets()
        self._prices()
        self._agent()
        self._recorder()
        return "\n".join(self._lines) + "\n"

    def _project(self) -> None:
        project = self.project
        self._section("project")
        self._set("path", self._path(project.root))
        self._python(project.python, project.pythons)
        if project.copy is not None and project.copy.value:
            self._comment(
                f"The session works on a private copy of the directory: {project.copy.source}."
            )
            self._set("copy", True)
        for note in project.notes:
            self._comment(note)
        if project.link:
            self._comment("Linked into the session's checkouts, which hold what git holds:")
            for fact in project.link:
                self._comment(f"{fact.value}: {fact.source}", "  ")
            self._set("link", [f.value for f in project.link])
        if project.outputs:
            some = "; ".join(f"{f.value} from {f.source}" for f in project.outputs)
            self._comment(f"What runs write, and no part of the migration: {some}")
            self._set("outputs", [f.value for f in project.outputs])

    def _path(self, path: Path) -> str:
        relative = os.path.relpath(path, self.base)
        return relative if relative.count("..") < 3 else str(path)

    def _python(self, python: Interpreter | None, others: list[Interpreter]) -> None:
        if python is None or python.problem:
            self._comment("No Python could be asked; without this key it is the one of Pilotage.")
            return
        self._comment(f"{python.source}: {describe_python(python)}")
        if python.torch is None:
            self._comment("It has no torch, so no run will work: name the Python of the project.")
        elif python.torch_xla is None:
            self._comment("It has no torch_xla, which the runs of the target need.")
        for other in others[1 : OTHERS + 1]:
            what = other.problem or describe_python(other)
            self._comment(f"also {other.path} ({other.source}): {what}", "  ")
        path = Path(python.path)
        inside = path.is_relative_to(self.project.root)
        text = self._path(path) if inside else str(path)
        self._set("python", text if "/" in text else f"./{text}")

    def _reference(self) -> None:
        project, entry = self.project, self.project.entry
        self._section("reference")
        self._comment("The untouched project, run once at the start of each session.")
        if entry is not None:
            self._comment(f"from {entry.source}")
        for edit in self.reference.edits:
            self._comment(f"EDIT: {edit}.")
        for note in self.reference.notes:
            self._comment(note)
        if project.settings:
            by_file: dict[str, list[str]] = {}
            for fact in project.settings:
                by_file.setdefault(fact.source.split(":")[0], []).append(fact.value)
            for file, values in by_file.items():
                self._comment(f"{file} says: {', '.join(values)}")
        self._set("command", self.reference.text)
        if len(project.entries) > 1:
            self._comment("other commands that were found:")
            for other in project.entries[1 : OTHERS + 1]:
                text = text_of(
                    (*other.launcher, *other.words[1:]) if other.launcher else other.words
                )
                self._comment(f"{text}   ({other.source})", "  ")
        if self.reference.env:
            self._set("env", self.reference.env)
        gpu = "there is a GPU" if project.gpu else "there is no GPU"
        self._comment(f"What it runs on, for the record: a guess, {gpu} on this machine.")
        self._set("device", "cuda" if project.gpu else "cpu")
        if project.seeds is not None:
            self._comment(
                f"from {project.seeds.source}. For the record: the command runs as it is written, "
                "and once for each of them where it contains {seed}."
            )
            self._set("seeds", project.seeds.value)
        self._comment("More, where it is wanted:")
        self._lines += [
            "# repeats = 2           # more parity runs, which show the reference's own variation",
            "# cuda_on_cpu = true    # no GPU here: CUDA calls go to the CPU; no measure of time",
            '# bundle = "x.pilotage" # made by `pilotage reference record`, instead of running it',
        ]

    def _target(self) -> None:
        self._section("target")
        self._comment(
            "xla-cpu is XLA on this machine's CPU: it shows L0 to L3 without a TPU. On a TPU host: "
            'tpu-<type>-<chips>, such as "tpu-v5e-4", and PJRT_DEVICE = "TPU".'
        )
        self._set("kind", "xla-cpu")
        self._set("chips", 1)
        for note in self.target.notes:
            self._comment(note)
        self._set("command", self.target.text)
        self._set("env", self.target.env)
        self._comment("What it may compute in, where that is not what the reference computes in:")
        self._lines.append('# precision = "bf16"')

    def _metric(self) -> None:
        self._section("metric")
        places = self.project.metrics
        if not places:
            self._comment(
                "EDIT: where the project's metric is found. pattern: a regular expression with a "
                "group around the number, for a line of output; or file and key, for a JSON or CSV "
                "file that the run writes; or name alone, for a common form of output."
            )
            self._lines += ['# name = "accuracy"', "# pattern = 'accuracy: ([0-9.]+)'"]
            self._lines += ["# higher_is_better = true", "# points = 100"]
            return
        self._place(places[0])
        if len(places) > 1:
            self._comment("other places:")
            for other in places[1 : OTHERS + 1]:
                self._comment(f"{other.name} ({other.source}): {how(other)}", "  ")

    def _place(self, place: MetricPlace) -> None:
        self._comment(f"from {place.source}")
        if place.pattern:
            self._comment(f"tried on: {place.line}")
        elif place.line:
            self._comment(f"as in: {place.line}")
        for note in place.notes:
            self._comment(note)
        if place.edit:
            self._comment(f"EDIT: {place.edit}.")
        self._set("name", place.name)
        for key in ("pattern", "file", "reader", "key"):
            if value := getattr(place, key):
                self._set(key, value)
        self._comment("by its name")
        self._set("higher_is_better", place.higher_is_better)
        if place.points == 100:
            self._comment("A guess: the value is a share of 1, and 0.01 of it is one point.")
        elif place.points:
            self._comment("It is printed in percent, so 1 of it is one point.")
        else:
            self._comment(
                "No points: the tolerance is goal_rtol, a share of the reference's value."
            )
        self._set("points", place.points)

    def _criteria(self) -> None:
        default = Criteria()
        self._section("criteria")
        self._comment("All have defaults; the ones most often changed:")
        for key, what in (
            ("parity_steps", "optimizer steps that L1 compares"),
            ("goal_points", "the metric may be worse by so many points"),
            ("goal_rtol", "or, without points, by this share of the reference's value"),
        ):
            self._lines.append(f"# {key} = {toml(getattr(default, key))}  # {what}")

    def _budgets(self) -> None:
        self._section("budgets")
        self._comment(
            "The agent is ended at the first that is used up; 0 is no limit. What you start yourself "
            "is never refused."
        )
        self._lines += [
            "# attempts = 30    # runs of the migrated code",
            "# hours = 8        # of its work: waiting on you and pauses are not counted",
            "# agent_usd = 20   # as far as the prices of its requests are known",
        ]

    def _prices(self) -> None:
        self._section("prices")
        self._comment("Unknown until you name them; then one run and all attempts are priced.")
        keys = sorted(price_table())
        tpus = [k for k in keys if k.startswith("tpu")]
        self._comment(f"reference: {', '.join(k for k in keys if k not in tpus)}")
        self._comment(f"target: {', '.join(tpus)}")
        self._lines += ['# reference = ""', '# target = ""']

    def _agent(self) -> None:
        self._section("agent")
        self._comment(
            "manual: you make the edits in the session's worktree, Pilotage runs, measures and "
            'records. scripted: plays a script = "FILE". '
            f"{' and '.join(LATER_DRIVERS)} are not in this release, so model means nothing yet."
        )
        self._set("driver", "manual")
        self._comment(
            "Per tool: allow, ask or deny. A tool that is not named is allowed, save shell, which asks."
        )
        self._lines.append('# policy = { shell = "ask" }')

    def _recorder(self) -> None:
        self._section("recorder")
        self._lines += [
            "# run_limit_s = 3600     # a run that takes longer is stopped; 0: no limit",
            '# hang_action = "stop"   # a run that gives no sign of life for hang_s = 900 seconds',
        ]


def _pjrt() -> dict[str, str]:
    return {"PJRT_DEVICE": "CPU"}


def how(place: MetricPlace) -> str:
    """Where a metric is, in words."""
    if place.pattern:
        return f"pattern {place.pattern}"
    if place.file:
        return f"key {place.key} of {place.file}"
    return f"{place.key}, as {place.reader} prints it" if place.reader else place.key


def describe_python(python: Interpreter) -> str:
    """``Python 3.11.7, torch 2.9.1, no torch_xla``."""
    torch = f"torch {python.torch}" if python.torch else "no torch"
    xla = f"torch_xla {python.torch_xla}" if python.torch_xla else "no torch_xla"
    return clean(f"Python {python.python}, {torch}, {xla}")


def toml(value: object) -> str:
    """A value in TOML; a text in literal quotes where it has backslashes and can be."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = value.isprintable() and "'" not in value
        if plain and ("\\" in value or '"' in value):
            return f"'{value}'"
        text = value.encode("utf-8", "replace").decode()
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) and abs(value) < 1e6 else repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(k)} = {toml(v)}" for k, v in value.items())
        return "{ " + pairs + " }"
    return str(value)


def _key(name: str) -> str:
    return (
        name
        if name.replace("_", "a").replace("-", "a").isalnum() and name.isascii()
        else json.dumps(name)
    )
