"""SIGTERM, SIGINT and SIGHUP for work without a terminal: a sentence, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from core.recorder.jobs import RunStopped
from core.recorder.journal import Journal
from core.recorder.runs import Runs


class _Stopped(KeyboardInterrupt):
    """No ``PilotageError``, which the work may catch and go on."""


@contextlib.contextmanager
def stoppable(what: str) -> Iterator[None]:
    """End the block with :class:`RunStopped` where a signal comes, so that it cleans up.

    ``what`` is what was stopped, such as ``verification``. Outside of the main thread, where
    Python takes no signals, the block just runs.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped(_sentence(what, number))

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # no main thread
        for number in _numbers():
            before[number] = signal.signal(number, stop)
    try:
        yield
    except _Stopped as stopped:
        raise RunStopped(str(stopped)) from None
    finally:
        _put_back(before)


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """Let no signal cut off the block: a last tidying up."""
    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):
        for number in _numbers():
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        _put_back(before)


@contextlib.contextmanager
def runs_stoppable(what: str, runs: Runs, journal: Journal) -> Iterator[None]:
    """A signal ends the run that goes on, in good order, and with it the work (an ``async`` one).

    What the log then can't take, for want of space, is not waited for.
    """
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        journal.giving_up = True
        runs.stop(_sentence(what, number))

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # no main thread
        for number in _numbers():
            handler = signal.getsignal(number)
            loop.add_signal_handler(number, stop, number)
            before[number] = handler
    try:
        yield
    finally:
        for taken in before:
            loop.remove_signal_handler(taken)
        _put_back(before)  # asyncio would leave the system's own


def _numbers() -> Iterator[signal.Signals]:
    yield signal.SIGTERM
    yield signal.SIGINT
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        yield signal.SIGHUP


def _put_back(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _sentence(what: str, number: int) -> str:
    return f"The {what} was stopped by {signal.Signals(number).name}."
