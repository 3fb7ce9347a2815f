"""Acts that only change what is looked at: panes, runs, diff basis, time."""

from __future__ import annotations

from rich.text import Text
from textual import work

from core.state import SessionState
from core.state_parts import Run
from tui.panes.agent import AgentPane
from tui.panes.diff import DiffPane
from tui.panes.rows import Row
from tui.panes.run import ending, run_seconds
from tui.replay_feed import ReplayFeed
from tui.screens.dialogs import Choose
from tui.screens.help import Help, help_rows
from tui.screens.linking import Linking
from tui.theme import Palette, palette
from tui.widgets.timeline import Timeline
from tui.wording import clock, one_line, span

JUMP_KINDS = (
    "any",
    "attempt",
    "intervention",
    "level",
    "finding",
    "claim",
    "refuted",
    "ask",
    "marker",
)


class Looking(Linking):
    """Nothing here writes to the session."""

    # --- panes -------------------------------------------------------------------------------

    def act_pane_diff(self) -> None:
        """Go to the diff."""
        self.focus_pane("diff")

    def act_pane_agent(self) -> None:
        """Go to the transcript."""
        self.focus_pane("agent")

    def act_pane_run(self) -> None:
        """Go to the run."""
        self.focus_pane("run")

    def act_pane_levels(self) -> None:
        """Go to the levels."""
        self.focus_pane("levels")

    def act_pane_timeline(self) -> None:
        """Go to the timeline."""
        self.focus_pane("timeline")

    def act_zoom(self) -> None:
        """Give the pane in focus the whole screen, or give it back."""
        if self.active == "timeline":
            self.say("The timeline has all the width there is; zoom works on the other panes.")
            return
        self.toggle_class("-zoomed")

    def act_basis(self) -> None:
        """The diff since the baseline, or of the last step."""
        self.choice.step_diff = not self.choice.step_diff

    def act_tag(self) -> None:
        """The next change that the guard has tagged."""
        self.focus_pane("diff")
        tags = self.query_one(DiffPane).next_tag()
        if tags:
            self.say("\n".join(tag.note for tag in tags[:4]))
        else:
            self.say("The diff that is shown has no tag of the guard. b shows the other diff.")

    def act_unfold(self) -> None:
        """Tool results in the transcript: all, or a line each."""
        pane = self.query_one(AgentPane)
        pane.unfolded = not pane.unfolded

    @work(group="dialog")
    async def act_runs(self) -> None:
        """Choose the run of the run pane."""
        state, colours = self.view().state, palette(self.app)
        rows = [_run_row(r, state, colours, self.view().now_us) for r in state.runs.values()]
        rows.reverse()
        last = Row(Text("     always the run started last", colours.muted), "last")
        current = self.choice.run_id or "last"
        chosen = await self.app.push_screen_wait(Choose("runs", [last, *rows], current))
        if chosen is not None:
            self.choice.run_id = "" if chosen == "last" else chosen
            self.focus_pane("run")
            self.draw()

    def act_help(self) -> None:
        """All keys."""
        self.app.push_screen(Help(help_rows(self.view(), self.pane_help(), palette(self.app))))

    async def act_theme(self) -> None:
        """Dark or light."""
        await self.app.run_action("app.toggle_theme")

    # --- time --------------------------------------------------------------------------------

    def act_now(self) -> None:
        """Esc: out of an earlier moment, or out of the zoom."""
        if self.choice.past_seq is not None:
            self.query_one(Timeline).action_leave()
            self.return_to_now()
        elif self.choice.run_id:
            self.choice.run_id = ""
        else:
            self.remove_class("-zoomed")

    def act_next(self) -> None:
        """The next moment of the chosen kind."""
        self._jump(1)

    def act_previous(self) -> None:
        """The one before."""
        self._jump(-1)

    def _jump(self, direction: int) -> None:
        moment = self.jump(direction)
        if moment is None:
            where = "later" if direction > 0 else "earlier"
            what = {"any": "moment", "refuted": "refuted claim"}.get(self.jump_kind, self.jump_kind)
            self.say(f"There is no {where} {what}. j chooses what n and N go to.")
            return
        # Only what was chosen may carry the cursor; the strip shows where we are.
        self.query_one(Timeline).cursor_seq = moment.seq
        self.query_one(Timeline).refresh()

    @work(group="dialog")
    async def act_jump_kind(self) -> None:
        """Choose what n and N go to."""
        counts = dict.fromkeys(JUMP_KINDS, 0)
        for moment in self.whole().moments:
            counts["any"] += 1
            if moment.kind in counts:
                counts[moment.kind] += 1
        words = {
            "any": "every moment",
            "level": "level change",
            "refuted": "claim refuted",
            "marker": "mark",
        }
        rows = [Row(Text(f"{words.get(k, k):<16}{counts[k]:>5}"), k) for k in JUMP_KINDS]
        chosen = await self.app.push_screen_wait(Choose("n and N go to", rows, self.jump_kind))
        if chosen is not None:
            self.jump_kind = chosen

    def act_play(self) -> None:
        """Play or hold."""
        assert isinstance(self.feed, ReplayFeed)
        self.feed.toggle()

    def act_slower(self) -> None:
        """Half the speed."""
        assert isinstance(self.feed, ReplayFeed)
        self.feed.change_speed(-1)

    def act_faster(self) -> None:
        """Twice the speed."""
        assert isinstance(self.feed, ReplayFeed)
        self.feed.change_speed(1)

    def act_step_back(self) -> None:
        """One event back."""
        self._step(-1)

    def act_step_on(self) -> None:
        """One event on."""
        self._step(1)

    def _step(self, count: int) -> None:
        if isinstance(self.feed, ReplayFeed):
            self.feed.step(count)
            self.feed.pump()
        elif self.seq + count >= 1:
            self.go_to(self.seq + count)

    def act_start(self) -> None:
        """The first event."""
        if isinstance(self.feed, ReplayFeed):
            self.feed.edge(-1)
            self.feed.pump()
        else:
            self.go_to(1)

    def act_end(self) -> None:
        """The last event."""
        if isinstance(self.feed, ReplayFeed):
            self.feed.edge(1)
            self.feed.pump()
        else:
            self.return_to_now()


def _run_row(run: Run, state: SessionState, colours: Palette, now_us: int) -> Row:
    from core.attempts import outcome

    started = run.started
    what = started.purpose + (f" of {started.of}" if started.of else "")
    text = Text().append(f"{one_line(what, 20):<21}", colours.plain)
    text.append(f"{clock(run.ts_us)}  {span(run_seconds(run, now_us))}  ", colours.muted)
    how, good = ending(run)
    text.append(how, colours.ok if good else colours.bad)
    if not run.running and started.purpose == "attempt":
        result = outcome(state, run)
        style = {"passed": colours.ok, "loud": colours.bad, "silent": colours.bad}
        text.append(f"\n{result.kind}", style.get(result.kind, colours.warn))
        text.append(f"  {one_line(result.text, 200)}", colours.muted)
    text.append(f"\n{one_line(started.command, 160)}", colours.muted)
    return Row(text, run.run_id, Text().append(f"#{run.number:<4}", colours.strong))
