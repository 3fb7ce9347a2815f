"""Every action of the cockpit, once. Keys, footer, command palette and help are made of this.

An action's ``id`` is also the method that does it: ``CockpitScreen.act_<id>``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tui.view import View

Need = Callable[[View], str]
"""Why an action can't be done now, as a sentence; empty where it can."""

READY_S = 1.0
"""Seconds an ask has to be on the screen before a key can approve it: a key that was meant for
what stood there before must not approve what has just come (issue of stray keys)."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the operator can do. ``live`` and ``replay`` say where it has a meaning."""

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    group: str
    live: bool = True
    replay: bool = False
    needs: Need = lambda view: ""
    first: bool = False
    """The key means this whatever pane has the focus."""

    @property
    def key(self) -> str:
        """The key as it is shown."""
        return SHOWN.get(self.keys[0], self.keys[0])

    def blocked(self, view: View) -> str:
        """Why it can't be done now, as a sentence; empty where it can."""
        if view.replay and not self.replay:
            return f"This is a replay: {self.title} needs the live session. Nothing was done."
        if not view.replay and not self.live:
            return "That key belongs to a replay; this session is live."
        return self.needs(view)


SHOWN = {
    "exclamation_mark": "!",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "comma": ",",
    "full_stop": ".",
    "escape": "esc",
    "ctrl+p": "^p",
    "space": "space",
}


def _now(view: View) -> str:
    if view.past:
        return "You are looking at an earlier moment. Esc returns to now."
    return view.read_only


def _agent(view: View) -> str:
    if view.state.agent_end is not None:
        return "The agent has ended: there is nobody to do it."
    return _now(view)


def _recorder(view: View) -> str:
    if view.recorder is False and not _now(view):
        if view.state.over:
            return "The session is over and its recorder has ended: nobody would act on it."
        return "The recorder is gone, so nobody would act on it. R restarts it."
    return _agent(view)


def _recorder_only(view: View) -> str:
    if view.recorder is False and not _now(view):
        if view.state.over:
            return "The session is over and its recorder has ended: nobody would act on it."
        return "The recorder is gone, so nobody would act on it. R restarts it."
    return _now(view)


def _ask(view: View) -> str:
    if view.state.pending_ask is None and not _now(view):
        return "The agent waits for nothing: there is nothing to answer."
    return _agent(view)


def _gone(view: View) -> str:
    if view.recorder is not False:
        return "The recorder is alive; there is nothing to restart."
    return _now(view)


def _tags(view: View) -> str:
    tagged = view.state.tagged
    if tagged is None or not tagged.tags:
        return "The diff guard has tagged nothing in this diff."
    return ""


def _runs(view: View) -> str:
    return "" if view.state.runs else "No run has been started yet."


def _both(
    id: str, keys: tuple[str, ...], title: str, help: str, group: str, **more: object
) -> Action:
    return Action(id, keys, title, help, group, replay=True, **more)  # type: ignore[arg-type]


GROUPS = ("answer", "agent", "record", "look", "replay", "cockpit")
GROUP_TITLES = {
    "answer": "Answer the agent",
    "agent": "Direct the agent",
    "record": "Put on record",
    "look": "Look",
    "replay": "Move in time",
    "cockpit": "The cockpit itself",
}

