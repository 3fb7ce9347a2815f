"""Widgets over plain data: a log, a diff, a plot, a timeline. They know nothing of sessions."""

from tui.widgets.diff_rows import DiffTag
from tui.widgets.diff_view import DiffView
from tui.widgets.log_view import LogView, PlainLine
from tui.widgets.plot import LinePlot
from tui.widgets.plot_data import Series
from tui.widgets.timeline import Timeline
from tui.widgets.timeline_layout import Moment

__all__ = [
    "DiffTag",
    "DiffView",
    "LinePlot",
    "LogView",
    "Moment",
    "PlainLine",
    "Series",
    "Timeline",
]
