"""The diff pane: what the worktree's snapshot changed, since the baseline or in the last step."""

from __future__ import annotations

from textual.app import ComposeResult

from core.state_parts import Snapshot
from core.unified_diff import parse_diff
from tui.panes.pane import Pane
from tui.view import View
from tui.widgets.diff_view import DiffView
from tui.wording import count, one_line


class DiffPane(Pane):
    """One diff; ``b`` changes what it is measured against."""

    def __init__(self) -> None:
        super().__init__("diff")
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """The view that is drawn into."""
        yield DiffView(empty="No snapshot of the worktree yet.", id="diff-view")

    def draw(self, view: View) -> None:
        """Show the diff of the snapshot that was the last one at the moment of ``view``."""
        snapshot = view.state.snapshots[-1] if view.state.snapshots else None
        step = view.choice.step_diff
        diff = self.query_one(DiffView)
        stamp = (snapshot.tree, snapshot.seq, step, diff.follow) if snapshot else (step,)
        if stamp == self._drawn:
            return
        self._drawn = stamp
        basis = "last step" if step else "since baseline"
        if snapshot is None:
            diff.set_diff("")
            self.retitle(f"diff · {basis}")
            return
        diff.empty = (
            "The last step changed no file." if step else "Nothing differs from the baseline."
        )
        diff.set_diff(snapshot.body.step_patch if step else snapshot.body.patch)
        diff.show_newest(step_places(snapshot.body.step_patch))
        churn = diff.summary if step else churn_text(snapshot)
        note = snapshot.body.patch_note
        foot = f"{one_line(note, 60)} · " if note else ""
        foot += "" if diff.follow else "f follows · "
        self.retitle(f"diff · {basis} · {churn}", f"{foot}tree {one_line(snapshot.tree[:7])}")


def step_places(step_patch: str) -> list[tuple[str, int]]:
    """Path and line (of the new text) of the first change in each hunk of a step's patch."""
    places = []
    for file in parse_diff(step_patch):
        for hunk in file.hunks:
            added = (line.new for line in hunk.lines if line.sign == "+" and line.new)
            places.append((file.path, next(added, hunk.new_start)))
    return places


def churn_text(snapshot: Snapshot) -> str:
    """``3 files +93 −1`` of the whole worktree against its baseline, from git's own count.

    The patch itself may be cut at its size limit; the counts are not.
    """
    added = sum(_number(f.get("added")) for f in snapshot.body.files)
    removed = sum(_number(f.get("removed")) for f in snapshot.body.files)
    return f"{count(len(snapshot.body.files), 'file')} +{added:,} −{removed:,}"


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0  # null: a binary file
