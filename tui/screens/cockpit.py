"""The cockpit: all panes over one state, live or replayed, at one redraw rate."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.css.query import NoMatches
from textual.widget import Widget

from core.errors import PilotageError
from core.run_lines import LogLine
from core.state import SessionState
from tui.actions import ACTIONS, BY_ID
from tui.feed import LiveFeed
from tui.panes.agent import AgentPane
from tui.panes.diff import DiffPane
from tui.panes.footer import Footer
from tui.panes.header import Header
from tui.panes.levels import LevelPane
from tui.panes.rows import RowList
from tui.panes.run import RunPane
from tui.panes.tabs import PANES, TabLine
from tui.panes.timeline import TimelinePane
from tui.replay_feed import ReplayFeed
from tui.screens.operating import Operating
from tui.view import View
from tui.widgets.diff_view import DiffView
from tui.widgets.log_view import LogView
from tui.widgets.search_view import SearchView
from tui.widgets.timeline import Timeline
from tui.wording import clock

REDRAW_S = 0.1
"""The one redraw rate of the app: 10 Hz."""

DRAWN: tuple[type[Any], ...] = (
    Header,
    TabLine,
    DiffPane,
    AgentPane,
    RunPane,
    LevelPane,
    TimelinePane,
    Footer,
)


def _bindings() -> list[BindingType]:
    return [
        Binding(
            ",".join(action.keys),
            f"do('{action.id}')",
            action.title,
            show=False,
            priority=action.first,
        )
        for action in ACTIONS
        if action.id != "palette"  # the app's own key
    ]


class CockpitScreen(Operating):
    """One session. The state belongs to the feed; this screen holds what is being looked at."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *_bindings(),
        Binding("minus", "do('slower', True)", show=False),
        Binding("plus,equals_sign", "do('faster', True)", show=False),
    ]

    _told_error = ""
    _attach_begun = False
    _memo: dict[object, Any]
    _last_view: View | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._memo = {}

    # --- the screen --------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Header, tabs (shown where only one pane fits), the panes, timeline, footer."""
        yield Header()
        yield TabLine()
        with Container(id="body"):
            with Vertical(id="left"):
                yield DiffPane()
                yield AgentPane()
            with Container(id="right"):
                yield RunPane()
                yield LevelPane()
        yield TimelinePane()
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read, and to redraw at the app's one rate."""
        self.feed.start()
        if isinstance(self.feed, LiveFeed) and self.pen is not None:
            self.pen.on_written = self.feed.poke
        self.focus_pane("agent")  # what is shown where only one pane fits
        if self.feed.replay:
            self.focus_pane("timeline")
        self.set_interval(REDRAW_S, self._redraw)
        self._redraw()

    def on_unmount(self) -> None:
        """End the feed's thread."""
        self.feed.stop()

    def _attach_if_it_goes_on(self) -> None:
        """Once the first state is read. To look at a session that is over must not change it."""
        if self._attach_begun or self.pen is None or self.feed.loading() or self.feed.error:
            return
        state = self.feed.state
        if state.over or (state.agent_end is not None and self.feed.recorder() is False):
            return
        self._attach_begun = True
        self.attach()

    @work(group="presence")
    async def attach(self) -> None:
        """Put on record that this console watches."""
        assert self.pen is not None
        try:
            await self.pen.attach(f"{self.app.size.width}x{self.app.size.height}")
        except PilotageError as err:
            self.read_only = f"This console can only read: {err}"
            self.say(self.read_only, bad=True)

    # --- one redraw --------------------------------------------------------------------------

    def view(self) -> View:
        """What is to be drawn now."""
        past = self.past if self.choice.past_seq is not None else None
        state = past or self.feed.state
        now = self.feed.now_us()
        return View(
            state=state,
            now_us=state.last_ts_us if past is not None else now,
            session_id=self.session_id,
            replay=self.feed.replay,
            recorder=self.feed.recorder(),
            choice=self.choice,
            read_only=self.read_only,
            loading=self.feed.loading(),
            badge=self._badge(state),
            whole=self.whole(),
            pane=self.active,
            playing=isinstance(self.feed, ReplayFeed) and self.feed.playing,
            live_us=now,
            memo=self._memo,
        )

    def _badge(self, state: SessionState) -> str:
        if isinstance(self.feed, ReplayFeed):
            return self.feed.badge()
        if self.choice.past_seq is not None:
            return f"AT {clock(state.last_ts_us)} · esc returns to now"
        return ""

    def _redraw(self) -> None:
        self.feed.pump()
        self._attach_if_it_goes_on()
        if self.feed.error and self.feed.error != self._told_error:
            self._told_error = self.feed.error
            self.say(self.feed.error, bad=True)
        self.draw()

    def draw(self) -> None:
        """Draw every pane that has changed."""
        view = self._last_view = self.view()
        self.note_ask(view)
        try:
            for kind in DRAWN:
                self.query_one(kind).draw(view)
        except NoMatches:  # the screen is being set up or taken down
            return

    # --- actions -----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave a key to the pane in focus where that needs it more."""
        focused = self.focused
        if action != "do" or focused is None:
            return super().check_action(action, parameters)
        if focused.check_consume_key("a", "a"):
            return False  # a search is being typed
        id = str(parameters[0])
        if id in ("start", "end"):
            return isinstance(focused, Timeline)  # lists have a first and last row of their own
        if isinstance(focused, SearchView):
            if id in ("next", "previous"):
                return not focused.search_text  # n and N belong to the search
            if isinstance(focused, DiffView) and id in ("slower", "faster"):
                return (
                    len(parameters) > 1
                )  # [ and ] go from hunk to hunk; - and + still change the speed
            if isinstance(focused, LogView) and id == "edit":
                return self._asked()  # e is the first error, unless there is something to edit
        return True

    def _asked(self) -> bool:
        return self._last_view is not None and self._last_view.state.pending_ask is not None

    async def action_do(self, id: str, other_key: bool = False) -> None:
        """Do an action of the registry, or say why not.

        ``other_key`` marks a second key that no pane has a use of its own for.
        """
        if reason := BY_ID[id].blocked(self.view()):
            self.say(reason)
            return
        done = getattr(self, f"act_{id}")()
        if inspect.iscoroutine(done):
            await done
        self.draw()

    def dismiss_cockpit(self) -> None:
        """Leave: to the list of sessions, or out."""
        self.app.call_later(self.app.run_action, "leave")

    # --- panes -------------------------------------------------------------------------------

    def focus_pane(self, name: str) -> None:
        """Give a pane the focus; where only one pane fits, also the screen."""
        self._activate(name)
        self.set_focus(self.query_one(PANES[name].focus))

    def on_descendant_focus(self) -> None:
        """Follow the focus: Tab and the mouse move between panes too."""
        name = self._pane_of(self.focused)
        if name and name != self.active:
            self._activate(name)
            self.draw()

    def _pane_of(self, widget: Widget | None) -> str:
        node: Any = widget
        while node is not None and node is not self:
            if node.id in PANES:
                return str(node.id)
            node = node.parent
        return ""

    def _activate(self, name: str) -> None:
        self.active = name
        for other in PANES:
            pane = self.query_one(f"#{other}")
            pane.set_class(other == name, "active")
            if name != "timeline":  # the strip is always in sight; the pane above stays
                pane.set_class(other == name, "shown")
        if name != "timeline":
            left = name in ("diff", "agent")
            self.query_one("#left").set_class(left, "holds")
            self.query_one("#right").set_class(not left, "holds")

    def pane_help(self) -> str:
        """The help of the widget in focus, if it has any."""
        return str(getattr(self.focused, "HELP", None) or "")

    # --- messages of the panes ---------------------------------------------------------------

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Enter on a row: its detail."""
        event.stop()
        self.show_detail(event.rows.id or "", event.key)

    def on_row_list_go_to(self, event: RowList.GoTo) -> None:
        """g on a row: all panes to its moment."""
        event.stop()
        self.go_to_row(event.rows.id or "", event.key)

    def on_log_view_line_chosen(self, event: LogView.LineChosen) -> None:
        """Enter on a line of output: all panes to its moment."""
        run = self.view().run
        if run is not None and isinstance(event.line, LogLine):
            self.go_to(event.line.seq, run.run_id)

    def on_diff_view_hunk_chosen(self, event: DiffView.HunkChosen) -> None:
        """Enter on a hunk: all panes to the snapshot that is shown."""
        snapshots = self.view().state.snapshots
        if snapshots:
            self.go_to(snapshots[-1].seq)

    def on_timeline_moment_chosen(self, event: Timeline.MomentChosen) -> None:
        """Enter or a click on a moment."""
        self._moment(event.seq)

    def on_timeline_moment_reached(self, event: Timeline.MomentReached) -> None:
        """The cursor of the strip has come to a moment, or left them."""
        if event.seq is not None:
            self._moment(event.seq)
        elif not self.feed.replay:
            self.return_to_now()

    def _moment(self, seq: int) -> None:
        moment = next((m for m in self.whole().moments if m.seq == seq), None)
        if moment is not None:
            self.go_to_moment(moment)
