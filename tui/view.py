"""What the panes draw at one redraw: a state, the moment, and what the operator has chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from core.state import SessionState
from core.state_parts import Run
from tui.status import Status, agent_status

if TYPE_CHECKING:
    from core.levels import Ladder
    from core.money import Costs


@dataclass
class Choice:
    """What the operator chose to look at. It lives in the screen; panes only ask for changes."""

    run_id: str = ""
    """The run of the run pane; empty: the one started last."""
    step_diff: bool = False
    """The diff since the snapshot before, instead of since the baseline."""
    past_seq: int | None = None
    """Live only: the moment that is looked at; null: now."""


@dataclass
class View:
    """One redraw. Not kept: every redraw makes its own."""

    state: SessionState
    now_us: int
    session_id: str
    replay: bool
    recorder: bool | None
    choice: Choice
    read_only: str = ""
    """Why this console can't write to the session; empty where it can."""
    loading: str = ""
    badge: str = ""
    """Position and speed of a replay, or the moment a live cockpit looks at."""
    whole: SessionState | None = None
    """The state with all moments there are, where that is not ``state``."""
    pane: str = ""
    """The pane in focus, by name."""
    playing: bool = False
    """Whether a replay's clock runs."""
    memo: dict[object, Ladder] = field(default_factory=dict)
    """Shared by the redraws of one screen."""
    live_us: int = 0
    """The wall clock of a live session, also while an earlier moment is looked at."""

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes exactly when the state does."""
        return (id(self.state), self.state.seq)

    @property
    def second(self) -> int:
        """Changes once a second, for running clocks."""
        return self.now_us // 1_000_000

    @property
    def past(self) -> bool:
        """Whether the state is an earlier one than the session's last."""
        return self.choice.past_seq is not None

    @property
    def acting(self) -> bool:
        """Whether the operator's acts have anybody to reach: live, and looking at *now*."""
        return not self.replay and not self.past

    @property
    def run(self) -> Run | None:
        """The run the run pane shows."""
        return self.state.runs.get(self.choice.run_id) or self.state.last_run

    @cached_property
    def status(self) -> Status:
        """The agent's state."""
        recorder = None if self.replay or self.past else self.recorder
        return agent_status(self.state, self.now_us, recorder, self.session_id)

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder as the rules see it; worked out anew only when what it rests on changes."""
        from core.levels import ladder

        state = self.state
        key = (
            id(state),
            len(state.snapshots),
            len(state.claims),
            sum(len(results) for results in state.checks.values()),
            len(state.runs),
            sum(run.ended is not None for run in state.runs.values()),
            state.opened is None,
        )
        if key not in self.memo:
            self.memo.clear()
            self.memo[key] = ladder(state)
        return self.memo[key]

    @cached_property
    def costs(self) -> Costs:
        """What was spent."""
        from core.money import costs

        return costs(self.state)
