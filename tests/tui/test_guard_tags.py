"""The guard's tags in the diff pane, and the key that goes to them."""

from __future__ import annotations

from pathlib import Path

from core import events as ev
from core.events import NewEvent
from core.guard.change import guard_patch
from core.guard.tag import Tag
from tests.tui.driving import Console, cockpit
from tests.tui.session_events import FILES_2, PATCH_2, TREES, snapshot
from tui.actions import ACTIONS
from tui.screens.help import help_rows
from tui.theme import palette
from tui.widgets.diff_view import DiffView

CLIP = Tag(
    "clipping",
    "clip_grad_norm_ removed",
    "inkformer/train.py",
    82,
    "1",
    "",
    True,
    "Why.",
    "C3",
    "old",
)
DROP = Tag(
    "drop_last",
    "DataLoader drop_last changed",
    "inkformer/data.py",
    14,
    "False",
    "True",
    False,
    "Why.",
)
LOST = Tag("seed", "seed changed", "[b]gone[/b].py", 3)


def tagged(*tags: Tag, tree: str = TREES[3]) -> NewEvent:
    return NewEvent(ev.DiffTagged(tree, [t.to_json() for t in tags]), "recorder", tree=tree)


def shown(tree: str = TREES[3]) -> NewEvent:
    return NewEvent(snapshot(tree, PATCH_2, FILES_2), "recorder", tree=tree)


def here(c: Console) -> str:
    view = c.screen.query_one(DiffView)
    return view.row_text(view.cursor)


async def test_the_key_goes_from_tag_to_tag_and_says_what_each_is(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.press("exclamation_mark")
        await c.shows("The diff guard has tagged nothing in this diff.")
        c.append(shown(), tagged(DROP, CLIP, LOST))
        await c.shows("! 3 guard tags", "guard clipping")
        await c.press("home") if c.screen.active == "diff" else await c.press("1", "home")
        await c.press("exclamation_mark")
        assert "clip_grad_norm_" in here(c) and c.screen.active == "diff"
        await c.shows("inkformer/train.py:82 clipping: clip_grad_norm_ removed, 1. Why.")
        await c.press("exclamation_mark")
        assert "drop_last=True" in here(c)
        await c.shows(
            "drop_last: DataLoader drop_last changed, False -> True (a guess). Why.",
            "guard? drop_last",
        )
        await c.press("exclamation_mark")
        assert "clip_grad_norm_" in here(c), "after the last tag comes the first"


async def test_tags_of_another_tree_are_not_shown(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        c.append(shown(), tagged(CLIP))
        await c.shows("! 1 guard tag ", "guard clipping")
        c.append(shown("5555555eee"))
        await c.until(lambda: "guard" not in c.text())
        c.append(tagged(CLIP, tree="5555555eee"))
        await c.shows("guard clipping")


async def test_it_is_found_at_80_columns_in_the_palette_and_in_the_help(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running", size=(80, 24)) as c:
        c.append(shown(), tagged(CLIP))
        await c.until(lambda: c.screen.view().state.tagged)
        await c.press("exclamation_mark")
        await c.shows("guard clipping", "clip_grad_norm_ removed")
        rows = help_rows(c.screen.view(), "", palette(c.app))
        assert any("next guard tag" in row.lead.plain and "!" in row.lead.plain for row in rows)
        assert "tag" in {action.id for action in ACTIONS}  # the palette is made of the same


async def test_a_failed_check_names_the_change_that_may_be_why(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        c.append(tagged(CLIP, tree=TREES[1]))
        await c.until(lambda: c.screen.view().state.tagged)
        await c.press("4", "down", "down", "down", "enter")
        await c.shows("diff guard", "clip_grad_norm_ removed")


def test_the_patch_of_the_story_is_tagged_by_the_guard_itself() -> None:
    kinds = {t.kind for t in guard_patch(PATCH_2)}
    assert "clipping" in kinds
