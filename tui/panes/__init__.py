"""The panes of the cockpit. Each draws a :class:`tui.view.View` and keeps no truth of its own."""
