"""Finding and ending the processes of a run on Linux, through ``/proc``.

Standard library only and free of imports from this project: ``supervise`` loads it in an
interpreter of its own. Membership is by descent (the supervisor adopts orphans, so descent is
complete while it lives) and by a variable in the environment (which outlives the supervisor).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable


def pids() -> list[int]:
    """Every process id there is."""
    try:
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything, parentheses and spaces included.
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1])
    except (OSError, ValueError, IndexError):
        return None


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, zombies left out, parents before their children."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid in pids():
        found = _stat(pid)
        if found is not None:
            children.setdefault(found[1], []).append(pid)
            if found[0] in "ZX":
                dead.add(pid)
    result, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(0), ()):
            queue.append(child)
            if child not in dead:
                result.append(child)
    return result


def ancestors(pid: int) -> set[int]:
    """``pid`` and all above it."""
    line: set[int] = set()
    while pid > 0 and pid not in line:
        line.add(pid)
        found = _stat(pid)
        pid = found[1] if found is not None else 0
    return line


def marked(variable: str, value: str) -> list[int]:
    """Living processes started with ``variable=value``; never this process or one above it."""
    wanted = f"{variable}={value}".encode()
    mine = ancestors(os.getpid())
    result = []
    for pid in pids():
        if pid in mine:
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
        except OSError:  # gone, or another user's
            continue
        found = _stat(pid)
        if found is not None and found[0] not in "ZX":
            result.append(pid)
    return result


def memory(pids: Iterable[int]) -> tuple[int, int]:
    """Resident and swapped-out memory of the processes together, in bytes.

    Pages they share count for each: the kernel tells shares (PSS) only by walking the page tables
    of each process, which holds up the very process that is measured.
    """
    resident = swapped = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                text = file.read()
        except OSError:
            continue
        resident += _kib(text, b"\nVmRSS:")
        swapped += _kib(text, b"\nVmSwap:")
    return resident * 1024, swapped * 1024


def _kib(status: bytes, name: bytes) -> int:
    """A field of ``/proc/PID/status`` in KiB; 0 where there is none, as in a zombie."""
    _, found, rest = status.partition(name)
    words = rest[:40].split(None, 1)
    return int(words[0]) if found and words and words[0].isdigit() else 0


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # gone, or not ours
            continue


def end_all(
    find: Callable[[], list[int]],
    grace_s: float,
    reap: Callable[[], None] = lambda: None,
    limit_s: float = 10.0,
) -> list[int]:
    """SIGTERM to all that ``find`` finds, SIGKILL to those left after ``grace_s`` seconds.

    Asks ``find`` again until it finds nothing, since the dying may fork, for at most ``limit_s``
    seconds more. Returns the ids of all that were found.
    """
    seen: set[int] = set()
    started = time.monotonic()
    while time.monotonic() - started < grace_s + limit_s:
        reap()
        left = find()
        if not left:
            break
        if time.monotonic() - started >= grace_s:
            signal_all(left, signal.SIGKILL)
        else:
            signal_all(set(left) - seen, signal.SIGTERM)
        seen.update(left)
        time.sleep(0.01)
    return sorted(seen)
