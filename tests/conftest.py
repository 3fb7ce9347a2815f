"""What every test stands on: a home of its own, a fixed environment, and no way out to the network."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
) -> Path:
    """Point home, git and terminal settings at an empty place, for this process and its children.

    Returns the directory that is `$PILOTAGE_HOME` during the test; it exists and is empty.
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
    return home


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
