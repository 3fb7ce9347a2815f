"""Untrusted text made fit for a terminal.

Agent output, run logs, diffs and transcripts may hold bytes that a terminal obeys, or characters
that make a line read otherwise than it is. ``clean`` takes escape sequences away and shows what
is left of such characters as visible signs. The result has no C0 or C1 control, no bidirectional
override, no line separator and no lone surrogate, so it is one line whatever it was before.
"""

from __future__ import annotations

import re
import textwrap

# ECMA-48: CSI (also its 8-bit form), strings that end in BEL or ST (OSC, DCS, SOS, PM, APC), and
# the two- and three-byte escapes. An unterminated string keeps its text: swallowing it to the end
# of the line would let a log hide what follows.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\x18\x1a]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ\\`-~]"
)

TAB = 8
_REPLACEMENT = "�"


def _signs() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20)}  # the Unicode control pictures
    table[0x7F] = "␡"
    table.update(dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT))
    table.update(dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT))
    table.update({0x2028: "␤", 0x2029: "␤"})
    unseen = [0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB]
    unseen += [*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xE0000, 0xE0080)]
    table.update({code: f"⟨{code:X}⟩" for code in unseen})
    return table


_SIGNS = _signs()


def clean(text: str) -> str:
    """One line that a terminal can only display: see the module.

    Tabs become spaces up to columns of eight. A newline becomes the sign ␊; for text of several
    lines use ``clean_lines``.
    """
    if text.isprintable():  # false for every control, format, separator and surrogate character
        return text
    text = _ESCAPES.sub("", text)
    if "\t" in text:
        text = text.replace("\n", "␊").replace("\r", "␍").expandtabs(TAB)
    return text.translate(_SIGNS)


def clean_lines(text: str) -> list[str]:
    """The lines of ``text``, split at newlines (LF or CRLF) only, each one cleaned."""
    return [clean(line.removesuffix("\r")) for line in text.split("\n")]


def clean_block(text: str) -> str:
    """``text`` with its newlines kept and every line cleaned."""
    return "\n".join(clean_lines(text))


WIDTH = 80
"""Columns of a report that is printed."""


def hanging(begin: str, text: str, width: int = WIDTH) -> list[str]:
    """``begin`` and ``text``, in lines of at most ``width``: those after the first are indented to
    where the text begins. A word is never cut, so one that is too long stands out."""
    return textwrap.wrap(
        clean(text),
        max(width, len(begin) + 20),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [begin]
