"""How a run ended, in a sentence that says what to do about it.

What the process itself leaves behind is an exit code or a signal. Who sent the signal, and why,
comes from what the supervisor saw: the kernel's count of processes killed for want of memory, its
log, the memory the run had reached, and whether we asked the run to end.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.runs.items import Ended
from core.text import clean

CAUSES = {
    "out of memory": "the kernel killed a process of the run for want of host memory",
    "probably out of memory": "killed by SIGKILL with its memory near the limit",
    "killed": "SIGKILL from somebody who is not Pilotage",
    "terminated": "SIGTERM from somebody who is not Pilotage",
    "segmentation fault": "SIGSEGV",
    "bus error": "SIGBUS",
    "abort": "SIGABRT",
    "interrupted": "SIGINT",
    "illegal instruction": "SIGILL",
    "signal": "any other signal",
}
"""Values of ``Ended.cause``, besides ``""``."""

NEAR_LIMIT = 0.85
"""Share of the memory limit from which SIGKILL is put down to the kernel: a sample a second may
miss the peak. Our own choice; no kernel states one."""

_SIGNALS = {
    "SIGTERM": "Ended by SIGTERM, which Pilotage did not send: somebody ran kill, a job manager ended "
    "it, or the machine is being shut down (a preempted TPU VM is). Run it again if it was not "
    "meant.",
    "SIGINT": "Ended by SIGINT (what Ctrl-C sends), which Pilotage did not send.",
    "SIGSEGV": "Segmentation fault (SIGSEGV): native code failed, not Python. Set "
    "PYTHONFAULTHANDLER=1 in its environment to see the Python lines it was at; versions of torch, "
    "torch_xla and libtpu that do not fit each other are a common reason.",
    "SIGBUS": "Bus error (SIGBUS): memory that is backed by a file could not be read or written. "
    "Look for a full /dev/shm (DataLoader workers use it) or disk, or a file cut while it was "
    "mapped.",
    "SIGABRT": "Aborted (SIGABRT): native code ended itself, as a failed check in C++ does. The "
    "last lines on stderr say which.",
    "SIGILL": "Illegal instruction (SIGILL): a library was built for another kind of CPU.",
    "SIGFPE": "Killed by SIGFPE: an integer division by zero in native code.",
    "SIGPIPE": "Killed by SIGPIPE: it wrote to a pipe that nobody reads any more.",
    "SIGXCPU": "Killed by SIGXCPU: the limit on CPU time (ulimit -t) was reached.",
    "SIGXFSZ": "Killed by SIGXFSZ: the limit on file size (ulimit -f) was reached.",
    "SIGHUP": "Ended by SIGHUP, which Pilotage did not send.",
}
_CAUSE = {
    "SIGTERM": "terminated",
    "SIGINT": "interrupted",
    "SIGSEGV": "segmentation fault",
    "SIGBUS": "bus error",
    "SIGABRT": "abort",
    "SIGILL": "illegal instruction",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """What the supervisor saw at the end of the run's own process.

    ``oom_kills``: by how much the kernel's count rose during the run, None where it can't be
    read; ``oom_where``: whose count, ``cgroup`` or ``machine``. ``oom_pids``: processes of the
    run that the kernel's log names. ``limit``: bytes of memory the run could have; ``peak`` its
    largest resident memory. ``forced``: it had not ended when the time of a stop was up.
    """

    code: int | None = None
    number: int | None = None
    max_rss: int = 0
    oom_kills: int | None = None
    oom_where: str = ""
    oom_pids: list[int] = field(default_factory=list)
    limit: int = 0
    forced: bool = False

    @classmethod
    def from_status(cls, said: Mapping[str, Any]) -> Exit:
        """From the supervisor's line."""
        return cls(
            said["exit"],
            said["signal"],
            said["max_rss"],
            said.get("oom_kills"),
            said.get("oom_where", ""),
            list(said.get("oom_pids", ())),
            said.get("limit", 0),
            bool(said.get("forced")),
        )


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def not_started(error: str) -> Ended:
    """The command could not be executed."""
    return Ended("not started", text=f"The command could not be started: {clean(error)}.")


