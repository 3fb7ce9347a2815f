"""Where a traceback goes: into a file the operator can send, never onto the screen."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from pathlib import Path


def write_report(error: BaseException, directory: Path | None = None) -> str:
    """Store the traceback of ``error`` and return the sentence to show.

    The file is private (mode 0600) since a traceback may quote the operator's data; it goes
    into ``directory`` or, by default, into the system's temporary directory.
    """
    text = "".join(traceback.format_exception(error))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kind = type(error).__name__
    try:
        handle, name = tempfile.mkstemp(f"-{stamp}.log", "pilotage-crash-", directory)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return f"This is a fault of Pilotage ({kind}), and its report could not be written."
    return f"This is a fault of Pilotage ({kind}: {_short(error)}). The report is in {name}."


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0][:120]
