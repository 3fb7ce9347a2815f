"""The cockpit: a Textual view of the fold of one session's event log. It holds no domain rules."""
