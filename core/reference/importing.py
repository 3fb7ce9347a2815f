"""Putting the runs of a bundle into a session, as its reference: all of them or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from core import events as ev
from core.body import Body
from core.config import SessionConfig
from core.events import NewEvent
from core.levels import Criteria
from core.recorder.journal import Journal
from core.reference.facts import share_of
from core.reference.manifest import BundleError, Manifest, RunFacts
from core.reference.marks import BY_BUNDLE
from core.reference.opening import Bundle
from core.state import SessionState
from core.text import clean

SURE_SHARE = 0.4
"""Share of a bundle's lines of Python in a project from which on it is that project. Measured on
the projects of tests/faults: migrated copies have 74 % or more, other projects 18 % at most."""

NAMED_SHARE = 0.25
"""The same where the title is the same too."""

_TREE = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import put on record: run ids, and sentences the operator should read."""

    bundle: str
    sha256: str
    runs: list[str]
    notes: list[str] = field(default_factory=list)


def refuse_unusable(config: SessionConfig) -> None:
    """Raise :class:`BundleError` where the bundle that a configuration names can't be its
    reference, before there is a session."""
    with Bundle(Path(config.reference.bundle)) as bundle:
        why = another_project(bundle.manifest, config, Path(config.project.path))
    if why:
        raise BundleError(
            f"{bundle.name} is of another project: {why}. Leave it out of [reference], and put "
            "it into the session with `pilotage reference import SESSION FILE --force REASON`."
        )


async def import_bundle(
    journal: Journal, session_dir: Path, path: Path, force: str = ""
) -> Imported:
    """Append a bundle's runs to a session, and put its tensors into the session's directory.

    The caller holds the session's recorder lock. ``force`` is the reason for taking a bundle that
    was recorded of another project, and goes on record. Raises :class:`BundleError`, and whatever
    the log raises; nothing is changed then.
    """
    state = journal.state
    opened = state.opened
    assert opened is not None
    config = SessionConfig.from_json(opened.config)
    new, made, done = await asyncio.to_thread(
        _take, state, config, session_dir, Path(path), force.strip()
    )
    try:
        await journal.emit_events(*new)
    except BaseException:
        _remove(made)
        raise
    return done


def _take(
    state: SessionState, config: SessionConfig, session_dir: Path, path: Path, force: str
) -> tuple[list[NewEvent], list[Path], Imported]:
    """The events of an import, the directories made for it, and what is to be said."""
    with Bundle(path) as bundle:
        manifest = bundle.manifest
        _refuse_again(state, bundle)
        why = another_project(manifest, config, session_dir, state)
        if why and not force:
            raise BundleError(
                f"{bundle.name} is of another project: {why}. To use it all the same, give a "
                "reason with --force."
            )
        recorded = [(run, bundle.events(run)) for run in manifest.runs]
        if not any(run.purpose == "reference" and run.exit_code == 0 for run in manifest.runs):
            raise BundleError(f"{bundle.name} has no run of the reference that ended well.")
        first = len(state.runs) + 1
        ids = {run.n: f"r{first + i}" for i, run in enumerate(manifest.runs)}
        notes = [*_notes(manifest, config)]
        if why:
            notes.insert(0, f"Imported although {why}. Reason given: {clean(force)}")
        new: list[NewEvent] = []
        for run, events in recorded:
            bodies = [body for _, body, _ in events]
            new += _events(run, bodies, ids, bundle, first, notes if run.n == 1 else [])
        made: list[Path] = []
        try:
            for run in manifest.captured:
                target = session_dir / "runs" / ids[run.n]
                if target.exists():  # of a run that no log knows: a crash in this very place
                    shutil.rmtree(target)
                made.append(target)
                bundle.extract(run, target / "capture")
        except BaseException:
            _remove(made)
            raise
        return new, made, Imported(str(path), bundle.sha256, [*ids.values()], notes)


def _refuse_again(state: SessionState, bundle: Bundle) -> None:
    for run in state.runs.values():
        if run.started.bundle == bundle.sha256:
            raise BundleError(
                f"{bundle.name} has been imported into this session already, as run "
                f"#{run.number} and those after it."
            )


