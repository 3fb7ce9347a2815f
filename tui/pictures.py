"""Draws the pictures of the README: the real app on a real session, as SVG files.

A session file is only read. The pictures are made at positions of its replay, and of the live
cockpit with its clock held at the session's last event, so that they can be made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.errors import PilotageError
from core.state import SessionState
from tui.app import PilotageApp
from tui.feed import Feed
from tui.replay_feed import ReplayFeed

RECORDED = Path(__file__).resolve().parent.parent / "sessions" / "recorded"
"""Where sessions that ship with the product lie."""

PATIENCE_S = 60.0
"""Seconds to wait for a session to be read."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: the moment, the size of the terminal, and the keys pressed before it."""

    name: str
    size: tuple[int, int]
    moment: Callable[[SessionState], int]
    keys: tuple[str, ...] = ()
    theme: str = ""


def _last(kind: str, back: int = 1) -> Callable[[SessionState], int]:
    def find(state: SessionState) -> int:
        found = [m.seq for m in state.moments if m.kind == kind]
        return found[-min(back, len(found))] if found else state.seq

    return find


def _refuted(state: SessionState) -> int:
    """The first measurement that is below what was claimed before it."""
    for measurement in state.measurements:
        claimed = [c.level for c in state.claims if c.seq < measurement.seq]
        if claimed and measurement.level < claimed[-1]:
            return measurement.seq
    return state.seq


def _in_run(state: SessionState) -> int:
    """Shortly before the end of the last attempt."""
    run = next(reversed(state.attempts), None)
    return state.seq if run is None or run.ended_seq is None else max(run.seq, run.ended_seq - 3)


def _end(state: SessionState) -> int:
    return state.seq


PICTURES = (
    Picture("cockpit", (200, 50), _in_run),
    Picture("refuted", (120, 40), _refuted, ("4", "down", "down", "down")),
    Picture("evidence", (120, 40), _refuted, ("4", "down", "down", "down", "enter")),
    Picture("ask", (80, 24), _last("ask"), ("2",)),
    Picture("levels", (80, 24), _end, ("4",)),
    Picture("runs", (120, 40), _end, ("r",)),
    Picture("light", (120, 40), _end, (), "pilotage-light"),
)


def draw(directory: Path, session: str | None = None) -> list[Path]:
    """Draw all pictures of a finished session into ``directory``; returns their paths.

    ``session`` is an id, a path, or null for the recorded demo that ships with the product.
    Raises :class:`PilotageError` where there is no such session, or it can't be read.
    """
    path = _session(session)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return asyncio.run(_draw_all(path, directory))
    except OSError as err:
        raise PilotageError(f"{directory} can't be written ({err.strerror}).") from err


def _session(session: str | None) -> Path:
    from sessions.home import find

    if session is not None:
        return find(session)
    recorded = sorted(RECORDED.glob("demo*/session.db")) + sorted(RECORDED.glob("demo*.db"))
    if not recorded:
        raise PilotageError(
            "No demo session ships with this copy. Play one (`pilotage demo --headless`), then "
            "name it: `pilotage screenshots DIRECTORY --session ID`."
        )
    return recorded[0]


async def _draw_all(path: Path, directory: Path) -> list[Path]:
    made = []
    for picture in PICTURES:
        target = directory / f"{picture.name}.svg"
        target.write_text(await _draw(path, picture), encoding="utf-8")
        made.append(target)
    return made


async def _draw(path: Path, picture: Picture) -> str:
    feed = ReplayFeed(path, playing=False)
    app = PilotageApp(path, replay=True, feed=feed)
    async with app.run_test(size=picture.size) as pilot:
        await _loaded(feed)
        cockpit = app.cockpit
        assert cockpit is not None and feed.whole is not None
        if picture.theme:
            app.theme = picture.theme
        cockpit.go_to(picture.moment(feed.whole))
        await pilot.pause()
        for key in picture.keys:
            await pilot.press(key)
        cockpit.draw()
        await pilot.pause(0.2)
        return app.export_screenshot(title="pilotage")


async def _loaded(feed: Feed) -> None:
    """Wait for the first state; raises where the session can't be read."""
    for _ in range(int(PATIENCE_S / 0.05)):
        feed.pump()
        if feed.error:
            raise PilotageError(feed.error)
        if not feed.loading():
            return
        await asyncio.sleep(0.05)
    raise PilotageError(f"The session was not read within {PATIENCE_S:.0f} s.")
