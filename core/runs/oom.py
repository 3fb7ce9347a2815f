"""Whether the kernel killed something for want of memory, and how much memory there is.

Standard library only and free of imports from this project: ``supervise`` loads it in an
interpreter of its own. Everything here answers with "not known" where the kernel does not tell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

#: ``Out of memory: Killed process 4711 (python) ...``, ``Memory cgroup out of memory: Killed ...``
_KILLED = re.compile(rb"[Kk]illed process (\d+)")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _directories() -> list[tuple[str, int]]:
    """Directories of this process's memory cgroup and its ancestors, nearest first; and version.

    In a container the path that the kernel states may be one outside of what is mounted; then the
    mounted root is the container's own group.
    """
    groups = {}
    for line in _read("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[2] = path
        elif "memory" in controllers.split(","):
            groups[1] = path
    found = []
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        if version not in groups or (version == 1 and "memory" not in kind[-1].split(",")):
            continue
        root, point, path = fields[3], fields[4].rstrip("/"), groups[version]
        inside = path[len(root) :] if root != "/" and path.startswith(root) else path
        while inside.strip("/"):
            directory = point + "/" + inside.strip("/")
            if Path(directory).is_dir():
                found.append((directory, version))
            inside = inside.rstrip("/").rpartition("/")[0]
        found.append((point or "/", version))
    # A machine with both has the controller in one of them only.
    return sorted(found, key=lambda item: not _has_memory(*item))


def _has_memory(directory: str, version: int) -> bool:
    name = "memory.events" if version == 2 else "memory.oom_control"
    return Path(directory, name).exists()


def _counter(text: str) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def kills() -> tuple[int, str] | None:
    """How many processes the OOM killer has ended so far, and where that is counted.

    ``cgroup``: among those of this process's control group; ``machine``: on the whole machine,
    which is all that an old kernel tells. None: the kernel does not tell.
    """
    for directory, version in _directories():
        name = "memory.events" if version == 2 else "memory.oom_control"
        count = _counter(_read(f"{directory}/{name}"))
        if count is not None:
            return count, "cgroup"
    count = _counter(_read("/proc/vmstat"))
    return None if count is None else (count, "machine")


def limit_bytes() -> int:
    """Memory that the run can have: the least limit of its control groups, or all of it; 0: unknown."""
    total = 0
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    limits = [total] if total else []
    for directory, version in _directories():
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        text = _read(f"{directory}/{name}").strip()
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return min(limits, default=0)


class KernelLog:
    """What the kernel logs from now on, where we may read it."""

    def __init__(self) -> None:
        self._fd = -1
        try:
            self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            pass

    def killed(self, pids: Collection[int]) -> list[int]:
        """Those of ``pids`` that the kernel says it has killed for want of memory."""
        found = []
        for _ in range(10_000):
            if self._fd < 0:
                break
            try:
                record = os.read(self._fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before we read it; the next read goes on
                continue
            except OSError:
                break
            if not record:
                break
            match = _KILLED.search(record)
            if match and b"memory" in record and int(match[1]) in pids:
                found.append(int(match[1]))
        return found
