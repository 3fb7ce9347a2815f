"""Which processes of a run the probe does not follow, and why, in sentences.

The probe is found through ``PYTHONPATH`` and the module ``site``. A Python that was told to ignore
either, or was started without our variables, trains unseen; the run must say so, or missing
records read like a program that did nothing. ``judge`` is the rule, over what ``look`` reads from
``/proc``; ``Survey`` keeps both over the life of one run::

    survey = Survey(probe_dir)           # RunSpec.probe_dir; only for runs with a probe
    survey.heard(records)                # each batch of the run's records
    for text in survey.look(pids): ...   # each second, with the ids of the run's processes
    for text in survey.close(): ...      # once, when the run has ended

A process is named as soon as it has loaded torch, and at the end if nobody else of the run was
followed: helpers that never train (``lsb_release``, ``gcloud``) are no news.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.runs.records import Hello, Malformed, Record, TorchRecord
from core.text import clean

MAX_PROCESSES = 2000  # that are remembered
MAX_SENTENCES = 5  # of one run
MAX_ARGV = 100  # characters of a command that are shown
MAX_READ = 1 << 20  # bytes of one file of /proc

_PYTHON = re.compile(r"(?:python|pypy)(\d+(?:\.\d+)*)?")
_OPTIONS_WITH_VALUE = "WX"
_ELSEWHERE = {
    "docker": "a container",
    "podman": "a container",
    "ssh": "another machine",
    "kubectl": "a cluster",
    "sbatch": "a cluster",
}


@dataclass(frozen=True, slots=True)
class Process:
    """What is known of one process of a run.

    ``executable`` is the path behind it, ``""`` unknown. ``environ``: whether its environment
    could be read; ``out`` whether ``PILOTAGE_PROBE_OUT`` is in it, ``pythonpath`` its
    ``PYTHONPATH`` (None: not set). ``before``: a directory that stands before the probe's in it
    and holds a ``sitecustomize`` of its own. ``torch``: it has loaded PyTorch's libraries.
    """

    pid: int
    ppid: int = 0
    argv: tuple[str, ...] = ()
    executable: str = ""
    environ: bool = True
    out: bool = True
    pythonpath: str | None = None
    before: str = ""
    torch: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """How a Python was started: its one-letter flags, and what comes after them."""

    flags: frozenset[str]
    rest: tuple[str, ...]


# --- the rule ----------------------------------------------------------------------------------


def version(process: Process) -> tuple[int, ...] | None:
    """The version in the name of a Python, ``()`` where it states none; None: it is no Python."""
    name = process.executable or (process.argv[0] if process.argv else "")
    found = _PYTHON.fullmatch(os.path.basename(name))  # noqa: PTH119  no file of ours
    if found is None:
        return None
    return tuple(int(part) for part in (found[1] or "").split(".") if part)


def command(argv: Sequence[str]) -> Command:
    """The flags of a Python command line, as Python itself reads them; ``-Es`` is two of them."""
    flags: set[str] = set()
    rest = list(argv[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        if word.startswith("--"):
            if word == "--check-hash-based-pycs" and rest:
                rest.pop(0)
            continue
        for index, letter in enumerate(word[1:], 1):
            if letter in "cm":  # the rest of the word, or the next one, is the program
                return Command(frozenset(flags), ("-" + letter, word[index + 1 :], *rest))
            if letter in _OPTIONS_WITH_VALUE:
                if index + 1 == len(word) and rest:
                    rest.pop(0)
                break
            flags.add(letter)
    return Command(frozenset(flags), tuple(rest))


def why(process: Process, probe_code: str) -> str | None:
    """Why the probe can't be in a Python process, and what to do; None: nothing is in its way.

    ``probe_code``: the directory that ``probe_setup`` puts at the front of ``PYTHONPATH``.
    """
    flags = command(process.argv).flags
    named = version(process) or ()
    if named[:1] in ((2,), (1,)) or (len(named) > 1 and (3, 0) <= named < (3, 8)):
        return (
            f"it is Python {'.'.join(map(str, named))}, and the probe needs 3.8 or newer. "
            "Run it with a newer Python."
        )
    if "I" in flags:
        return (
            "it was started with -I, which ignores PYTHONPATH. Start it without -I (-s -P has its "
            "other effects); the flag may stand in the first line of a script."
        )
    if "E" in flags:
        return (
            "it was started with -E, which ignores PYTHONPATH. Start it without -E; the flag may "
            "stand in the first line of a script."
        )
    if "S" in flags:
        return "it was started with -S, which leaves out site. Start it without -S."
    if not process.environ:
        return (
            "its environment can't be read, as it belongs to another user. Start it as the same "
            "user, without sudo."
        )
    if not process.out:
        return (
            "it was started with an environment of its own, without the variables of this run. "
            "Pass PYTHONPATH and the variables named PILOTAGE_... on to it."
        )
    if process.pythonpath is None:
        return "PYTHONPATH was taken from its environment. Pass it on."
    entries = process.pythonpath.split(os.pathsep)
    if probe_code not in entries:
        return (
            "its PYTHONPATH was replaced. Put new directories before what it holds: "
            'PYTHONPATH="/your/directory:$PYTHONPATH".'
        )
    if process.before:
        return (
            f"a sitecustomize in {clean(process.before)} comes before the probe's. Put that "
            'directory behind: PYTHONPATH="$PYTHONPATH:/your/directory".'
        )
    return None


def judge(
    processes: Iterable[Process], watched: Collection[int], probe_code: str
) -> list[tuple[int, str]]:
    """(pid, sentence) for each Python process that the probe is not in.

    ``watched``: the ids that have said hello. A fork of a watched process is watched, and so are
    the helpers of multiprocessing, which say nothing until they train.
    """
    known = {process.pid: process for process in processes}
    found = []
    for process in known.values():
        if process.pid in watched or version(process) is None or not process.argv:
            continue
        if _is_fork(process, known, watched):
            continue
        reason = why(process, probe_code)
        if reason is None and process.torch and not _is_helper(process):
            reason = (
                "nothing is in the way of the probe, but it says nothing. Check that the process "
                "may read the probe's directory and write to the records beside it."
            )
        if reason is not None:
            shown = _short(process.argv)
            about = f"A Python process of this run (pid {process.pid}: {shown}) is not watched: "
            found.append((process.pid, about + reason))
    return found


def _is_helper(process: Process) -> bool:
    return any(
        word == "--multiprocessing-fork" or word.startswith("from multiprocessing.")
        for word in process.argv
    )


def _is_fork(process: Process, known: dict[int, Process], watched: Collection[int]) -> bool:
    argv, seen = process.argv, 0
    while seen < 100:
        parent = known.get(process.ppid)
        if parent is None or parent.argv != argv:
            return False
        if parent.pid in watched:
            return True
        process, seen = parent, seen + 1
    return False


def nothing(processes: Iterable[Process]) -> str | None:
    """The sentence for a run in which no Python process was seen; None if there was one."""
    seen = list(processes)
    if not seen or any(version(process) is not None for process in seen):
        return None
    for process in seen:
        name = os.path.basename(process.argv[0]) if process.argv else ""  # noqa: PTH119
        if name in _ELSEWHERE:
            return (
                f"No Python process of this run was seen, so nothing is watched: {name} starts "
                f"its work in {_ELSEWHERE[name]}, where the probe is not. Run the Python command "
                "there with Pilotage instead."
            )
    return (
        "No Python process of this run was seen, so nothing is watched but its output: the probe "
        f"follows Python only, and this run is {_short(seen[-1].argv)}."
    )


def _short(argv: Sequence[str]) -> str:
    text = clean(shlex.join(argv[:20]))
    return text if len(text) <= MAX_ARGV else text[: MAX_ARGV - 1] + "…"


# --- what /proc says ---------------------------------------------------------------------------


def look(pid: int, probe_code: str) -> Process | None:
    """A process as ``/proc`` shows it now; None if it is gone or has no command line (yet)."""
    place = Path("/proc") / str(pid)
    try:
        raw = _read(place / "cmdline")
        stat = _read(place / "stat").rpartition(b")")[2].split()
        ppid = int(stat[1])
    except (OSError, ValueError, IndexError):
        return None
    argv = tuple(os.fsdecode(word)[:500] for word in raw.rstrip(b"\0").split(b"\0")[:100])
    if not raw:
        return None
    try:
        executable = str((place / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        executable = ""
    process = Process(pid, ppid, argv, executable)
    if version(process) is None:
        return process
    try:
        words = _read(place / "environ").split(b"\0")
    except OSError:
        return replace(process, environ=False)
    env = dict(word.partition(b"=")[::2] for word in words)
    found = env.get(b"PYTHONPATH")
    pythonpath = None if found is None else os.fsdecode(found)
    return replace(
        process,
        out=b"PILOTAGE_PROBE_OUT" in env,
        pythonpath=pythonpath,
        before=_shadow(pythonpath or "", probe_code, place / "cwd"),
    )


def has_torch(pid: int) -> bool:
    """Whether a process has PyTorch's libraries in its memory."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return any(b"libtorch" in line for line in file)
    except OSError:
        return False


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_READ)


