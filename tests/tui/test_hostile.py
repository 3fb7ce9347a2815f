"""Hostile text in every place it can come from reaches the screen as harmless text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.app import App

from core import events as ev
from tests.tui.driving import cockpit
from tests.tui.session_events import CONFIG, Story, snapshot
from tui.panes.rows import RowList
from tui.screens.dialogs import Detail

NASTY = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;aGk=\x07 \x1b]8;;http://evil.test\x07link"
    "\x1b]8;;\x07 \x9b2J [bold red]markup[/] [/nothing] [@click=app.exit]x[/] \u202eevil\u2066 "
    "\u200bzero \r over \x08 back \ud800 $(rm -rf /)"
)
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff]"
)


def hostile_story() -> Story:
    """Every field of text that a stranger can fill, filled with ``NASTY``."""
    config = CONFIG | {"target": CONFIG["target"] | {"kind": NASTY[:60]}}
    s = Story(config=config).opened(NASTY)
    patch = f"diff --git a/{NASTY} b/{NASTY}\n--- a/x\n+++ b/x\n@@ -1 +1 @@ {NASTY}\n-{NASTY}\n+{NASTY}\n"
    files = [{"path": NASTY, "status": "M", "added": 1, "removed": 1}]
    s.tree = "feed"
    s.add(ev.TreeSnapshotted("feed", "c", files=files, patch=patch, patch_note=NASTY))
    s.agent(
        ev.AgentSaid(NASTY + "\n" + NASTY),
        ev.AgentCalled("c1", NASTY[:20], {NASTY: NASTY}),
        ev.AgentReturned("c1", False, NASTY),
        ev.AgentCalled("c2", "shell", {"command": NASTY}),
        ev.AgentReturned("c2", True, NASTY + "\n" + NASTY),
        ev.AgentClaimed(3, NASTY),
    )
    run = s.start_run("attempt", command=NASTY)
    s.output(run, NASTY, "x" * 100_000).output(run, NASTY, stream="stderr")
    s.add(ev.RunEnded("signalled", None, NASTY, 1.0, text=NASTY), run_id=run)
    s.add(ev.FindingOpened("f1", NASTY, NASTY, NASTY, [NASTY], NASTY, True, NASTY), run_id=run)
    s.check("L0.exit", "fail", NASTY, run, expected=NASTY, actual=NASTY, tolerance=NASTY,
            reason=NASTY, evidence={NASTY: [NASTY, {NASTY: NASTY}]})  # fmt: skip
    s.operator(
        ev.OperatorMessaged("m1", NASTY, NASTY),
        ev.InterventionRecorded("i1", s.now_us, text=NASTY, kind=NASTY, author=NASTY),
        ev.MarkerPlaced(NASTY),
        ev.OperatorInterrupted(NASTY),
    )
    s.agent(ev.AgentAsked("a1", NASTY, "shell", {"command": NASTY}, "", NASTY))
    return s


def harmless(text: str) -> None:
    """No control character, and markup as it was written."""
    found = CONTROL.search(text)
    assert not found, f"{found and found.group()!r} at {text[max(0, found.start() - 40) :][:80]!r}"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("replay", [False, True])
async def test_every_pane(tmp_path: Path, size: tuple[int, int], replay: bool) -> None:
    async with cockpit(tmp_path, hostile_story(), size=size, replay=replay) as c:
        if replay:
            await c.press("end")
        for key in "12345":
            await c.press(key)
            harmless(c.text())
        for key in ("t", "r", "escape", "b", "question_mark", "escape", "ctrl+p", "escape"):
            await c.press(key)
            harmless(c.text())
        assert "[bold red]markup[/]" in c.text() or size[0] < 200


async def test_every_detail(tmp_path: Path) -> None:
    async with cockpit(tmp_path, hostile_story()) as c:
        seen = 0
        for pane in ("2", "4"):
            rows = c.screen.query_one(f"#{'agent' if pane == '2' else 'level'}-rows", RowList)
            for key in [row.key for row in rows.rows if row.key]:
                c.screen.show_detail(rows.id or "", key)
                await c.pilot.pause()
                if isinstance(c.app.screen, Detail):
                    seen += 1
                    harmless(c.text())
                    harmless(c.app.screen.query_one(RowList).plain_text())
                    await c.press("escape")
        assert seen > 8


@pytest.mark.parametrize("key", ["d", "e", "i", "s"])
async def test_every_dialog(tmp_path: Path, key: str) -> None:
    async with cockpit(tmp_path, hostile_story()) as c:
        await c.press(key)
        await c.until(lambda: c.app.screen is not c.screen)
        harmless(c.text())


async def test_toasts(tmp_path: Path) -> None:
    async with cockpit(tmp_path, hostile_story()) as c:
        c.screen._shown_since = {"a1": c.screen.monotonic() - 5}
        await c.press("a")
        await c.stores("operator.decided")
        harmless(c.text())
        assert isinstance(c.app, App)


def test_the_builder_is_valid() -> None:
    assert snapshot("t", "", []).payload()["tree"] == "t"
