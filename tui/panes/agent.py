"""The agent pane: what was said, called, asked, claimed, and what the operator sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text
from textual.app import ComposeResult

from core.state import SessionState
from core.state_parts import Ask, Entry, Message
from tui.panes.pane import Pane
from tui.panes.rows import Row, RowList
from tui.theme import Palette, palette
from tui.view import View
from tui.wording import block, count, one_line, span, tool_wish

FOLDED_LINES = 200
"""Lines of a tool's output shown when unfolded; the detail dialog (enter) has all of them."""


class AgentPane(Pane):
    """The conversation. Tool results are folded; ``t`` unfolds all, enter shows one in full."""

    def __init__(self) -> None:
        super().__init__("agent")
        self._drawn: tuple[object, ...] = ()
        self._rows: dict[tuple[object, ...], Row] = {}
        self.unfolded = False

    def compose(self) -> ComposeResult:
        """The list that is drawn into."""
        yield RowList(follow=True, id="agent-rows")

    def draw(self, view: View) -> None:
        """Draw the transcript of ``view``, if it has changed."""
        # A run's output changes the state ten times a second, but nothing in here.
        state = view.state
        ask = state.pending_ask
        waiting = "" if ask is None or not view.acting else _waited(ask, view.now_us)
        stamp = (
            id(state),
            len(state.transcript),
            state.transcript[-1].seq if state.transcript else 0,
            sum(1 for e in state.transcript[-50:] if e.output is not None),
            sum(1 for m in state.messages.values() if m.delivered_ts_us),
            sum(1 for a in state.asks.values() if not a.pending),
            waiting,
            self.unfolded,
            view.acting,
            self.app.theme,
        )
        if stamp == self._drawn:
            return
        self._drawn = stamp
        rows = list(self._build(view, palette(self.app)))
        self.query_one(RowList).set_rows(rows)
        self.retitle("agent", _subtitle(state))

    def _build(self, view: View, colours: Palette) -> Iterator[Row]:
        state = view.state
        if not state.transcript:
            yield Row(Text("Nothing has been said yet.", colours.muted))
            return
        kept: dict[tuple[object, ...], Row] = {}
        for entry in state.transcript:
            ask = state.asks.get(entry.ref) if entry.kind == "asked" else None
            message = state.messages.get(entry.ref) if entry.kind == "messaged" else None
            key = (
                id(state),
                entry.seq,
                entry.output is None,
                ask and ask.pending and (view.acting, _waited(ask, view.now_us)),
                message and message.delivered_ts_us,
                self.unfolded,
                self.app.theme,
            )
            row = self._rows.get(key)
            if row is None:
                row = _row(entry, ask, message, view, colours, self.unfolded)
            kept[key] = row
            yield row
        self._rows = kept


def _waited(ask: Ask, now_us: int) -> str:
    return span((now_us - ask.ts_us) / 1e6)


def _subtitle(state: SessionState) -> str:
    queued = sum(1 for m in state.messages.values() if m.delivered_ts_us is None)
    return f"{count(queued, 'message')} queued" if queued else ""


def _row(
    entry: Entry,
    ask: Ask | None,
    message: Message | None,
    view: View,
    colours: Palette,
    unfolded: bool,
) -> Row:
    key = str(entry.seq)
    if entry.kind == "called":
        return _called(entry, colours, unfolded)
    if entry.kind == "asked" and ask is not None:
        return _asked(entry, ask, view, colours)
    if entry.kind == "messaged":
        who = one_line(message.author, 16) if message is not None else ""
        lead, style = f"{who or 'operator'} ", colours.accent
        text = Text().append(block(entry.text), colours.plain)
        if message is not None:
            sent = message.delivered_ts_us is not None
            text.append("  delivered" if sent else "  queued", colours.muted)
        return Row(text, key, Text(lead, style))
    if entry.kind == "claimed":
        text = Text().append(f"claims {entry.ref}", colours.accent)
        text.append(f"  {block(entry.text)}" if entry.text else "", colours.plain)
        return Row(text, key, Text("! ", colours.accent))
    sign, style, words = {
        "said": ("▪ ", colours.info, ""),
        "started": ("● ", colours.ok, ""),
        "finished": ("■ ", colours.ok, "finished"),
        "failed": ("✗ ", colours.bad, "failed"),
        "interrupted": ("x ", colours.warn, "interrupted by the operator"),
        "paused": ("‖ ", colours.warn, "paused by the operator"),
        "resumed": ("▶ ", colours.ok, "resumed by the operator"),
        "requested": ("! ", colours.accent, "the operator asked for"),
        "recovered": ("! ", colours.bad, "recorder restarted"),
    }.get(entry.kind, ("· ", colours.muted, entry.kind))
    text = Text().append(words, style)
    if entry.text:
        text.append(": " if words and entry.kind != "requested" else " " * bool(words), style)
        text.append(block(entry.text), colours.plain)
    return Row(text, key, Text(sign, style))


