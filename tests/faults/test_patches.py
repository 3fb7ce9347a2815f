"""Every patch of the fault projects applies, and what comes out of it is Python that compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/project.toml"))
CATEGORIES = {"C1", "C2", "C3", "C4", "C5", "C6"}


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _variants() -> list[Any]:
    """(directory, patches in order) of each faithful migration and each fault."""
    found = []
    for file in FILES:
        data = _read(file)
        faithful = {entry["name"]: entry["patch"] for entry in data["faithful"]}
        first = data["faithful"][0]["name"]
        chains = {name: [patch] for name, patch in faithful.items()}
        for entry in data["fault"]:
            chains[entry["name"]] = [faithful[entry.get("base", first)], entry["patch"]]
        found += [
            pytest.param(file.parent, patches, id=f"{file.parent.name}-{name}")
            for name, patches in chains.items()
        ]
    return found


def _applied(project: Path, patches: list[str], to: Path) -> dict[str, bytes]:
    shutil.copytree(project / "project", to, ignore=shutil.ignore_patterns("__pycache__"))
    for patch in patches:
        done = subprocess.run(
            # Outside any repository git applies the patch to the files as they lie there.
            ["git", "apply", "-p1", str(project / patch)],
            cwd=to,
            env={"GIT_CEILING_DIRECTORIES": str(to.parent), "PATH": "/usr/bin:/bin:/usr/local/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{project.name}/{patch}: {done.stderr}"
    return {
        path.relative_to(to).as_posix(): path.read_bytes()
        for path in sorted(to.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(("project", "patches"), _variants())
def test_patches_apply_and_the_result_compiles(
    project: Path, patches: list[str], tmp_path: Path
) -> None:
    before = _applied(project, patches[:-1], tmp_path / "before")
    after = _applied(project, patches, tmp_path / "after")
    assert after != before, "the patch changes nothing"
    sources = {name: code for name, code in after.items() if name.endswith(".py")}
    assert sources
    for name, code in sources.items():
        compile(code, name, "exec")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_project_has_the_form(file: Path) -> None:
    """At least two faithful migrations, one of them in bf16, and five faults; names are unique."""
    data, here = _read(file), file.parent
    assert data["title"] and data["reference"]["command"] and data["target"]["command"]
    assert re.compile(data["metric"]["pattern"]).groups == 1
    faithful, faults = data["faithful"], data["fault"]
    assert len(faithful) >= 2 and len(faults) >= 5
    assert any(entry.get("precision") == "bf16" for entry in faithful)
    names = [entry["name"] for entry in faithful + faults]
    assert len(set(names)) == len(names)
    for fault in faults:
        assert fault["kind"] and fault["about"]
        assert fault["level"] in range(5)
        assert fault.get("category", "C1") in CATEGORIES
        assert fault.get("base", names[0]) in names[: len(faithful)]
    named = {entry["patch"] for entry in faithful + faults}
    there = {path.relative_to(here).as_posix() for path in here.glob("*/*.patch")}
    assert named == there, "patches that project.toml does not name, or the other way round"


def test_there_are_projects() -> None:
    assert FILES
