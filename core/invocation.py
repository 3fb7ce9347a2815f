"""How the person at this terminal starts Pilotage, for sentences that say what to type."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def command() -> str:
    """``pilotage`` where the shell finds it, else the path that works from here."""
    if shutil.which("pilotage"):
        return "pilotage"
    installed = Path(sys.executable).parent / "pilotage"
    if not installed.exists():
        return f"{sys.executable} {Path(__file__).resolve().parent.parent / 'pilotage.py'}"
    here = Path.cwd()
    return os.path.relpath(installed, here) if installed.is_relative_to(here) else str(installed)
