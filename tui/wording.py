"""How times, amounts and hostile text are written on the screen. Pure functions."""

from __future__ import annotations

import json
import time
from typing import Any

from core.text import clean, clean_block


def one_line(text: str, limit: int = 400) -> str:
    """``text`` on one line, harmless, and at most ``limit`` characters long."""
    head = text[: limit * 2]
    flat = " ".join(clean(head.replace("\n", " ").replace("\r", " ")).split())
    return flat if len(flat) <= limit and len(head) == len(text) else flat[: limit - 1] + "…"


def block(text: str) -> str:
    """``text`` with its line breaks, and nothing else in it that a terminal would act on."""
    return clean_block(text)


def span(seconds: float) -> str:
    """A duration as ``0:42``, ``12:07`` or ``1:03:20``; never negative."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"
    return f"{rest // 60}:{rest % 60:02}"


def middle(text: str, limit: int) -> str:
    """A name in at most ``limit`` characters; where it must be cut, both of its ends stay.

    The end gets the larger half: it is what tells one session from another.
    """
    flat = one_line(text, 400)
    if len(flat) <= limit:
        return flat
    tail = limit // 2
    return flat[: max(0, limit - tail - 1)] + "…" + flat[len(flat) - tail :]


def clock(ts_us: int) -> str:
    """The time of day on this machine, ``12:03:04``."""
    return time.strftime("%H:%M:%S", time.localtime(ts_us / 1e6))


def ago(ts_us: int, now_us: int) -> str:
    """How long ago, in the largest unit that fits: ``just now``, ``5 min ago``, ``3 d ago``."""
    seconds = max(0, (now_us - ts_us) / 1e6)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def minutes(seconds: float) -> str:
    """A stretch of work: ``40 s``, ``12 min`` or ``3.2 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(n_bytes: float) -> str:
    """An amount of memory or data in powers of 1024: ``640 KB``, ``12 MB``, ``1.4 GB``."""
    for power, unit in ((3, "GB"), (2, "MB")):
        if n_bytes >= 1024**power:
            value = n_bytes / 1024**power
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{n_bytes / 1024:.0f} KB"


def count(n: int, noun: str) -> str:
    """``1 file``, ``3 files``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def tool_wish(tool: str, input: dict[str, Any]) -> str:
    """What a tool call does, after the words *wants to*: ``run pip install x``."""
    subject = next(
        (str(input[k]) for k in ("command", "path", "file_path", "pattern") if input.get(k)), ""
    )
    verb = {
        "shell": "run",
        "run": "run",
        "edit": "edit",
        "patch": "patch the worktree",
        "write": "write",
        "read": "read",
        "search": "search for",
        "verify": "have its work measured",
    }.get(tool)
    if verb is None:
        return one_line(f"use {tool} {subject or json.dumps(input, ensure_ascii=False)}", 200)
    if tool == "run" and not subject:
        subject = "the target command"
    return one_line(f"{verb} {subject}".strip(), 200)