ACTIONS: tuple[Action, ...] = (
    Action("approve", ("a",), "approve",
           "Allow what the agent asks for. Acts only on an ask that has been on the screen for "
           "a second.", "answer", needs=_ask, first=True),
    Action("deny", ("d",), "deny",
           "Refuse what the agent asks for, with a reason that it is told.",
           "answer", needs=_ask, first=True),
    Action("edit", ("e",), "edit",
           "Change the input of what the agent asks for, then allow that; or answer a question "
           "in words.", "answer", needs=_ask, first=True),
    Action("message", ("m",), "message",
           "Write to the agent. It is delivered at its next turn.", "agent",
           needs=_recorder, first=True),
    Action("interrupt", ("x",), "interrupt",
           "Stop what the agent is doing now, and the run it started.", "agent",
           needs=_recorder, first=True),
    Action("pause", ("p",), "pause/resume",
           "The agent takes no further step, and your clock stops, until you resume. After an "
           "interrupt: let it go on.", "agent",
           needs=_recorder, first=True),
    Action("verify", ("v",), "verify now",
           "Measure the present tree against the reference, now.", "agent",
           needs=_recorder_only, first=True),
    Action("stop", ("s",), "stop session",
           "End the agent and the recorder, after asking you.", "agent",
           needs=_recorder_only, first=True),
    Action("restart", ("R",), "restart recorder",
           "Start the recorder again after it died. What it had open is marked as cut off.",
           "agent", needs=_gone, first=True),
    Action("intervene", ("i",), "intervene",
           "Record an intervention: time, tree, run and level are those of this key press; the "
           "words come after.", "record", needs=_now, first=True),
    Action("void", ("u",), "void/restore",
           "Take the last intervention out of the count, or back in. Both stay on record.",
           "record", needs=_now, first=True),
    Action("waive", ("w",), "waive check",
           "Accept a check that failed or could not run, with a reason. It stays on record as "
           "waived, never as passed, and holds for this code, command, criteria and chip count.",
           "record", needs=_now, first=True),
    Action("mark", ("k",), "mark",
           "Name this moment on the timeline.", "record", needs=_now, first=True),
    _both("pane_diff", ("1",), "diff", "Go to the diff.", "look"),
    _both("pane_agent", ("2",), "agent", "Go to the agent's transcript.", "look"),
    _both("pane_run", ("3",), "run", "Go to the run and its log.", "look"),
    _both("pane_levels", ("4",), "levels", "Go to the levels, checks and findings.", "look"),
    _both("pane_timeline", ("5",), "timeline", "Go to the timeline.", "look"),
    _both("zoom", ("z",), "zoom pane",
          "Give the pane in focus the whole screen, or give it back.", "look", first=True),
    _both("runs", ("r",), "choose run", "Show the log and plot of another run.", "look",
          needs=_runs, first=True),
    _both("basis", ("b",), "diff basis",
          "Show the diff since the baseline, or only that of the last step.", "look", first=True),
    _both("tag", ("exclamation_mark",), "next guard tag",
          "Go to the next change in the diff that the guard has tagged: one that may change what is "
          "trained, measured or believed.", "look", needs=_tags, first=True),
    _both("unfold", ("t",), "fold/unfold tools", "Show the results of all tool calls, or one "
          "line each.", "look", first=True),
    _both("now", ("escape",), "back to now",
          "Leave the earlier moment that is looked at, or the zoom.", "look"),
    _both("next", ("n",), "next", "Go to the next attempt, intervention, level change ... (j "
          "chooses which).", "replay", first=True),
    _both("previous", ("N",), "previous", "Go to the one before.", "replay", first=True),
    _both("jump_kind", ("j",), "jump to …",
          "Choose what n and N go to: attempts, interventions, levels, "
          "findings, claims, refuted claims, all.", "replay",
          first=True),
    Action("play", ("space",), "play/pause", "Let the time of the replay run, or hold it.",
           "replay", live=False, replay=True, first=True),
    Action("slower", ("left_square_bracket",), "slower", "Half the speed, down to 0.5x.",
           "replay", live=False, replay=True, first=True),
    Action("faster", ("right_square_bracket",), "faster", "Twice the speed, up to 64x.",
           "replay", live=False, replay=True, first=True),
    _both("step_back", ("comma",), "one event back", "One event back.", "replay", first=True),
    _both("step_on", ("full_stop",), "one event on", "One event on.", "replay", first=True),
    _both("start", ("home",), "start", "On the timeline: go to the first event.", "replay",
          first=True),
    _both("end", ("end",), "end", "On the timeline: go to the last event, or to now.", "replay",
          first=True),
    _both("help", ("question_mark",), "help", "Show all keys.", "cockpit", first=True),
    _both("palette", ("ctrl+p",), "palette", "Find an action by its name.", "cockpit"),
    _both("theme", ("T",), "dark/light", "Change between the dark and the light theme.",
          "cockpit", first=True),
    _both("detach", ("q",), "detach",
          "Leave the cockpit. A live session goes on without it; `pilotage attach` comes back.",
          "cockpit", first=True),
)  # fmt: skip

BY_ID = {action.id: action for action in ACTIONS}


def footer_ids(view: View) -> list[str]:
    """The actions the footer shows, the most pressing first."""
    if view.replay:
        return ["play", "slower", "faster", "next", "previous", "jump_kind", "step_back",
                "step_on", "runs", "zoom", "basis", "detach"]  # fmt: skip
    ids: list[str] = []
    if view.past:
        ids += ["now", "next", "previous", "jump_kind"]
    elif view.status.word == "RECORDER GONE":
        ids += ["restart"]
    elif view.state.pending_ask is not None:
        ids += ["approve", "deny", "edit"]
    elif view.state.interrupted:
        ids += ["message", "pause"]
    ids += ["intervene", "message", "pause", "interrupt", "verify", "runs", "zoom", "basis",
            "mark", "stop", "detach"]  # fmt: skip
    return [i for i in dict.fromkeys(ids) if not BY_ID[i].blocked(view)]
