"""The command palette: every action of the registry, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.actions import ACTIONS, Action


class ActionProvider(Provider):
    """Finds actions; one that can't be done now is listed with its reason."""

    async def discover(self) -> Hits:
        """All actions, before anything is typed."""
        for action, run, help in self._actions():
            yield DiscoveryHit(Content(_label(action)), run, _label(action), help)

    async def search(self, query: str) -> Hits:
        """The actions that fit ``query``."""
        matcher = self.matcher(query)
        for action, run, help in self._actions():
            label = _label(action)
            score = matcher.match(label)
            if score > 0:
                yield Hit(score, matcher.highlight(label), run, label, help)

    def _actions(self) -> list[tuple[Action, Callable[[], Any], str]]:
        from tui.screens.cockpit import CockpitScreen

        screen = self.screen
        if not isinstance(screen, CockpitScreen):
            return []
        view = screen.view()
        found = []
        for action in ACTIONS:
            if action.id == "palette" or not (action.replay if view.replay else action.live):
                continue
            reason = action.blocked(view)
            help = f"Not now: {reason}" if reason else action.help
            found.append((action, _runner(screen, action.id), help))
        return found


def _label(action: Action) -> str:
    return f"{action.title}  ({action.key})"


def _runner(screen: Any, id: str) -> Callable[[], Any]:
    async def run() -> None:
        await screen.action_do(id)

    return run