def _shadow(pythonpath: str, probe_code: str, cwd: Path) -> str:
    for entry in pythonpath.split(os.pathsep)[:100]:
        if entry == probe_code:
            return ""
        directory = cwd / entry
        if entry and (
            (directory / "sitecustomize.py").is_file() or (directory / "sitecustomize").is_dir()
        ):
            return entry
    return ""


class Survey:
    """The processes of one run, and what has been said of them; see the module."""

    def __init__(self, probe_dir: Path) -> None:
        self._code = str((probe_dir / "probe").resolve())
        self._seen: dict[int, Process] = {}
        self._watched: set[int] = set()
        self._training = False
        self._said: set[int] = set()

    def heard(self, records: Iterable[Record | Malformed]) -> None:
        """Take note of the processes that have said hello, and of torch in one of them."""
        for record in records:
            if isinstance(record, Hello) and record.pid is not None:
                self._watched.add(record.pid)
            self._training = self._training or isinstance(record, TorchRecord)

    def look(self, pids: Iterable[int]) -> list[str]:
        """Read the run's processes as they are now; sentences that are new.

        Costs about 0.1 ms for each Python process.
        """
        for pid in pids:
            process = look(pid, self._code)
            if process is None or (pid not in self._seen and len(self._seen) >= MAX_PROCESSES):
                continue
            known = self._seen.get(pid)
            same = known is not None and known.argv == process.argv
            self._seen[pid] = replace(process, torch=bool(same and known and known.torch))
            if not self._seen[pid].torch and self._is_silent(pid) and has_torch(pid):
                self._seen[pid] = replace(self._seen[pid], torch=True)
        return self._say([(pid, text) for pid, text in self._suspects() if self._seen[pid].torch])

    def _is_silent(self, pid: int) -> bool:
        process = self._seen[pid]
        return (
            pid not in self._watched
            and version(process) is not None
            and not _is_fork(process, self._seen, self._watched)
        )

    def close(self) -> list[str]:
        """What is left to say when the run has ended: only if nothing of it was watched."""
        if self._training:
            return []
        said = self._say(self._suspects())
        if not said and not self._watched and not self._said:
            text = nothing(self._seen.values())
            return [text] if text else []
        return said

    def _suspects(self) -> list[tuple[int, str]]:
        found = judge(self._seen.values(), self._watched, self._code)
        return [(pid, text) for pid, text in found if pid not in self._said]

    def _say(self, found: list[tuple[int, str]]) -> list[str]:
        found = found[: MAX_SENTENCES - len(self._said)]
        self._said.update(pid for pid, _ in found)
        return [text for _, text in found]
