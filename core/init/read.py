"""Reading a project for ``pilotage init``: no code of it is imported or executed.

A Python that is found in it is started, to be asked for its versions (:mod:`core.init.python`).
"""

from __future__ import annotations

import fnmatch
from pathlib import Path

from core.errors import PilotageError
from core.git import GitError, locate, run_git
from core.init.entries import find_entries
from core.init.facts import Entry, Fact, Project
from core.init.metrics import find_metrics
from core.init.python import find_pythons
from core.init.script import Scripts
from core.init.settings import config_files, find_seeds, read_settings
from core.risk.tree import DATA, Listing, list_files
from core.text import clean
from core.workspace import OUTPUTS

_OUTPUT_OPTIONS = ("output", "out", "save", "log", "result", "checkpoint", "ckpt", "exp")


class InitError(PilotageError):
    """A project can't be read, or its configuration can't be written."""


def read_project(path: Path, python: str = "") -> tuple[Project, Listing, Scripts]:
    """All facts about the project in a directory, with the listing for the risk scan.

    ``python`` is the interpreter to use; without it one is looked for. Raises
    :class:`InitError` where the directory is none.
    """
    root = path.expanduser().absolute()
    if not root.is_dir():
        what = "is a file" if root.exists() else "is not there"
        raise InitError(f"{root} {what}: give the directory of a project.")
    root = root.resolve()
    listing = list_files(root)
    scripts = Scripts(listing)
    project = Project(root, clean(root.name))
    project.pythons = find_pythons(root, python)
    if python and project.pythons[0].problem:
        raise InitError(f"The Python {python} {project.pythons[0].problem}.")
    project.python = project.pythons[0] if project.pythons else None
    project.gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    project.entries = find_entries(listing, scripts, project.gpu)
    entry = project.entry
    if entry is not None:
        project.metrics = find_metrics(entry, scripts)
        project.settings = read_settings(config_files(entry, listing, scripts), listing)
        project.seeds = find_seeds(entry, scripts, project.settings)
        script = scripts.get(entry.script) if entry.script else None
        near = scripts.closure(entry.script) if entry.script else []
        project.framework = next((s.framework for s in near if s.framework), "")
        project.options = {"parser": script.parser} if script is not None else {}
        project.outputs = _outputs(entry, scripts)
    _git_facts(project, listing, scripts)
    notebooks = listing.named(".ipynb")
    if notebooks:
        some = ", ".join(clean(n) for n in notebooks[:3]) + (" ..." if len(notebooks) > 3 else "")
        project.notes.append(
            f"{len(notebooks)} notebook{'s' * (len(notebooks) > 1)} ({some}): a run is a command, so "
            "turn what trains into a script (jupyter nbconvert --to script)."
        )
    return project, listing, scripts


def _outputs(entry: Entry, scripts: Scripts) -> list[Fact[str]]:
    """Directories that runs write to and that are not known as outputs anyway."""
    found: dict[str, Fact[str]] = {}
    words = list(entry.words)
    for index, word in enumerate(words):
        name, sign, value = word.partition("=")
        value = value if sign else (words[index + 1] if index + 1 < len(words) else "")
        if name.startswith("--") and _is_output(name.lstrip("-")):
            _add_output(found, value, entry.source)
    script = scripts.get(entry.script) if entry.script else None
    for option in script.options.values() if script is not None else ():
        if isinstance(option.default, str) and _is_output(option.name.lstrip("-")):
            assert script is not None
            _add_output(found, option.default, f"{script.path}:{option.line}")
    return list(found.values())


def _is_output(name: str) -> bool:
    parts = name.lower().replace("-", "_").split("_")
    return any(p.startswith(_OUTPUT_OPTIONS) for p in parts) and (
        bool({"dir", "path", "folder"} & set(parts)) or len(parts) == 1
    )


def _add_output(found: dict[str, Fact[str]], value: str, source: str) -> None:
    top = value.removeprefix("./").split("/")[0]
    if not top or top in (".", "..", "~") or value.startswith(("/", "-", "$", "~")):
        return
    pattern = f"{top}/"
    if "." in top or any(fnmatch.fnmatch(pattern, known) for known in OUTPUTS):
        return
    if all(sign.isalnum() or sign in "._-" for sign in top):
        found.setdefault(pattern, Fact(pattern, source))


def _git_facts(project: Project, listing: Listing, scripts: Scripts) -> None:
    """What the worktree of the session would lack: uncommitted files, and data git ignores."""
    try:
        found = locate(project.root)
    except GitError as err:
        project.copy = Fact(True, clean(str(err)))
        return
    if found is None:
        project.copy = Fact(True, "no git repository with a commit")
        return
    try:
        status = run_git(
            project.root,
            {},
            [
                "status",
                "--porcelain",
                "-z",
                "--untracked-files=all",
                "--ignore-submodules",
                "--",
                ".",
            ],
        )
        ignored = run_git(
            project.root,
            {},
            [
                "ls-files",
                "-z",
                "--others",
                "--ignored",
                "--exclude-standard",
                "--directory",
                "--",
                ".",
            ],
        )
    except GitError:
        return
    prefix = f"{found[1]}/" if found[1] else ""
    changed = [
        e[3:].removeprefix(prefix)
        for e in status.decode("utf-8", "replace").split("\0")
        if len(e) > 3
    ]
    changed = [c for c in changed if c != "pilotage.toml"]
    needed = {project.entry.script, project.entry.source.split(":")[0]} if project.entry else set()
    if project.entry is not None and project.entry.script:
        needed |= {s.path for s in scripts.closure(project.entry.script)}
    lacking = sorted(needed & set(changed))
    if lacking:
        some = ", ".join(clean(c) for c in lacking[:3]) + (" ..." if len(lacking) > 3 else "")
        project.copy = Fact(True, f"git has not the present {some}")
    elif changed:
        many = f"{len(changed)} file{'s' * (len(changed) > 1)}"
        project.notes.append(
            f"Uncommitted changes of {many} are not in the baseline, which is git's HEAD."
        )
    if project.copy is None:
        _links(project, ignored.decode("utf-8", "replace").split("\0"), scripts)


def _links(project: Project, ignored: list[str], scripts: Scripts) -> None:
    """Ignored files and directories that look like the data a run needs."""
    texts: set[str] = set()
    if project.entry is not None:
        texts |= {w.split("=", 1)[-1].strip("/").removeprefix("./") for w in project.entry.words}
        for script in scripts.closure(project.entry.script)[:40] if project.entry.script else ():
            texts |= {
                t.strip("/").removeprefix("./") for _, t in script.module.strings if len(t) < 200
            }
            for option in script.options.values():
                if isinstance(option.default, str):
                    texts.add(option.default.strip("/").removeprefix("./"))
    for name in ignored[:2_000]:
        path = name.rstrip("/")
        if not path or ".." in Path(path).parts or not (project.root / path).exists():
            continue
        if any(fnmatch.fnmatch(name, known) for known in OUTPUTS) or path.startswith("."):
            continue
        top = path.split("/")[-1].lower()
        used = path in texts or any(t.startswith(path + "/") for t in texts)
        if used or (name.endswith("/") and top in DATA):
            project.link.append(Fact(path, "git ignores it, and the code names it" if used else
                                     "git ignores it, and by its name it is data", not used))  # fmt: skip
        if len(project.link) >= 20:
            break
