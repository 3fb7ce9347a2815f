"""Ask the detectors about a run, so that a fault in one of them costs nobody anything else."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from core import events as ev
from core.body import Body
from core.findings import Failed, detect, resolved
from core.process import RECORDER_LOG
from core.recorder.journal import Journal


class Detecting:
    """The detectors of one session. ``note`` writes into the recorder's own log."""

    def __init__(self, journal: Journal, directory: Path, note: Callable[[str], None]) -> None:
        self._journal = journal
        self._log = directory / RECORDER_LOG
        self._note = note
        self._failed: set[tuple[str, str]] = set()  # (run, detector)
        self._unsaid: list[Body] = []

    def new(self, run_id: str) -> list[Body]:
        """Findings that are not on record yet, and what is to be said of failed detectors."""
        state = self._journal.state
        found = detect(state, run_id, self._teller(run_id))
        new: list[Body] = [f for f in found if f.finding_id not in state.findings]
        unsaid, self._unsaid = self._unsaid, []
        return new + unsaid

    def over(self, run_id: str) -> list[Body]:
        """The findings of earlier runs that this one, which has ended, shows to be over."""
        return list(resolved(self._journal.state, run_id, self._teller(run_id)))

    def _teller(self, run_id: str) -> Failed:
        def failed(name: str, error: Exception) -> None:
            if (run_id, name) in self._failed:
                return
            self._failed.add((run_id, name))
            self._note("".join(traceback.format_exception(error)))
            text = (
                f"The detector {name} failed ({type(error).__name__}) and says nothing of this "
                f"run. The traceback is in {self._log}."
            )
            self._unsaid.append(ev.RunSignalled([{"k": "notice", "text": text}]))

        return failed
