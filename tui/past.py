"""States of earlier moments of a session that is still live."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from core.state import SessionState, fold

if TYPE_CHECKING:
    from sessions.replay import Replay


class Past:
    """The history of a live session, read when somebody first asks for a moment of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replay: Replay | None = None
        self._lock = threading.Lock()

    def state_at(self, seq: int) -> SessionState:
        """The state after event ``seq``. Reads and folds: call it in a thread.

        Raises :class:`core.errors.PilotageError` where the log can't be read.
        """
        from sessions.log import EventLog
        from sessions.replay import Replay

        with self._lock:
            if self._replay is None:
                self._replay = Replay.open(self.path)
            elif self._replay.last_seq < seq:
                with EventLog.read(self.path) as log:
                    self._replay.extend(log.events(after=self._replay.last_seq))
            # A state of its own: it is drawn while another one may be asked for.
            return fold(e for e in self._replay.events if e.seq <= seq)
