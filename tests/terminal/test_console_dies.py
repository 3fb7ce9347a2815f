"""The console is killed, its line drops, its terminal closes: the session does not notice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from core import events as ev
from core.events import NewEvent
from core.process import recorder_alive
from core.state import SessionState
from sessions.log import EventLog
from sessions.opening import start
from tests.core.recorder.recording import make
from tests.terminal.pty_terminal import PATIENCE_S, Terminal

pytestmark = pytest.mark.terminal

#: Prints a line for each file that appears, so that a test decides what has been printed.
TALKING = """\
import sys, time, pathlib
seen = 0
print("ready", flush=True)
while seen < 1000:
    if pathlib.Path(sys.argv[1], str(seen)).exists():
        print(f"line-number-{seen}", flush=True)
        seen += 1
    else:
        time.sleep(0.01)
"""


def script(signs: Path) -> str:
    return f"""
[[step]]
say = "I start a long run."
[[step]]
run = "python talking.py {signs}"
"""


class Session:
    """A recorded session whose run prints a line whenever the test says so."""

    def __init__(self, tmp_path: Path) -> None:
        self.signs = tmp_path / "signs"
        self.signs.mkdir()
        self.path = make(tmp_path, script(self.signs), {"talking.py": TALKING})
        self.id = str(self.path)
        self.said = 0
        self.log = EventLog.open(self.path)
        self.state = SessionState()
        start(self.path)
        self.until(lambda s: any("ready" in line.text for r in s.attempts for line in r.lines))

    def say_lines(self, count: int) -> int:
        """Let the run print some more lines, and wait until the last of them is in the log."""
        for _ in range(count):
            (self.signs / str(self.said)).touch()
            self.said += 1
        last = f"line-number-{self.said - 1}"
        self.until(lambda s: any(line.text == last for line in s.attempts[0].lines))
        return self.said - 1

    def until(self, good: Callable[[SessionState], object]) -> None:
        turn = threading.Event()
        for _ in range(int(PATIENCE_S / 0.02)):
            for event in self.log.events(self.state.seq):
                self.state.apply(event)
            if good(self.state):
                return
            turn.wait(0.02)
        raise AssertionError(f"the log never said so; its phase is {self.state.phase}")

    def end(self) -> None:
        stop = ev.OperatorRequested("stop session", author="test")
        self.log.append(NewEvent(stop, "console:test"))
        self.until(lambda s: not s.recorder_up)
        self.log.close()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path)
    yield made
    made.end()


def _sees(terminal: Terminal, number: int) -> None:
    terminal.until(f"line-number-{number}")


@pytest.mark.parametrize("how", ["kill -9", "closed terminal", "SIGHUP", "SIGTERM"])
def test_a_console_that_dies_in_mid_run_is_followed_by_one_that_shows_everything(
    session: Session, how: str
) -> None:
    with Terminal("attach", session.id) as first:
        _sees(first, session.say_lines(3))
        if how == "closed terminal":
            first.hang_up()
            first.process.wait(20)
        else:
            first.kill(
                {"kill -9": signal.SIGKILL, "SIGHUP": signal.SIGHUP}.get(how, signal.SIGTERM)
            )
    assert recorder_alive(session.path.parent)
    session.say_lines(5)  # while nobody watches
    with Terminal("attach", session.id) as second:
        _sees(second, session.say_lines(1))
        texts = [line.text for line in session.state.attempts[0].lines]
        assert [t for t in texts if t.startswith("line-")] == [
            f"line-number-{n}" for n in range(session.said)
        ]
        # The lines from before, between and after stand on one screen, in order.
        text = second.until(lambda shown: "line-number-0" in shown and "line-number-8" in shown)
        assert [n for n in range(9) if f"line-number-{n}" not in text] == []
        second.type("q")
        second.drain()
        assert second.process.wait(20) == 0


def test_two_consoles_watch_one_session_and_the_first_answer_counts(tmp_path: Path) -> None:
    asks = """
[[step]]
ask = "May I go on with this?"
if_allowed = "So I go on."
if_denied = "So I stop here."
[[step]]
run = "python forever.py"
"""
    path = make(tmp_path, asks)
    start(path)
    with EventLog.open(path) as log:
        with Terminal("attach", str(path)) as one, Terminal("attach", str(path)) as two:
            one.until("WAITING ON YOU")
            two.until("WAITING ON YOU")
            ask = next(iter(log.events(kinds={"agent.asked"}))).body
            assert isinstance(ask, ev.AgentAsked)
            # The key acts only on what has been on the screen for a second; press until it does.
            turn = threading.Event()
            while not list(log.events(kinds={"operator.decided"})):
                one.type("a")
                turn.wait(0.3)
            for terminal in (one, two):
                terminal.until("So I go on.")
            attached = {e.source for e in log.events(kinds={"operator.attached"})}
            assert len(attached) == 2
            two.type("q")
            two.drain()
            assert one.process.poll() is None
        log.append(NewEvent(ev.OperatorRequested("stop session"), "console:test"))
        turn = threading.Event()
        while recorder_alive(path.parent):
            turn.wait(0.02)


def test_leaving_gives_the_terminal_back(session: Session) -> None:
    with Terminal("attach", session.id, columns=80, rows=24) as terminal:
        terminal.until("I start a long run.")
        terminal.type("q")
        terminal.drain()
        assert terminal.process.wait(20) == 0
        end = bytes(terminal.raw[-4000:])
        assert b"\x1b[?1049l" in end  # the other screen again
        assert b"\x1b[?1000l" in end  # no mouse reports
        assert b"\x1b[?25h" in end  # a cursor
        assert session.path.parent.name.encode() in end  # and how to come back
