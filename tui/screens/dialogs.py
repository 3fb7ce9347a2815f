"""The small dialogs over the cockpit: one line, a choice, a long text, a yes or no."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from tui.panes.rows import Row, RowList
from tui.wording import one_line

CANCEL: list[BindingType] = [Binding("escape", "cancel", "cancel", show=False)]


class Dialog(ModalScreen[Any]):
    """A box with a title in its border and a line of keys below; Esc always leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = CANCEL

    def __init__(self, title: str, keys: str, *, wide: bool = False) -> None:
        super().__init__(classes="dialog")
        self._title, self._keys, self._wide = one_line(title, 80), keys, wide

    def compose(self) -> ComposeResult:
        """The box around what :meth:`content` gives."""
        with Vertical(classes="box wide" if self._wide else "box") as box:
            # A Text is never read as markup.
            box.border_title = Text(self._title)
            yield from self.content()
            yield Static(self._keys, classes="keys", markup=False)

    def content(self) -> ComposeResult:
        """The widgets of the dialog."""
        raise NotImplementedError

    def action_cancel(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)


class Prompt(Dialog):
    """Asks for one line of text. The answer is the line, or None where it was left."""

    def __init__(
        self, title: str, text: str = "", *, value: str = "", hint: str = "", empty_ok: bool = False
    ) -> None:
        super().__init__(title, "enter  send     esc  cancel")
        self._text, self._value, self._hint, self._empty_ok = text, value, hint, empty_ok

    def content(self) -> ComposeResult:
        """What it is about, and the line."""
        if self._text:
            yield Static(self._text, classes="said", markup=False)
        yield Input(self._value, placeholder=self._hint, id="line")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: answer with the line."""
        if event.value.strip() or self._empty_ok:
            self.dismiss(event.value.strip())


class Confirm(Dialog):
    """Asks for y; every other answer is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CANCEL,
        Binding("y", "yes", "yes", show=False),
        Binding("n", "cancel", "no", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title, "y  yes     n, esc  no")
        self._text = text

    def content(self) -> ComposeResult:
        """The question."""
        yield Static(self._text, classes="said", markup=False)

    def action_yes(self) -> None:
        """Answer yes."""
        self.dismiss(True)


class Detail(Dialog):
    """A long text to read. The answer is ``go`` where its moment was asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CANCEL,
        Binding("q,enter", "cancel", "close", show=False),
        Binding("g", "go", "go to this moment", show=False, priority=True),
    ]

    def __init__(self, title: str, text: Text | Sequence[Row], *, can_go: bool = True) -> None:
        keys = "↑ ↓  scroll     " + ("g  go to this moment     " if can_go else "") + "esc  close"
        super().__init__(title, keys, wide=True)
        self._content, self._can_go = text, can_go

    def content(self) -> ComposeResult:
        """The text, wrapped and scrollable."""
        yield RowList(id="detail")

    def on_mount(self) -> None:
        """Fill the list."""
        rows = self._content
        if isinstance(rows, Text):
            rows = [Row(line) for line in rows.split("\n", allow_blank=True)]
        self.query_one(RowList).set_rows(rows)

    def action_go(self) -> None:
        """Close, and move all panes to the moment."""
        if self._can_go:
            self.dismiss("go")


class Choose(Dialog):
    """A list to choose from. The answer is the key of the chosen row."""

    def __init__(self, title: str, rows: Sequence[Row], cursor: str = "") -> None:
        super().__init__(title, "↑ ↓  move     enter  choose     esc  cancel", wide=True)
        self._rows, self._cursor = rows, cursor

    def content(self) -> ComposeResult:
        """The rows."""
        yield RowList(id="choices")

    def on_mount(self) -> None:
        """Fill the list and put the cursor on the present choice."""
        choices = self.query_one(RowList)
        choices.set_rows(self._rows)
        choices.cursor = self._cursor or next((r.key for r in self._rows if r.key), "")

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Answer with the row."""
        event.stop()
        self.dismiss(event.key)


class EditInput(Dialog):
    """Edits the input of a tool call as JSON. The answer is the new input, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *CANCEL,
        Binding("ctrl+s", "save", "allow this", show=False, priority=True),
    ]

    def __init__(self, title: str, value: dict[str, Any]) -> None:
        super().__init__(title, "ctrl+s  allow it with this input     esc  cancel", wide=True)
        self._value = value

    def content(self) -> ComposeResult:
        """The editor, and a line for what is wrong with its text."""
        text = json.dumps(self._value, indent=2, ensure_ascii=True)
        yield TextArea(text, id="json", tab_behavior="focus", show_line_numbers=False)
        yield Static("", id="problem", markup=False)

    def action_save(self) -> None:
        """Answer with the text if it is a JSON object; else say what is wrong, and where."""
        text = self.query_one(TextArea).text
        try:
            value = json.loads(text)
        except ValueError as err:
            self.query_one("#problem", Static).update(f"That is no JSON: {err}.")
            return
        if not isinstance(value, dict):
            self.query_one("#problem", Static).update("The input has to be a JSON object: {…}.")
            return
        self.dismiss(value)
