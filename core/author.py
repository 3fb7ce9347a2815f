"""Who sits at this terminal: the name that goes with what an operator does."""

from __future__ import annotations

import getpass
import os


def author() -> str:
    """``$PILOTAGE_AUTHOR``, else the login name, else the uid (a container may have no name)."""
    named = os.environ.get("PILOTAGE_AUTHOR")
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
