"""The words of an intervention, whose time, tree, run and level were stamped at the key press."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input, Static

from core.state import SessionState
from core.state_parts import level_name
from tui.screens.dialogs import CANCEL, Dialog
from tui.theme import palette
from tui.wording import clock

KINDS = ("guidance", "code", "environment", "permission", "restart", "other")
TRIGGERS = ("asked", "failed run", "finding", "refuted", "stuck", "review")
CATEGORIES = ("C1", "C2", "C3", "C4", "C5", "C6", "none")
NECESSITIES = ("required", "helpful", "not needed")
YES_NO = ("no", "yes")

#: What each choice means, shown under the form for the one in focus.
MEANINGS = {
    "guidance": "told the agent what to do or what not to do",
    "code": "changed the code yourself",
    "environment": "changed packages, variables, machine or data",
    "permission": "allowed, refused or changed something it asked for",
    "restart": "stopped, restarted or rolled back",
    "asked": "the agent asked",
    "failed run": "a run failed",
    "finding": "a detector saw something",
    "refuted": "the agent claimed what the measurement refutes",
    "stuck": "the agent went in circles, or stood still",
    "review": "you saw it yourself",
    "C1": "environment and dependencies",
    "C2": "CUDA and device assumptions",
    "C3": "library interactions",
    "C4": "lazy-tensor execution",
    "C5": "operators and numerics",
    "C6": "memory capacity",
    "none": "no failure category",
    "required": "without it the migration would not have gone on",
    "helpful": "it would have got there, later",
    "yes": "belongs to the subset that the study counts apart",
    "no": "does not belong to the subset that the study counts apart",
    "not needed": "seen afterwards, it changed nothing",
}


class Field(Static, can_focus=True):
    """One field with a few choices: left and right, or the first letter, choose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "previous", show=False),
        Binding("right,space", "move(1)", "next", show=False),
    ]

    class Changed(Message):
        """Another choice, or another field in focus."""

    def __init__(self, name: str, choices: Sequence[str], value: str = "") -> None:
        super().__init__(id=f"field-{name}", classes="field", markup=False)
        self.field, self.choices, self.value = name, choices, value

    def on_mount(self) -> None:
        """Draw the choices."""
        self._draw()

    def _draw(self) -> None:
        colours = palette(self.app)
        text = Text(f"{self.field:<10}", colours.strong if self.has_focus else colours.muted)
        text.append("▸ " if self.has_focus else "  ", colours.accent)
        for choice in self.choices:
            chosen = choice == self.value
            style = colours.key if chosen else colours.plain
            text.append(f"[{choice}]" if chosen else f" {choice} ", style)
        self.update(text)

    def action_move(self, step: int) -> None:
        """Choose the next or previous one; before the first is *not said*."""
        order = ["", *self.choices]
        self.value = order[(order.index(self.value) + step) % len(order)]
        self._changed()

    def on_key(self, event: Any) -> None:
        """A first letter (or the digit of a category) chooses; again: the next such choice."""
        char = event.character or ""
        if not char.isalnum():
            return
        fits = [c for c in self.choices if c[0].lower() == char.lower() or c[-1] == char]
        if fits:
            event.stop()
            at = fits.index(self.value) + 1 if self.value in fits else 0
            self.value = fits[at % len(fits)]
            self._changed()

    def _changed(self) -> None:
        self._draw()
        self.post_message(self.Changed())

    def watch_has_focus(self, focus: bool) -> None:
        """The field in focus is marked, and its choice explained."""
        super().watch_has_focus(focus)
        if focus:
            self._changed()
        else:
            self._draw()


def guesses(state: SessionState) -> dict[str, str]:
    """What the form proposes, from what is known at the moment; nothing of it is saved unseen."""
    found = {"kind": "guidance", "trigger": "review", "category": "", "necessity": ""}
    last = next(reversed([r for r in state.attempts if not r.running]), None)
    unresolved = [f for f in state.findings.values() if f.open]
    if state.pending_ask is not None:
        found |= {"kind": "permission", "trigger": "asked"}
    elif unresolved:
        found |= {"trigger": "finding"}
    elif last is not None and not last.ok_exit:
        found |= {"trigger": "failed run"}
    if unresolved and unresolved[-1].category in CATEGORIES:
        found["category"] = unresolved[-1].category
    return found


class InterventionForm(Dialog):
    """The answer is the changes to save, or None where the operator left without words."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CANCEL,
        Binding("ctrl+s", "save", "save", show=False, priority=True),
        Binding("down", "app.focus_next", "next field", show=False),
        Binding("up", "app.focus_previous", "previous field", show=False),
    ]

    def __init__(self, stamp: str, proposed: dict[str, str]) -> None:
        super().__init__(
            "intervention", "ctrl+s  save     ↑ ↓ ← →  choose     esc  keep the stamp, no words",
            wide=True,
        )  # fmt: skip
        self._stamp, self._proposed = stamp, proposed

    def content(self) -> ComposeResult:
        """The stamp, and the fields."""
        yield Static(self._stamp, classes="said", markup=False)
        yield Input(placeholder="what you did, and why", id="text")
        yield Field("kind", KINDS, self._proposed["kind"])
        yield Field("trigger", TRIGGERS, self._proposed["trigger"])
        yield Field("category", CATEGORIES, self._proposed["category"])
        yield Field("necessity", NECESSITIES, self._proposed["necessity"])
        yield Field("subset", YES_NO, "no")
        yield Input(placeholder="minutes it took you (empty: as measured)", id="minutes")
        yield Static("", id="meaning", markup=False)
        yield Static("", id="problem", markup=False)

    def on_field_changed(self) -> None:
        """Say what the choice in focus means."""
        focused = self.focused
        meaning = MEANINGS.get(focused.value, "") if isinstance(focused, Field) else ""
        self.query_one("#meaning", Static).update(meaning)

    def on_input_submitted(self) -> None:
        """Enter in a line: save."""
        self.action_save()

    def action_save(self) -> None:
        """Answer with the fields, if the minutes are a number."""
        minutes = self.query_one("#minutes", Input).value.strip().replace(",", ".")
        try:
            claimed = float(minutes) if minutes else None
        except ValueError:
            claimed = -1.0
        if claimed is not None and not 0 <= claimed < 100_000:
            problem = f"{minutes!r} is no number of minutes. Leave it empty if you don't know."
            self.query_one("#problem", Static).update(problem)
            self.query_one("#minutes", Input).focus()
            return
        changes: dict[str, Any] = {f.field: f.value for f in self.query(Field)}
        changes["category"] = "" if changes["category"] == "none" else changes["category"]
        changes["subset"] = changes["subset"] == "yes"
        changes["text"] = self.query_one("#text", Input).value.strip()
        changes["minutes_claimed"] = claimed
        self.dismiss(changes)


def stamp_text(ts_us: int, tree: str, run: str, level: int) -> str:
    """The stamp in words: what the key press caught."""
    where = f"tree {tree[:7]}" if tree else "before the first snapshot"
    what = f", {run}" if run else ", no run in progress"
    return f"Stamped {clock(ts_us)}: {where}{what}, measured {level_name(level)}. It is on record."
