"""What a run saves: are the trained weights in it, and all of them?"""

from __future__ import annotations

from dataclasses import dataclass

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.compare import relative, show
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: Two norms in double precision of one and the same tensor differ by the order of their sum alone.
SAME = 1e-9
#: A tensor that training has changed: more than the order of a sum, whatever it was trained for.
MOVED = 1e-6
#: So many loads of one process are recorded (``pilotage_probe.saving.MAX_LOADS``).
MAX_LOADS = 64
#: What wrappers put before the names of parameters.
PREFIXES = ("module.", "_orig_mod.", "model.", "state_dict.", "base_model.")


@dataclass(frozen=True, slots=True)
class Saved:
    """One file of tensors, as the probe saw it written; see ``SavedRecord``."""

    path: str
    tensors: int
    elements: int
    norms: dict[str, float]
    keys: str
    names: frozenset[str]
    n: int


def saves(run: Run) -> list[Saved]:
    """All files of tensors, in the order in which they were written."""
    rows = [r for r in run.signals if r.get("k") == "saved"]
    return [_saved(r) for r in sorted(rows, key=lambda r: view.number(r.get("wall")) or 0.0)]


def _saved(record: JSON) -> Saved:
    norms = view.table(record.get("norms"))
    return Saved(
        path=str(record.get("path") or ""),
        tensors=view.count(record.get("tensors")) or 0,
        elements=view.count(record.get("elements")) or 0,
        norms={str(k): x for k, value in norms.items() if (x := view.number(value)) is not None},
        keys=str(record.get("keys_hash") or ""),
        names=frozenset(_plain(str(name)) for name in norms),
        n=view.count(record.get("n")) or 0,
    )


def _plain(name: str) -> str:
    """A name without what wrappers and nesting put before it."""
    cut = True
    while cut:
        cut = False
        for prefix in PREFIXES:
            if name.startswith(prefix):
                name, cut = name[len(prefix) :], True
    return name


@check("L3.checkpoint")
def checkpoint(s: Subject) -> Verdict:
    """The files that are saved hold as many tensors as the reference's, and trained ones.

    The last file of each name, else the one of the same keys. Of a tensor whose norm the reference
    has changed the norm must not be the initial one, nor 0 where the reference's is not, and where
    the reference's files change from save to save, so must these. Norms are not known of tensors
    that are saved from a lazy device. Weights that the reference takes back after its last step,
    such as the best ones for its last test, are taken back here as well.
    """
    if lost := _not_taken_back(s):
        return lost
    ours, theirs = saves(s.reference), saves(s.run)
    if any(one.path for one in ours):
        # What goes into memory is a message: torch_xla's mesh_reduce pickles a loss this way.
        ours, theirs = ([one for one in every if one.path] for every in (ours, theirs))
    if not ours:
        raise NotRun(f"The probe saw no tensors saved in the reference run #{s.reference.number}.")
    if not s.run.ok_exit:
        raise NotRun(f"Run #{s.run.number} did not end with exit 0, so its files say nothing.")
    if not theirs:
        return _failed("saves no tensors at all", ours[-1], None)
    wrong = [found for mine in _last(ours) if (found := _judge(s, mine, ours, theirs))]
    if wrong:
        return wrong[0]
    last = theirs[-1]
    return judged(
        True,
        f"{len(theirs)} file(s), the last of {last.tensors} tensors",
        expected=_told(ours[-1]),
        actual=_told(last),
        evidence={"norms known": sum(len(x.norms) for x in theirs)},
    )


def _not_taken_back(s: Subject) -> Verdict | None:
    """The failure of a run that tests other weights than those the reference loads to test them."""
    if not s.run.ok_exit:
        return None
    mine, other = taken_back(s.reference), taken_back(s.run)
    if not mine or other is None:
        return None
    if other:
        return _other_steps(s)
    what = f"weights are loaded into {mine[0]} after the last step"
    return judged(
        False,
        "no weights are loaded after the last step, as the reference does before it tests them",
        expected=what,
        actual="no weights are loaded after the last step",
        reason="What is tested is what the training ended with, not what was saved.",
    )


def _other_steps(s: Subject) -> Verdict | None:
    """The failure of a run that saves what it will test after other steps than the reference.

    In the parity runs, whose evaluations are of the same weights: "the best so far" is the same
    there. What is saved after the last of their steps may be cut off.
    """
    try:
        runs = (s.parity_reference, s.parity)
    except NotRun:
        return None
    steps = [
        sorted({x.n for x in saves(run) if x.path and 0 < x.n < s.criteria.parity_steps})
        for run in runs
    ]
    if steps[0] == steps[1] or not steps[0]:
        return None
    mine, other = (", ".join(map(str, found[:10])) or "none" for found in steps)
    return judged(
        False,
        f"weights are saved after other parity steps than in the reference: {other} instead of "
        f"{mine}",
        expected=f"after steps {mine}",
        actual=f"after steps {other}",
        tolerance="equal",
        reason="Saved weights are loaded again after the last step, so these would be others.",
    )


