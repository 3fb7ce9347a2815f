"""Linked panes: a moment, a check, a finding or a tool call moves the others to it."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual import work

from core.errors import PilotageError
from core.levels import CheckStatus
from core.state import SessionState
from core.state_parts import Moment
from tui.feed import LiveFeed
from tui.panes.agent import answer, as_json, entry_at
from tui.panes.check_detail import check_detail
from tui.panes.levels import LevelPane, finding_detail
from tui.panes.rows import RowList
from tui.past import Past
from tui.replay_feed import ReplayFeed
from tui.screens.base import CockpitBase
from tui.screens.dialogs import Detail
from tui.theme import palette
from tui.wording import block, clock, one_line, tool_wish


class Linking(CockpitBase):
    """Moving in time, and the details behind rows."""

    _history: Past | None = None

    # --- going to a moment -------------------------------------------------------------------

    def whole(self) -> SessionState:
        """The state with all moments there are: in a replay, those still to come too."""
        if isinstance(self.feed, ReplayFeed):
            return self.feed.whole or self.feed.state
        return self.feed.state

    def go_to(self, seq: int, run_id: str = "") -> None:
        """All panes to the moment of event ``seq``, and the run pane to ``run_id``, if given."""
        self.choice.run_id = run_id
        if isinstance(self.feed, ReplayFeed):
            self.feed.seek(seq)
            self.feed.pump()
            self.draw()
        elif seq >= self.feed.state.seq:
            self.return_to_now()
        else:
            self.look_back(seq)

    @work(exclusive=True, group="past")
    async def look_back(self, seq: int) -> None:
        """Live: show the state as it was after event ``seq``."""
        assert isinstance(self.feed, LiveFeed)
        if self._history is None:
            self._history = Past(self.feed.path)
        try:
            state = await asyncio.to_thread(self._history.state_at, seq)
        except PilotageError as err:
            self.say(str(err), bad=True)
            return
        self.past, self.choice.past_seq = state, seq
        self.draw()

    def return_to_now(self) -> bool:
        """Live: back to the present. Whether something else was shown."""
        was = self.choice.past_seq is not None
        self.past, self.choice.past_seq = None, None
        self.choice.run_id = ""
        self.draw()
        return was

    @property
    def seq(self) -> int:
        """The position that is looked at."""
        return self.choice.past_seq or self.feed.state.seq

    def jump(self, direction: int) -> Moment | None:
        """The next moment of the chosen kind, forwards or backwards; null: there is none."""
        from sessions.replay import GROUPS

        kinds = GROUPS[self.jump_kind]
        moments = [m for m in self.whole().moments if m.kind in kinds]
        if direction > 0:
            found = next((m for m in moments if m.seq > self.seq), None)
        else:
            found = next((m for m in reversed(moments) if m.seq < self.seq), None)
        if found is not None:
            self.go_to(found.seq, self._run_of(found))
        return found

    def _run_of(self, moment: Moment) -> str:
        state = self.whole()
        if moment.ref in state.runs:
            return moment.ref
        finding = state.findings.get(moment.ref)
        return finding.run_id if finding else ""

    def go_to_moment(self, moment: Moment) -> None:
        """All panes to a moment of the timeline."""
        self.go_to(moment.seq, self._run_of(moment))

    # --- rows --------------------------------------------------------------------------------

    def go_to_row(self, rows: str, key: str) -> None:
        """All panes to the moment of a row."""
        seq, run_id = self._moment_of(rows, key)
        if seq is None:
            self.say("Nothing was measured there yet, so there is no moment to go to.")
            return
        self.go_to(seq, run_id)

    def _moment_of(self, rows: str, key: str) -> tuple[int | None, str]:
        state = self.view().state
        if rows == "agent-rows":
            entry = entry_at(state, key)
            return (entry.seq, entry.run_id) if entry else (None, "")
        kind, _, ref = key.partition(":")
        if kind == "finding" and (finding := state.findings.get(ref)):
            return finding.seq, finding.run_id
        if kind == "intervention" and (item := state.interventions.get(ref)):
            return item.seq, item.recorded.at_run
        if kind == "check":
            for level in self.view().ladder.levels:
                for status in level.checks:
                    if status.check.id == ref and status.result is not None:
                        runs = status.result.body.runs
                        return status.result.seq, runs[-1] if runs else ""
        if kind == "level":
            results = [
                (s.result.seq, s.result.body.runs)
                for level in self.view().ladder.levels
                if str(level.level) == ref
                for s in level.checks
                if s.result is not None
            ]
            if results:
                seq, runs = max(results, key=lambda r: r[0])
                return seq, runs[-1] if runs else ""
        return None, ""

    def show_detail(self, rows: str, key: str) -> None:
        """Enter on a row: fold a level in or out, or show what is behind the row."""
        if rows == "agent-rows":
            self._entry_detail(key)
            return
        kind, _, ref = key.partition(":")
        colours, state = palette(self.app), self.view().state
        if kind in ("level", "group"):
            self.query_one(LevelPane).toggle(ref)
            self.draw()
        elif kind == "finding" and (finding := state.findings.get(ref)):
            text = finding_detail(finding, state, colours)
            self._detail(f"finding {finding.category}", text, rows, key)
        elif kind == "check":
            for level in self.view().ladder.levels:
                for status in level.checks:
                    if status.check.id == ref:
                        text = check_detail(status, state, colours)
                        self._detail(f"{ref} {status.check.title}", text, rows, key)

    def chosen_check(self) -> CheckStatus | None:
        """The check under the cursor of the level pane."""
        kind, _, ref = self.query_one("#level-rows", RowList).cursor.partition(":")
        checks = (s for level in self.view().ladder.levels for s in level.checks)
        return next((s for s in checks if kind == "check" and s.check.id == ref), None)

    def _entry_detail(self, key: str) -> None:
        state, colours = self.view().state, palette(self.app)
        entry = entry_at(state, key)
        if entry is None:
            return
        text = Text(clock(entry.ts_us) + "\n", colours.muted)
        if entry.tool:
            text.append(tool_wish(entry.tool, entry.input) + "\n\n", colours.strong)
            text.append("input\n", colours.strong)
            for name, value in entry.input.items():
                shown = value if isinstance(value, str) else as_json({name: value})
                text.append(f"{one_line(str(name), 40)}: ", colours.muted)
                text.append(("\n" if "\n" in shown else "") + block(shown) + "\n", colours.plain)
        if entry.text:
            text.append("\n" + block(entry.text) + "\n", colours.plain)
        if ask := state.asks.get(entry.ref):
            if ask.body.reason:
                text.append("\nwhy: " + block(ask.body.reason) + "\n", colours.plain)
            ended = "not answered yet" if ask.pending else answer(ask)
            text.append("\n" + ended + "\n", colours.muted)
        if entry.kind == "called":
            ok = {None: "no result yet", True: "✓ result", False: "✗ failed"}[entry.ok]
            text.append(f"\n{ok}\n", colours.strong)
            text.append(block(entry.output or ""), colours.plain)
        self._detail(f"agent · {entry.kind}", text, "agent-rows", key)

    @work(group="detail", exclusive=True)
    async def _detail(self, title: str, text: Text, rows: str, key: str) -> None:
        if await self.app.push_screen_wait(Detail(title, text)) == "go":
            self.go_to_row(rows, key)
