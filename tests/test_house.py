"""The house rules: what may import what, that the installed command works anywhere, that the lock holds."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("core", "sessions", "tui")
# Handed to the runs as files, never imported from here.
NOT_OURS_TO_IMPORT = ("core/bench/programs/", "core/demo/project/", "core/runs/probe/")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def _sources(layer: str) -> list[Path]:
    """Every Python file of a layer that is imported by its dotted name."""
    found = [
        path
        for path in sorted((ROOT / layer).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(NOT_OURS_TO_IMPORT)
    ]
    assert found, f"no Python files under {layer}/"
    return found


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _loaded_by_importing(modules: list[str], forbidden: tuple[str, ...]) -> dict[str, list[str]]:
    """Import `modules` one after another in a fresh interpreter; which of them pulled in what?"""
    program = f"""
import importlib, json, sys
sys.path.insert(0, {str(ROOT)!r})
seen, report = set(), {{}}
for name in {modules!r}:
    importlib.import_module(name)
    new = {{m for m in {forbidden!r} if m in sys.modules}} - seen
    seen |= new
    if new:
        report[name] = sorted(new)
print(json.dumps(report))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return report


HEAVY = ("torch", "torch_xla", "textual", "sqlite3", "_sqlite3", "sqlite_utils")


def test_no_module_of_core_loads_textual_sqlite_or_torch() -> None:
    modules = [_dotted(p) for p in _sources("core") if p.stem != "__main__"]
    assert _loaded_by_importing(modules, HEAVY) == {}


def test_no_module_of_sessions_loads_textual_or_torch() -> None:
    modules = [_dotted(p) for p in _sources("sessions") if p.stem != "__main__"]
    assert _loaded_by_importing(modules, ("textual", "torch", "torch_xla")) == {}


def test_the_command_line_loads_nothing_heavy_before_a_command_is_chosen() -> None:
    forbidden = (*HEAVY, "anthropic", "claude_agent_sdk", "git", "genai_prices")
    assert _loaded_by_importing(["pilotage"], forbidden) == {}


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import in a file, those inside functions and relative ones too."""
    package = _dotted(path).split(".")
    if path.stem != "__init__":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in _IMPORTERS
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


_IMPORTERS = ("import_module", "__import__")


@pytest.mark.parametrize(
    ("layer", "forbidden"),
    [
        ("core", {"sessions", "tui", "pilotage", "textual", "sqlite3", "sqlite_utils", "torch"}),
        ("sessions", {"tui", "pilotage", "textual", "torch"}),
        ("tui", {"pilotage", "torch"}),
    ],
)
def test_imports_go_one_way(layer: str, forbidden: set[str]) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in _sources(layer)
        for line, name in _imports(path)
        if name.split(".")[0] in forbidden
    ]
    assert wrong == []


@pytest.fixture
def foreign_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A research repository whose packages have our names and must not be imported by us."""
    for name in (*LAYERS, "click", "textual", "json"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(
            f"raise RuntimeError('the {name} package of the project was imported')\n"
        )
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _installed_command() -> str:
    command = Path(sys.executable).with_name("pilotage")
    assert command.is_file(), f"{command} is missing: pip install -c constraints.txt -e '.[test]'"
    return str(command)


def _run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        args,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["check", "--help"]])
def test_help_works_inside_a_project_with_packages_of_our_names(
    foreign_project: Path, command: list[str]
) -> None:
    done = _run(_installed_command(), *command, cwd=foreign_project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: pilotage")


def test_session_list_works_inside_a_project_with_packages_of_our_names(
    foreign_project: Path,
) -> None:
    done = _run(_installed_command(), "sessions", "--json", cwd=foreign_project)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict), "--json prints one object"


def test_the_whole_program_loads_from_our_own_root_there(foreign_project: Path) -> None:
    modules = [_dotted(p) for layer in LAYERS for p in _sources(layer) if p.stem != "__main__"]
    program = "import importlib, pilotage\n" + "".join(
        f"importlib.import_module({name!r})\n" for name in modules
    )
    done = _run(sys.executable, "-c", program, cwd=foreign_project)
    assert done.returncode == 0, done.stderr


def _project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, object] = tomllib.load(file)["project"]
    return project


