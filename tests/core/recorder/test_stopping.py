"""Signals to work without a terminal: a sentence, and what was there before is there again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import Any, cast

import pytest

from core.errors import PilotageError
from core.recorder.jobs import RunStopped
from core.recorder.journal import Journal
from core.recorder.runs import Runs
from core.recorder.stopping import runs_stoppable, stoppable, unhurried
from sessions import verifying

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_a_sentence_that_no_part_of_the_work_swallows(number: signal.Signals) -> None:
    before, after = handlers(), []

    def work() -> None:
        with stoppable("import"):
            with contextlib.suppress(PilotageError, Exception):
                os.kill(os.getpid(), number)
            after.append("went on")

    with pytest.raises(RunStopped, match=rf"^The import was stopped by {number.name}\.$"):
        work()
    assert not after and handlers() == before


def test_a_signal_ends_what_waits_in_a_loop_and_it_tidies_up() -> None:
    tidied = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            tidied.append(True)

    with pytest.raises(RunStopped, match="SIGTERM"), stoppable("verification"):
        asyncio.run(work())
    assert tidied


class _Noted:
    giving_up = False
    text = ""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self, text: str) -> None:
        self.text = text
        self.stopped.set()


def test_while_runs_go_on_they_are_stopped_and_nothing_waits_for_a_full_disk() -> None:
    noted = _Noted()

    async def work() -> None:
        with runs_stoppable("recording", cast(Runs, noted), cast(Journal, noted)):
            os.kill(os.getpid(), signal.SIGINT)
            await noted.stopped.wait()
        assert handlers() == inside

    before = handlers()
    with stoppable("recording"):
        inside = handlers()
        asyncio.run(work())
    assert (noted.text, noted.giving_up) == ("The recording was stopped by SIGINT.", True)
    assert handlers() == before != inside


def test_tidying_up_is_not_cut_off() -> None:
    before = handlers()
    with unhurried():
        for number in NUMBERS:
            os.kill(os.getpid(), number)
    assert handlers() == before


def test_without_signals_in_another_thread_the_work_is_done() -> None:
    done: list[bool] = []

    def work() -> None:
        with stoppable("verification"), unhurried():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_a_verification_that_is_stopped_while_it_copies_leaves_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "pilotage.toml").write_text(
        '[reference]\ncommand = "true"\n[target]\ncommand = "true"\n[agent]\ndriver = "manual"\n'
    )
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    async def copies(*args: object, **more: object) -> None:
        assert [*(tmp_path / "tmp").iterdir()]
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(verifying, "verify", copies)
    from core.config import load

    with pytest.raises(RunStopped):
        verifying.verify_project(load(tmp_path / "p"), "0", level=0, say=print)
    assert not [*(tmp_path / "tmp").iterdir()]
