"""The frame of a pane, whose titles can change without repainting what is inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.containers import Vertical
from textual.geometry import Region

if TYPE_CHECKING:
    from typing_extensions import Self


class Pane(Vertical):
    """A bordered pane. Use :meth:`retitle`; setting ``border_title`` repaints all of it."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._titles: tuple[str, str] = ("", "")
        self._only_edges = False

    def retitle(self, title: str, subtitle: str = "") -> None:
        """Put words into the upper and lower border. They are never read as markup."""
        if (title, subtitle) == self._titles:
            return
        self._titles = (title, subtitle)
        self._only_edges = self.size.area > 0
        try:
            self.border_title = Text(title)
            self.border_subtitle = Text(subtitle) if subtitle else None
        finally:
            self._only_edges = False

    def refresh(self, *regions: Region, **how: Any) -> Self:
        """Repaint; while only a title changes, nothing but the two border lines."""
        if self._only_edges and not regions:
            # Regions count from the content, which begins below and right of the border.
            width, height = self.outer_size
            regions = (Region(-1, -1, width, 1), Region(-1, height - 2, width, 1))
        return super().refresh(*regions, **how)