def _called(entry: Entry, colours: Palette, unfolded: bool) -> Row:
    text = Text().append(tool_wish(entry.tool, entry.input), colours.muted)
    if entry.output is None:
        text.append("  …", colours.info)
    else:
        took = ((entry.ended_ts_us or entry.ts_us) - entry.ts_us) / 1e6
        text.append("  ✓" if entry.ok else "  ✗ failed", colours.ok if entry.ok else colours.bad)
        text.append(f" {span(took)}" if took >= 1 else "", colours.muted)
        lines = entry.output.rstrip("\n").split("\n") if entry.output.strip() else []
        if unfolded and lines:
            for line in lines[:FOLDED_LINES]:
                text.append("\n" + block(line), colours.plain)
            if len(lines) > FOLDED_LINES:
                text.append(f"\n… {count(len(lines) - FOLDED_LINES, 'more line')}", colours.muted)
        elif len(lines) == 1 and len(lines[0]) <= 60:
            text.append("  " + one_line(lines[0], 60), colours.muted)
        elif lines:
            # Folded: the first line of a failure is what one wants to know.
            first = "" if entry.ok else "  " + one_line(lines[-1], 80)
            text.append(f"{first}  +{count(len(lines), 'line')}", colours.muted)
    return Row(text, str(entry.seq), Text("→ ", colours.muted))


def _asked(entry: Entry, ask: Ask, view: View, colours: Palette) -> Row:
    pending = ask.pending
    text = Text()
    if ask.body.tool:
        wish = tool_wish(ask.body.tool, ask.body.input)
        text.append(f"wants to {wish}", colours.strong)
        subject = wish.partition(" ")[2]
        # "May I run: rm x" adds nothing to "wants to run rm x"; other words of its own do.
        if ask.body.question and not (subject and ask.body.question.endswith(subject)):
            text.append("\n" + block(ask.body.question), colours.plain)
    else:
        text.append(block(ask.body.question), colours.strong)
    if ask.body.reason:
        text.append("\n" + block(ask.body.reason), colours.muted)
    if pending and view.acting:
        text.append(f"\nwaits {_waited(ask, view.now_us)}   ", colours.warn)
        text.append("a", colours.strong)
        text.append(" approve   " if ask.body.tool else " yes   ")
        text.append("d", colours.strong)
        text.append(" deny   " if ask.body.tool else " no   ")
        text.append("e", colours.strong)
        text.append(" edit" if ask.body.tool else " answer in words")
    elif pending:
        text.append("\nnot answered yet", colours.warn)
    else:
        text.append("\n" + answer(ask), colours.muted)
    sign = colours.warn if pending else colours.muted
    return Row(text, str(entry.seq), Text("? ", sign))


def answer(ask: Ask) -> str:
    """How an ask ended, in words."""
    if ask.decision is None:
        return "closed without an answer" + (f" ({ask.closed})" if ask.closed else "")
    took = span(((ask.decided_ts_us or ask.ts_us) - ask.ts_us) / 1e6)
    word = {"allow": "✓ approved", "deny": "✗ denied", "edit": "✓ edited"}.get(
        ask.decision.decision, one_line(ask.decision.decision, 20)
    )
    who = f" by {one_line(ask.decision.author, 24)}" if ask.decision.author else ""
    reason = f": {one_line(ask.decision.reason, 200)}" if ask.decision.reason else ""
    changed = ""
    if ask.decision.decision == "edit" and ask.decision.input is not None:
        changed = f": {tool_wish(ask.body.tool, ask.decision.input)}" if ask.body.tool else ""
    return f"{word}{who} after {took}{changed}{reason}"


def as_json(value: dict[str, Any]) -> str:
    """A tool's input as indented JSON, one key a line, in the order it came."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def entry_at(state: SessionState, key: str) -> Entry | None:
    """The entry a row's key names."""
    return next((e for e in state.transcript if str(e.seq) == key), None)
