"""What every test stands on: a home of its own, a fixed environment, and no way out to the network."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A slow machine is no defect of the code under test: the suite shares two cores with what it starts.
# Continuous integration draws the same examples for the same code; a search for new ones is for people.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")

# How long a process that a test started may take to go after the test.
GRACE_S = 5.0

# Settings of whoever runs the tests that would reach the code under test. Prefixes end in "_".
_LEAKS = (
    "ANTHROPIC_",
    "CLAUDE_",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "GIT_",
    "LINES",
    "NO_COLOR",
    "OPENAI_",
    "PILOTAGE_",
    "PJRT_",
    "PT_XLA_",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "TEXTUAL",
    "TORCH_",
    "TPU_",
    "XLA_",
)


def _leaks(name: str) -> bool:
    return any(name == leak or (leak.endswith("_") and name.startswith(leak)) for leak in _LEAKS)


@pytest.fixture(autouse=True)
def isolated_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Point home, git and terminal settings at an empty place, for this process and its children.

    Yields the directory that is `$PILOTAGE_HOME` during the test; it exists and is empty. Fails
    the test if a process that inherited it is still there `GRACE_S` seconds later: a recorder or a
    run that outlives its test is the leak that the product promises not to have.
    """
    place = tmp_path_factory.mktemp("user")
    home = place / "pilotage"
    home.mkdir()
    for name in list(os.environ):
        if _leaks(name):
            monkeypatch.delenv(name)
    for name, value in {
        "PILOTAGE_HOME": str(home),
        "HOME": str(place),
        "XDG_CACHE_HOME": str(place / ".cache"),
        "XDG_CONFIG_HOME": str(place / ".config"),
        "XDG_DATA_HOME": str(place / ".local/share"),
        "XDG_STATE_HOME": str(place / ".local/state"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Test Author",
        "GIT_AUTHOR_EMAIL": "author@example.invalid",
        "GIT_COMMITTER_NAME": "Test Committer",
        "GIT_COMMITTER_EMAIL": "committer@example.invalid",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "TZ": "UTC",
    }.items():
        monkeypatch.setenv(name, value)
    yield home
    left = _started_with(home)
    deadline = time.monotonic() + GRACE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.05)  # they are no children of ours: there is nothing to wait on
        left = _started_with(home)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"the test left processes behind: {'; '.join(left.values())}"


def _started_with(home: Path) -> dict[int, str]:
    """Living processes whose environment names `home`, detached ones too: pid -> command line."""
    mark = f"PILOTAGE_HOME={home}".encode()
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in _environment(place).split(b"\0"):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(place.name)] = command.strip()
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


def _environment(place: Path) -> bytes:
    """The environment a process was started with; empty for kernel threads and the dead."""
    environment = (place / "environ").read_bytes()
    # For a moment within exec() a process has none yet. Kernel threads and zombies have no `exe`.
    for _ in range(3):
        if environment or not (place / "exe").exists():
            break
        time.sleep(0.001)
        environment = (place / "environ").read_bytes()
    return environment


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections of this process to anything but this machine."""

    def guard(connect: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(self: socket.socket, address: Any) -> Any:
            inet = self.family in (socket.AF_INET, socket.AF_INET6)
            if inet and address[0] not in ("127.0.0.1", "::1", "localhost"):
                raise AssertionError(
                    f"a test tried to connect to {address!r}: tests use no network"
                )
            return connect(self, address)

        return guarded

    monkeypatch.setattr(socket.socket, "connect", guard(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guard(socket.socket.connect_ex))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest first: with two workers nothing then waits for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")
