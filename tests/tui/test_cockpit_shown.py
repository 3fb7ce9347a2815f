"""What the panes of a live cockpit show, and how they move together."""

from __future__ import annotations

from pathlib import Path

from core import events as ev
from core.checks import CHECKS
from core.events import NewEvent
from tests.tui.driving import cockpit
from tests.tui.session_events import FILES_2, PATCH_2, START_US, TREES, demo, snapshot
from tui.panes.rows import RowList
from tui.screens.dialogs import Detail
from tui.theme import palette
from tui.widgets.diff_view import DiffView
from tui.wording import span


async def test_new_events_are_drawn(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        c.append(NewEvent(ev.AgentSaid("a word from the agent"), "agent"))
        await c.shows("a word from the agent")


async def test_evidence_is_one_key_away(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("4", "down", "down", "down")
        assert c.screen.query_one("#level-rows", RowList).cursor == "check:L1.clip"
        await c.press("enter")
        assert isinstance(c.app.screen, Detail)
        await c.shows(
            "L1.clip", "Are gradients clipped the same", "clip to norm 1.0 in all 16 steps",
            "no clipping in any step", "same calls", "#3 attempt", TREES[1][:10],
        )  # fmt: skip


async def test_levels_fold_out(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(200, 50)) as c:
        assert "fallback" not in c.text()
        await c.press("4", "home", "down", "down", "down", "enter")
        await c.shows("fallback", "recompiles")
        await c.press("enter")
        await c.until(lambda: "fallback" not in c.text())


async def test_a_check_moves_the_panes_to_its_moment_and_escape_returns(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("4", "down", "down", "down", "g")
        await c.shows("AT 12:0", "esc returns to now")
        assert "WAITING ON YOU" not in c.text(), "the ask came later than the check"
        assert c.screen.view().run.run_id == "r3"
        await c.press("a")
        await c.shows("You are looking at an earlier moment. Esc returns to now.")
        assert not c.stored("operator.decided")
        await c.press("escape")
        await c.shows("WAITING ON YOU")


async def test_the_timeline_moves_the_panes(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("5", "home")
        await c.shows("AT 12:00:00")
        await c.press("right", "right")
        await c.shows("run #2 · attempt")
        await c.press("escape", "escape")
        await c.shows("WAITING ON YOU")
        assert c.screen.choice.past_seq is None


async def test_another_run_can_be_chosen(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.shows("run #4 · parity of target")
        await c.press("r", "down", "down", "down", "enter")
        await c.shows("run #2 · attempt · 0:06", "Torch not compiled with CUDA enabled")
        await c.press("r", "home", "enter")
        await c.shows("run #4 · parity of target")


async def test_a_silent_failure_is_said_in_the_run_pane(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("r", "down", "down", "enter")
        await c.shows("run #3 · attempt", "✗ silent", "L1.clip failed")


async def test_diff_basis(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.shows("diff · since baseline · 2 files +6 −4")
        await c.press("b")
        await c.shows("diff · last step")


async def test_tool_results_unfold(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "refuted", size=(80, 40)) as c:
        assert "exit 0\n" not in c.text()
        await c.press("t")
        await c.shows("test accuracy: 0.9580")


async def test_a_stale_failure_is_still_said_to_be_one(tmp_path: Path) -> None:
    story = demo("refuted")
    story.snapshot(3, "", [])
    async with cockpit(tmp_path, story) as c:
        await c.shows("~ stale (was FAIL)  #3", "~ clipping  stale (was FAIL)")
        [row] = [r for r in c.screen.query_one("#level-rows", RowList).rows if r.key == "level:1"]
        bad = palette(c.app).bad
        marked = [row.text.plain[s.start : s.end] for s in row.text.spans if s.style == bad]
        assert marked == ["FAIL"]
        await c.press("4")
        c.screen.query_one("#level-rows", RowList).cursor = "check:L1.clip"
        await c.press("enter")
        await c.shows("stale (was FAIL)", "why stale", "clip to norm 1.0 in all 16 steps")


async def test_levels_count_in_words(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        of = sum(check.level == 1 for check in CHECKS.values())
        await c.shows("✓ pass  all 4", f"✗ FAIL  1 of {of} fail")


async def test_optional_checks_that_did_not_run_are_no_failure(tmp_path: Path) -> None:
    story = demo("refuted")
    story.snapshot(2, "", [])
    story.check("L4.time", "pass", "0.9 times", "r3")
    async with cockpit(tmp_path, story) as c:
        await c.shows("L4   –      ✓ pass  1 of 2 ran")


async def test_the_diff_follows_the_last_step_until_one_moves_in_it(tmp_path: Path) -> None:
    step = PATCH_2[PATCH_2.index("diff --git a/inkformer/data.py") :]
    story = demo("refuted")
    story.tree = TREES[2]
    story.add(snapshot(TREES[2], PATCH_2, FILES_2, step))
    async with cockpit(tmp_path, story) as c:
        diff = c.screen.query_one(DiffView)
        assert diff.follow
        assert diff.files[diff._data.rows[diff.cursor].file].path == "inkformer/data.py"
        assert diff.scroll_offset.y <= diff.cursor < diff.scroll_offset.y + diff.size.height
        await c.press("1", "home")
        assert not diff.follow
        await c.shows("f follows")
        c.append(NewEvent(snapshot(TREES[3], PATCH_2 + "\n", FILES_2, step), "recorder"))
        await c.until(lambda: c.screen.feed.state.tree == TREES[3])
        c.screen.draw()
        assert diff.cursor == 0
        await c.press("f")
        assert diff._data.rows[diff.cursor].file == 1 and diff.follow
        await c.until(lambda: "f follows" not in c.text())


async def test_the_strip_says_how_long_the_session_lasts(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        now = c.screen.feed.now_us()
        shown = span((now - START_US) / 1e6 - 0.1)
        await c.shows(f"session {shown} · ")
        c.screen.feed._clock = lambda: now + 1_000_000
        await c.shows(f"session {span((now - START_US) / 1e6 + 0.9)} · ")


async def test_a_refuted_claim_stands_on_the_strip(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        assert "▼L0" in c.text()
        await c.press("5", "left")
        await c.shows("asked: May I install")
        await c.press("left")
        await c.shows("▼ ", "claim L3 refuted: measured L0")


async def test_stale_checks_say_why_once(tmp_path: Path) -> None:
    story = demo("refuted")
    story.snapshot(3, "", [])
    async with cockpit(tmp_path, story) as c:
        await c.shows("L0   yes    ~ stale", "L1   yes    ~ stale", "L3   yes    ~ stale")
        assert c.text().count("The code has changed: measured on tree 2222222") == 1
        await c.shows("measured none  claimed L3 unproven")