def taken_back(run: Run) -> list[str] | None:
    """Classes of the modules whose weights a process loads after its last optimizer step.

    None where that is not known: the probe writes down so many loads of a process and no more
    (``pilotage_probe.saving.MAX_LOADS``).
    """
    done: dict[object, int] = {}
    for record in run.signals:
        if record.get("k") == "finish" and record.get("rank") in (None, 0):
            done[record.get("pid")] = view.count(record.get("steps")) or 0
    loads = [r for r in run.signals if r.get("k") == "loaded" and r.get("pid") in done]
    late = [
        str(r.get("cls") or "a module")
        for r in loads
        if r.get("what") == "module"
        and view.count(r.get("keys"))
        and 0 < done[r.get("pid")] == view.count(r.get("n"))
    ]
    full = any(sum(r.get("pid") == pid for r in loads) >= MAX_LOADS for pid in done)
    return None if not done or (full and not late) else late


def _last(found: list[Saved]) -> list[Saved]:
    by_path = {one.path or one.keys: one for one in found}
    return list(by_path.values())


def _partner(mine: Saved, theirs: list[Saved]) -> Saved | None:
    for same in (
        lambda one: one.path == mine.path and one.path,
        lambda one: one.keys == mine.keys,
        lambda one: len(one.names & mine.names) * 2 > len(mine.names),
    ):
        found = [one for one in theirs if same(one)]
        if found:
            return found[-1]
    return None


def _judge(s: Subject, mine: Saved, ours: list[Saved], theirs: list[Saved]) -> Verdict | None:
    """What is wrong with the file that corresponds to one of the reference's."""
    other = _partner(mine, theirs)
    if other is None:
        if len(_last(theirs)) < len(_last(ours)):
            return _failed(
                f"no file like {mine.path or 'one of the reference'} is saved", mine, None
            )
        return None
    if other.tensors < mine.tensors or other.elements < mine.elements:
        return _failed(
            f"{other.path or 'a file'} holds {other.tensors} tensors of {other.elements} elements "
            f"instead of {mine.tensors} of {mine.elements}",
            mine,
            other,
        )
    if mine.n and not other.n:
        return _failed(f"{other.path or 'a file'} is saved before the first step", mine, other)
    zero = [k for k, x in other.norms.items() if x == 0 and mine.norms.get(k, 0.0) > 0]
    if zero:
        return _failed(
            f"{len(zero)} tensor(s) in {other.path or 'a file'} are all zero, first {zero[0]}",
            mine,
            other,
        )
    still = _untrained(s, mine, other)
    if still:
        return _failed(
            f"{len(still)} tensor(s) in {other.path or 'a file'} are as they were before the "
            f"training, first {still[0]} with norm {show(other.norms[still[0]])}",
            mine,
            other,
        )
    if _changes(_series(mine, ours)) and _changes(_series(other, theirs)) is False:
        return _failed(f"{other.path or 'a file'} never changes from save to save", mine, other)
    return None


def _series(one: Saved, every: list[Saved]) -> list[Saved]:
    return [x for x in every if x.keys == one.keys]


def _changes(series: list[Saved]) -> bool | None:
    """Whether any norm differs between saves at different steps; None where that is not known."""
    first, last = series[0], series[-1]
    common = set(first.norms) & set(last.norms)
    if first.n == last.n or not common:
        return None
    return any(relative(first.norms[k], last.norms[k]) > SAME for k in common)


def _untrained(s: Subject, mine: Saved, other: Saved) -> list[str]:
    """Keys of tensors that the reference has changed by the time of its save, and this run not."""
    try:
        before, start = (view.norms(model) for model in s.models())
    except NotRun:
        return []
    moved = {
        name
        for name, key in _by_name(mine, before)
        if relative(before[name], mine.norms[key]) > MOVED
    }
    return [
        key
        for name, key in _by_name(other, start)
        if name in moved and relative(start[name], other.norms[key]) <= SAME
    ]


def _by_name(saved: Saved, initial: dict[str, float]) -> list[tuple[str, str]]:
    """(parameter name, key under which it is saved), wherever in the file that is."""
    plain = {_plain(name): name for name in initial}
    found = []
    for key in saved.norms:
        parts = _plain(key).split(".")
        tails = (".".join(parts[i:]) for i in range(len(parts)))
        name = next((plain[tail] for tail in tails if tail in plain), None)
        if name is not None:
            found.append((name, key))
    return found


def _failed(summary: str, mine: Saved, other: Saved | None) -> Verdict:
    return judged(
        False,
        summary,
        expected=_told(mine),
        actual=_told(other) if other else "none",
        reason="What is saved is not what was trained, or not all of it.",
        evidence={
            "reference norms": dict(list(mine.norms.items())[:20]),
            "norms": dict(list(other.norms.items())[:20]) if other else {},
        },
    )


def _told(saved: Saved) -> str:
    name = saved.path or "a file"
    return f"{name}: {saved.tensors} tensors, {saved.elements} elements, after step {saved.n}"
