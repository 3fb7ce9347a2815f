"""What the tests of `pilotage init` share: tiny projects, read without asking any Python."""

from __future__ import annotations

import textwrap
from pathlib import Path

from core.init.entries import find_entries
from core.init.facts import Entry, MetricPlace
from core.init.metrics import find_metrics
from core.init.script import Scripts
from core.risk.tree import list_files

TRAINS = """
import torch

def main():
    loss = model(x)
    loss.backward()
    optimizer.step()

if __name__ == "__main__":
    main()
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files below ``root``; texts are dedented."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return root


def entries(root: Path) -> tuple[list[Entry], Scripts]:
    """The candidates of a project."""
    listing = list_files(root)
    scripts = Scripts(listing)
    return find_entries(listing, scripts, gpu=False), scripts


def metrics(root: Path, code: str, more: dict[str, str] | None = None) -> list[MetricPlace]:
    """The metric places of a program of one file (and of ``more`` that it imports)."""
    write(root, {"train.py": code, **(more or {})})
    found, scripts = entries(root)
    return find_metrics(found[0] if found else None, scripts)
