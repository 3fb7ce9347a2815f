"""The domain of Pilotage: no Textual, no SQLite, no torch in this process."""
