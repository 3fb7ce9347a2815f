"""Sessions at rest: the event log, its derived tables, replay, exports and the list of sessions."""
