"""An operator out of a script, for a session that nobody watches (``--headless``).

It sees what a console sees, the log, and does what a console does, append ``operator.*`` events
to it, as source ``console:script``. It neither attaches nor gives heartbeats: nobody was there,
and the accounting of the operator's time must say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from core import events as ev
from core.agents.script import Act, load
from core.errors import PilotageError
from core.events import Body, Event, NewEvent
from core.log_protocol import Log
from core.state import SessionState
from core.state_parts import level_name

SOURCE = "console:script"
AUTHOR = "script"
NOBODY = "Nobody watches this session."

Say = Callable[[str], None]


async def play(log: Log, say: Say) -> None:
    """Play the operator of the session's script until cancelled; ``say`` gets the news.

    A question that no act of the script answers is denied, so that a session can't hang.
    Raises :class:`core.errors.PilotageError` where the script can't be read.
    """
    operator = ScriptedOperator(log, say)
    try:
        async for events in log.follow(0):
            for event in events:
                operator.take(event)
    finally:
        # The session may have ended between two looks.
        for event in log.events(after=operator.seq):
            operator.take(event)
        await operator.leave()


class ScriptedOperator:
    """Reacts to the events of one session by the acts of its script."""

    def __init__(self, log: Log, say: Say) -> None:
        self._log = log
        self._say = say
        self._state = SessionState()
        self._acts: list[Act] = []
        self._speed = 1.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._level: int | None = None
        self._scripted = False

    @property
    def seq(self) -> int:
        """Number of the last event it has taken in."""
        return self._state.seq

    def take(self, event: Event) -> None:
        """Take in one event of the log and do what the script says to it."""
        self._state.apply(event)
        body = event.body
        if isinstance(body, ev.SessionOpened):
            self._begin(body)
        for line in news(event, self._state):
            self._say(line)
        for on, what in _triggers(event, self._state):
            act = self._fitting(on, what)
            if act is not None:
                self._acts.remove(act)
                self._later(act, event)
            elif on == "ask":
                assert isinstance(body, ev.AgentAsked)
                why = "The script has no answer to this." if self._scripted else NOBODY
                answer = ev.OperatorDecided(body.ask_id, "deny", why, author=AUTHOR)
                self._append(answer)

    async def leave(self) -> None:
        """Give up what is not done yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, opened: ev.SessionOpened) -> None:
        agent = opened.config.get("agent", {})
        self._speed = float(agent.get("speed", 1.0))
        self._scripted = bool(agent.get("script"))
        if self._scripted:
            self._acts = list(load(Path(agent["script"])).operator)

    def _fitting(self, on: str, what: str) -> Act | None:
        return next((a for a in self._acts if a.on == on and a.match.lower() in what.lower()), None)

    def _later(self, act: Act, event: Event) -> None:
        # What is stamped is the moment of the act's cause, as with the key press of a person.
        bodies = self._bodies(act, event)
        delay = act.after_s / self._speed if self._speed else 0.0
        if not delay:
            self._append(*bodies)
            return

        async def do() -> None:
            await asyncio.sleep(delay)
            self._append(*bodies)

        task = asyncio.get_running_loop().create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _append(self, *bodies: Body) -> None:
        try:
            self._log.append(*(NewEvent(b, SOURCE) for b in bodies))
        except PilotageError as err:
            self._say(f"The scripted operator could not act: {err}")

    def _bodies(self, act: Act, event: Event) -> list[Body]:
        if act.action in ("allow", "deny", "edit"):
            assert isinstance(event.body, ev.AgentAsked)
            return [ev.OperatorDecided(event.body.ask_id, act.action, act.text, act.input, AUTHOR)]
        made: dict[str, Callable[[], Body]] = {
            "message": lambda: ev.OperatorMessaged(f"script-{act.number}", act.text, AUTHOR),
            "interrupt": lambda: ev.OperatorInterrupted(act.text, AUTHOR),
            "pause": lambda: ev.OperatorPaused(act.text, AUTHOR),
            "resume": lambda: ev.OperatorResumed(AUTHOR),
            "mark": lambda: ev.MarkerPlaced(act.text, AUTHOR),
            "intervene": lambda: self._intervention(act, event),
        }
        if act.action in made:
            return [made[act.action]()]
        return [ev.OperatorRequested(act.action, AUTHOR, act.text)]

    def _intervention(self, act: Act, event: Event) -> ev.InterventionRecorded:
        run = self._state.running
        return ev.InterventionRecorded(
            intervention_id=f"script-{act.number}",
            at_ts_us=event.ts_us,
            at_tree=self._state.tree,
            at_run=run.run_id if run else "",
            at_level=self._state.measured_level,
            text=act.text,
            author=AUTHOR,
            **act.fields,
        )


def _triggers(event: Event, state: SessionState) -> list[tuple[str, str]]:
    """What an act can answer to in this event: the name of ``Act.on`` and the text to match."""
    body = event.body
    if isinstance(body, ev.AgentAsked):
        return [("ask", body.question)]
    if isinstance(body, ev.AgentClaimed):
        return [("claim", level_name(body.level))]
    if isinstance(body, ev.RunStarted):
        return [("run", body.purpose)]
    if isinstance(body, ev.RunEnded):
        run = state.runs.get(event.run_id)
        return [("ended", run.started.purpose if run else "")]
    if isinstance(body, ev.FindingOpened):
        return [("finding", body.category)]
    if isinstance(body, ev.LevelMeasured):
        return [("measured", level_name(body.level))]
    if isinstance(body, ev.AgentFinished | ev.AgentFailed):
        return [("finished", "")]
    return []


def news(event: Event, state: SessionState) -> list[str]:
    """Lines that tell somebody without a cockpit what this event is; mostly none."""
    from core.text import clean

    body = event.body
    line = ""
    if isinstance(body, ev.AgentSaid):
        line = f"agent: {body.text}"
    elif isinstance(body, ev.AgentAsked):
        line = f"agent asks: {body.question}"
    elif isinstance(body, ev.AgentClaimed):
        line = f"agent claims {level_name(body.level)}: {body.text}"
    elif isinstance(body, ev.AgentFailed):
        line = f"agent failed: {body.error}"
    elif isinstance(body, ev.OperatorDecided):
        line = f"operator: {body.decision}" + (f" ({body.reason})" if body.reason else "")
    elif isinstance(body, ev.OperatorMessaged):
        line = f"operator: {body.text}"
    elif isinstance(body, ev.RunStarted):
        of = f" of the {body.of}" if body.of else ""
        line = f"run #{body.number}, {body.purpose}{of}: {body.command}"
    elif isinstance(body, ev.RunEnded):
        run = state.runs.get(event.run_id)
        how = f"exit {body.exit_code}" if body.exit_code is not None else body.reason
        line = f"run #{run.number if run else '?'} ended: {how}"
        if run and run.seconds is not None:
            line += f" after {run.seconds:.1f} s"
    elif isinstance(body, ev.FindingOpened):
        line = f"finding {body.category}: {body.title}"
    elif isinstance(body, ev.LevelMeasured):
        line = f"measured: {body.text or level_name(body.level)}"
    elif isinstance(body, ev.InterventionRecorded):
        line = f"intervention: {body.text}"
    return [clean(" ".join(line.split()))] if line else []
