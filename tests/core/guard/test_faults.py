"""The guard over the fault projects: faults are tagged, faithful migrations are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.guard.change import guard_change
from core.guard.tag import Tag

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAULTS = Path(__file__).resolve().parents[2] / "faults"
PROJECTS = sorted(p.parent for p in FAULTS.glob("*/project.toml"))

UNSEEN = (
    "recompiles",
    "host reads",  # nothing of the training changes
    "optimizer before move",
    "ties lost",  # XLA needs more than the original did, and it is not there
    "perturbation seed",
    "gradients summed",
)
"""Faults that are no change of what the original says, and that only a run can show."""


def texts(root: Path) -> dict[str, str]:
    return {
        p.relative_to(root).as_posix(): p.read_text()
        for p in root.rglob("*")
        if p.suffix in (".py", ".sh", ".yaml", ".toml", ".json")
    }


def tags(before: dict[str, str], after: dict[str, str]) -> list[Tag]:
    return [
        tag
        for path in sorted(before.keys() | after.keys())
        for tag in guard_change(path, before.get(path), after.get(path))
    ]


def patched(root: Path, patch: Path, to: Path) -> Path:
    shutil.copytree(root, to, ignore=shutil.ignore_patterns("__pycache__"))
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(to.parent)}
    command = ["git", "apply", "--whitespace=nowarn", str(patch)]
    subprocess.run(command, cwd=to, check=True, env=env)
    return to


@pytest.mark.parametrize("project", PROJECTS, ids=lambda p: p.name)
def test_faults_are_tagged_and_faithful_migrations_are_not(project: Path, tmp_path: Path) -> None:
    declared: dict[str, Any] = tomllib.loads((project / "project.toml").read_text())
    original = texts(project / "project")
    bases: dict[str, Path] = {}
    for item in declared["faithful"]:
        base = patched(project / "project", project / item["patch"], tmp_path / item["name"])
        bases[item["name"]] = base
        found = tags(original, texts(base))
        # A declared change of the precision is one, and is told.
        sure = [t.sentence for t in found if t.sure and t.kind != "dtype"]
        assert sure == [], item["name"]
    missed = []
    for item in declared.get("fault", []):
        base = bases[item.get("base", declared["faithful"][0]["name"])]
        place = patched(base, project / item["patch"], tmp_path / f"fault {item['name']}")
        known = {(t.kind, t.title, t.before, t.after) for t in tags(original, texts(base))}
        found = tags(original, texts(place))
        new = [t for t in found if (t.kind, t.title, t.before, t.after) not in known]
        if not new and item["kind"] not in UNSEEN:
            missed.append(f"{item['name']}: {item['about']}")
    assert missed == []


def test_there_are_projects() -> None:
    assert PROJECTS, FAULTS
