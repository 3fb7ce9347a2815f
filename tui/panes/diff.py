"""The diff pane: what the worktree's snapshot changed, since the baseline or in the last step."""

from __future__ import annotations

from textual.app import ComposeResult

from core.events import DiffTagged
from core.guard.tag import Tag
from core.state_parts import Snapshot
from core.unified_diff import parse_diff
from tui.panes.pane import Pane
from tui.view import View
from tui.widgets.diff_rows import DiffTag
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
        tagged = view.state.tagged
        if snapshot is None or tagged is None or tagged.tree != snapshot.tree:
            tagged = None  # of another tree: its lines would be others
        stamp: tuple[object, ...] = (step,)
        if snapshot is not None:
            stamp = (snapshot.tree, snapshot.seq, step, diff.follow, id(tagged))
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
        patch = snapshot.body.step_patch if step else snapshot.body.patch
        diff.set_diff(patch, diff_tags(tagged, step))
        diff.show_newest(step_places(snapshot.body.step_patch))
        churn = diff.summary if step else churn_text(snapshot)
        note = snapshot.body.patch_note
        foot = f"{one_line(note, 60)} · " if note else ""
        foot += guard_text(tagged)
        foot += "" if diff.follow else "f follows · "
        self.retitle(f"diff · {basis} · {churn}", f"{foot}tree {one_line(snapshot.tree[:7])}")

    def next_tag(self) -> list[DiffTag]:
        """Go to the next change that the guard has tagged; returns the tags there."""
        return self.query_one(DiffView).next_tag()


def diff_tags(tagged: DiffTagged | None, step: bool = False) -> list[DiffTag]:
    """The guard's tags as the diff shows them; ``?`` marks a guess.

    Their old lines are the baseline's, so in the diff of a step they stand at their file.
    """
    found = []
    for item in tagged.tags if tagged else ():
        tag = Tag.from_json(item)
        if tag is not None:
            text = f"guard{'' if tag.sure else '?'} {one_line(tag.kind, 20)}"
            note = f"{tag.sentence}. {tag.why}"
            line = None if step and tag.side == "old" else tag.line or None
            found.append(DiffTag(tag.path, line, text, tag.side, note))
    return found


def guard_text(tagged: DiffTagged | None) -> str:
    """``! 4 guard tags · `` for the lower border; empty where there are none."""
    if tagged is None or not tagged.tags:
        return ""
    total = len(tagged.tags) + tagged.left_out
    unasked = f", {len(tagged.unasked)} unasked" if tagged.unasked else ""
    return f"! {count(total, 'guard tag')}{unasked} · "


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