def another_project(
    manifest: Manifest, config: SessionConfig, session_dir: Path, state: SessionState | None = None
) -> str:
    """Why a bundle can't be of a session's project, as a clause; ``""`` where it can.

    It is the same project where the tree is the same. A migrated copy has another one: then enough
    of the bundle's lines of Python have to be in it, and where both were given a title, it has to
    be the same. Where the bundle has too few lines to tell, title and command have to be the same.
    """
    theirs = manifest.project
    if state is not None and state.snapshots and state.snapshots[0].tree == theirs.tree:
        return ""
    share = share_of(theirs.lines, _code(config, session_dir))
    named = theirs.title == config.title
    ours_named = config.title != Path(config.project.path).name
    if not named and theirs.named and ours_named:
        pass  # two names that people gave
    elif share is None:
        ours = " ".join(config.reference.command.split())
        if named and ours in ("", " ".join(manifest.command.split())):
            return ""
    elif share >= SURE_SHARE or (named and share >= NAMED_SHARE):
        return ""
    name = f"{clean(theirs.title)[:60]!r}, run by {clean(manifest.command)[:80]!r}"
    here = f"this one is {clean(config.title)[:60]!r}"
    found = "" if share is None else f", and {share:.0%} of its lines of Python are in it"
    return f"it was recorded of {name}, tree {theirs.tree[:7]}; {here}{found}"


def _code(config: SessionConfig, session_dir: Path) -> Path:
    """Where the session's project is, as it was before the migration where there is that."""
    untouched = session_dir / "reference"
    try:
        prefix = (session_dir / "prefix").read_text()
    except OSError:
        prefix = ""
    return untouched / prefix if untouched.is_dir() else Path(config.project.path)


def _notes(manifest: Manifest, config: SessionConfig) -> Iterator[str]:
    steps = Criteria.from_json(config.criteria).parity_steps
    if manifest.k != steps:
        yield (
            f"The bundle's parity runs have {manifest.k} steps and this session's criteria ask for "
            f"{steps}: only the first {min(manifest.k, steps)} are compared."
        )
    ours = config.metric.name or config.metric.key
    if ours and manifest.metric_name and ours != manifest.metric_name:
        yield (
            f"The bundle's metric is {clean(manifest.metric_name)[:60]}, and this session's is "
            f"{clean(ours)[:60]}: what is compared is what each found under its own name."
        )
    if manifest.time:
        yield f"The bundle is no measure of time or dollars: {manifest.time}."
    for run in manifest.runs:
        if run.why:
            yield f"Run {run.n} of the bundle has no tensors: {run.why}"


def _events(
    run: RunFacts,
    bodies: list[Body],
    ids: dict[int, str],
    bundle: Bundle,
    first: int,
    notes: list[str],
) -> Iterator[NewEvent]:
    run_id = ids[run.n]
    given = bundle.manifest.project.tree
    tree = given if _TREE.fullmatch(given) else ""
    for body in bodies:
        if isinstance(body, ev.RunStarted):
            body = replace(
                body,
                number=first + run.n - 1,
                by=BY_BUNDLE,
                bundle=bundle.sha256,
                against=ids.get(run.against, ""),
                pid=0,
            )
        yield NewEvent(body, "importer", run_id, tree)
        if isinstance(body, ev.RunStarted):
            said = [{"k": "notice", "text": text} for text in [_origin(bundle), *notes]]
            yield NewEvent(ev.RunSignalled(said), "importer", run_id, tree)


def _origin(bundle: Bundle) -> str:
    """Where a run comes from, for the log: the bundle itself may be gone when it is read."""
    manifest = bundle.manifest
    machine = manifest.hardware
    on = ", ".join([machine.cpu, *machine.gpu])
    torch = manifest.packages.get("torch")
    return clean(
        f"Recorded {manifest.made} on {on}{f' with torch {torch}' if torch else ''}, and imported "
        f"from the bundle {bundle.path.name} (sha256 {bundle.sha256[:12]})."
    )


def _remove(made: list[Path]) -> None:
    for place in made:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # runs/ itself, where there are no others
            place.parent.rmdir()