def _requirements() -> list[Requirement]:
    """Base dependencies and those of every extra, without the extras' references to each other."""
    project = _project()
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    texts = [*project["dependencies"], *(text for extra in extras.values() for text in extra)]  # type: ignore[misc]
    return [r for r in map(Requirement, texts) if canonicalize_name(r.name) != "pilotage"]


def _pins(python: str) -> dict[str, str]:
    """Name to version as the lock has it for one Python on Linux."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        pin = Requirement(text)
        if pin.marker is not None and not pin.marker.evaluate(environment):
            continue
        name = canonicalize_name(pin.name)
        assert name not in pins, f"{name} is locked twice for Python {python}"
        (specifier,) = pin.specifier
        assert specifier.operator == "==", f"{text} is not an exact version"
        pins[name] = specifier.version
    return pins


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_satisfies_every_requirement(python: str) -> None:
    pins = _pins(python)
    for requirement in _requirements():
        if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
            continue
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not locked for Python {python}: make lock"
        assert requirement.specifier.contains(version), f"{requirement}, locked at {version}"


@pytest.mark.parametrize("python", PYTHONS)
def test_torch_and_torch_xla_are_the_same_pair_everywhere(python: str) -> None:
    pins = _pins(python)
    extras = _project()["optional-dependencies"]
    assert isinstance(extras, dict)
    asked = {canonicalize_name(r.name): str(r.specifier) for r in map(Requirement, extras["xla"])}
    assert asked == {"torch": f"=={pins['torch']}", "torch-xla": f"=={pins['torch-xla']}"}
    # They are built for each other by minor version; torch_xla itself declares no dependency.
    assert pins["torch"].split(".")[:2] == pins["torch-xla"].split(".")[:2]


def test_lock_names_no_package_index() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ ", text)


def test_base_install_asks_for_no_torch() -> None:
    project = _project()
    base = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}  # type: ignore[attr-defined]
    assert not base & {"torch", "torch-xla", "torchvision", "numpy", "scikit-learn"}


def test_wheel_holds_every_file_the_program_reads(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    litter = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, source / layer, ignore=litter)
    for name in ("pilotage.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
    done = _run(sys.executable, "-c", build, str(tmp_path), cwd=source)
    assert done.returncode == 0, done.stderr

    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert any(name.startswith("core/demo/project/") for name in wanted)
    assert any(name.startswith("core/runs/probe/") for name in wanted)
    assert any(name.endswith(".tcss") for name in wanted)
    assert sorted((wanted | {"pilotage.py"}) - packed) == []
    assert not [n for n in packed if n.startswith(("tests/", "screenshots/", "build/"))]


def _make(*args: str, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    environment.pop("MAKEFLAGS", None)  # `make test` must not pass its own flags on
    environment.pop("MAKELEVEL", None)
    return subprocess.run(
        ["make", *args], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def bare_checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_make_says_what_to_do_when_there_is_no_python(bare_checkout: Path) -> None:
    done = _make("demo", "PYTHON=python-not-here", cwd=bare_checkout, path=os.environ["PATH"])
    assert done.returncode == 2
    assert "There is no 'python-not-here' here. Install Python 3.10 to 3.13" in done.stderr
    assert not (bare_checkout / ".venv").exists()


@pytest.mark.parametrize("version", ["3.9.18", "3.14.0"])
def test_make_says_what_to_do_when_python_does_not_fit(bare_checkout: Path, version: str) -> None:
    # A program that answers like a Python of that version: the version check exits 1.
    other = bare_checkout / "bin" / "python-other"
    other.parent.mkdir()
    other.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo Python {version}; else exec '
        f"{sys.executable} -c "
        '"import sys; sys.version_info = '
        f"tuple(map(int, '{version}'.split('.'))); "
        'exec(sys.argv[1])" "$2"; fi\n'
    )
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    done = _make("test", f"PYTHON={other}", cwd=bare_checkout, path=os.environ["PATH"])
    assert done.returncode == 2
    assert f"is Python {version}, but torch_xla 2.9.0 exists for Python 3.10 to 3.13" in done.stderr
    assert not (bare_checkout / ".venv").exists()