def describe(
    seen: Exit | None,
    *,
    why: str = "",
    limit_s: float | None = None,
    grace_s: float = 0.0,
    duration_s: float = 0.0,
    max_rss: int = 0,
    swept: int = 0,
) -> Ended:
    """The end of a run that had begun.

    ``seen`` None: its supervisor was killed. ``why``: ``stopped`` or ``time limit`` where we
    asked it to end.
    """
    took: dict[str, Any] = {
        "duration_s": round(duration_s, 3),
        "max_rss_mb": mib(max_rss),
        "swept": swept,
    }
    if seen is None:
        text = "The run's supervisor process was killed; what was left of the run was ended."
        return Ended("cut off", text=text, **took)
    name = signal_name(seen.number) if seen.number is not None else ""
    if why:
        text = f"Ended by the time limit of {limit_s:g} s." if why == "time limit" else ""
        if seen.forced:
            hard = f"It did not end within {grace_s:g} s of SIGTERM and was killed."
            text = f"{text} {hard}".strip()
        return Ended(why, exit_code=seen.code, signal=name, text=text, **took)
    if seen.number is not None:
        cause, text = _by_signal(name, seen, max_rss)
        return Ended("signalled", signal=name, text=text, cause=cause, **took)
    cause, text = _by_code(seen, max_rss)
    return Ended("exited", exit_code=seen.code, text=text, cause=cause, **took)


def _by_signal(name: str, seen: Exit, max_rss: int) -> tuple[str, str]:
    if name == "SIGKILL":
        return _killed(seen, max_rss)
    return _CAUSE.get(name, "signal"), _SIGNALS.get(name, f"Killed by {name}.")


def _killed(seen: Exit, max_rss: int) -> tuple[str, str]:
    had = f" It had {_gib(max_rss)} resident" if max_rss else ""
    had += f" of {_gib(seen.limit)}." if had and seen.limit else "." * bool(had)
    todo = " Use a smaller batch, fewer DataLoader workers or a larger machine."
    if seen.oom_pids or (seen.oom_kills and seen.oom_where == "cgroup"):
        return "out of memory", f"Killed by the kernel: the host is out of memory.{had}{todo}"
    if seen.oom_kills:
        text = "Killed by SIGKILL while the kernel killed processes for want of host memory."
        return "out of memory", f"{text}{had}{todo}"
    if seen.limit and max_rss >= NEAR_LIMIT * seen.limit:
        text = "Killed by SIGKILL, which Pilotage did not send: probably the host is out of memory."
        return "probably out of memory", f"{text}{had}{todo}"
    said = ""
    if seen.oom_kills == 0:
        said = " The kernel counts no process killed for want of memory."
    text = "Killed by SIGKILL, which Pilotage did not send: somebody or a job manager killed it."
    return "killed", f"{text}{said}{had}"


def _by_code(seen: Exit, max_rss: int) -> tuple[str, str]:
    """What an exit code says: 128 + N is how shells report a child that a signal ended."""
    code = seen.code or 0
    if 128 < code < 160:
        name = signal_name(code - 128)
        if name in _SIGNALS or name == "SIGKILL":
            cause, text = _by_signal(name, seen, max_rss)
            return (
                cause,
                f"Exit code {code} is how a shell says that {name} ended its command. {text}",
            )
    if code and (seen.oom_pids or (seen.oom_kills and seen.oom_where == "cgroup")):
        text = "During the run the kernel killed a process for want of host memory."
        return "out of memory", text
    if code == 127:
        return "", "Exit code 127 is how a shell says that it did not find the command."
    if code == 126:
        return "", "Exit code 126 is how a shell says that it may not execute the command."
    return "", ""


def mib(size: int) -> float:
    """Bytes in MiB, to a tenth."""
    return round(size / 1048576, 1)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
