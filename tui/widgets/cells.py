"""Untrusted text into terminal cells: what to draw for it, and which part of it a window shows.

Widths are those of Rich's ``cell_len``. Characters about which terminals disagree (joiners, variation
selectors) are not sent at all, so that a column is where we think it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style

Span = tuple[int, int, Style]
"""Half-open range of characters, and the style on it."""

MAX_LINE = 20_000
"""Characters of one line that can be scrolled to; what is beyond is counted, not drawn."""

_REST = " … {:,} more characters not shown"

TAB_CELLS = 4

# Marks stacked on one character beyond this many would climb out of their line.
_STACK = re.compile(
    r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]{2})"
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]+"
)
_JOINED = re.compile("(?<=[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d")


class _Pictures(dict[int, str]):
    """A table for ``str.translate`` that works out each character when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Cs":
            picture = "\N{REPLACEMENT CHARACTER}"
        elif 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:  # variation selectors
            picture = ""
        elif char.isprintable() or category == "Co":
            picture = char
        elif code < 0x20:
            picture = chr(0x2400 + code)
        elif code == 0x7F:
            picture = "\N{SYMBOL FOR DELETE}"
        elif category == "Zs":
            picture = " " * max(1, cell_len(char))
        else:  # C1 controls, bidirectional and zero-width formatting, separators, unassigned
            picture = f"<U+{code:04X}>"
        self[code] = picture
        return picture


_PICTURES = _Pictures()


def printable(text: str, tab: int = TAB_CELLS) -> str:
    """Text that is safe to send to a terminal and looks like what it stands for.

    Control characters become their pictures (``ESC`` is ``␛``), invisible and bidirectional ones
    their code point (``<U+202E>``), tabs blanks up to the next stop. A line longer than `MAX_LINE`
    characters ends in a count of the rest.
    """
    if len(text) > MAX_LINE:
        return printable(text[:MAX_LINE], tab) + _REST.format(len(text) - MAX_LINE)
    if text.isascii() and text.isprintable():
        return text
    if "\t" in text:
        text = _expand(text, tab)
    if text.isascii() and text.isprintable():
        return text
    if "\u200d" in text:
        text = _JOINED.sub("", text)
    return _STACK.sub(r"\1", text.translate(_PICTURES))


def measured(text: str) -> tuple[str, int]:
    """`printable` text and its width in cells; costs next to nothing when a row is drawn again."""
    if len(text) <= MAX_LINE and text.isascii() and text.isprintable():
        return text, len(text)
    rest = max(0, len(text) - MAX_LINE)
    return _measured(text[:MAX_LINE], rest)


@lru_cache(maxsize=256)
def _measured(text: str, rest: int) -> tuple[str, int]:
    shown = printable(text) + (_REST.format(rest) if rest else "")
    return shown, cell_len(shown)


def _expand(text: str, tab: int) -> str:
    """Tabs to blanks by cells; `str.expandtabs` counts characters."""
    if text.isascii() and text.replace("\t", "").isprintable():
        return text.expandtabs(tab)
    parts = text.split("\t")
    out, column = [], 0
    for part in parts[:-1]:
        column += cell_len(part.translate(_PICTURES))
        pad = tab - column % tab
        out.append(part + " " * pad)
        column += pad
    return "".join(out) + parts[-1]


def window(text: str, x: int, width: int) -> tuple[int, int, int, int]:
    """Which characters of a printable text stand in the cells ``x`` to ``x + width``.

    Returns ``(start, end, lead, cells)``: characters ``start:end``, ``lead`` blank cells for the
    second half of a wide character at the left edge, and the cells used in all (at most ``width``).
    """
    if text.isascii():
        start, end = min(x, len(text)), min(x + width, len(text))
        return start, end, 0, end - start
    index, column, size = 0, 0, len(text)
    while index < size and column < x:
        column += get_character_cell_size(text[index])
        index += 1
    # Marks belong to the character in front of them, which is out of sight.
    while x and index < size and not get_character_cell_size(text[index]):
        index += 1
    start, lead = index, min(width, max(0, column - x))
    column = lead
    # The limit on characters keeps a line of nothing but zero-width ones from being sent whole.
    stop = min(size, index + 4 * width)
    while index < stop:
        cells = get_character_cell_size(text[index])
        if column + cells > width:
            break
        column += cells
        index += 1
    return start, index, lead, column


def paint(text: str, spans: Iterable[Span], x: int, width: int, base: Style) -> list[Segment]:
    """Segments for exactly ``width`` cells of a printable text from cell ``x`` on.

    Later spans are laid over earlier ones.
    """
    if width <= 0:
        return []
    start, end, lead, cells = window(text, x, width)
    out: list[Segment] = [Segment(" " * lead, base)] if lead else []
    styles: list[Style] | None = None
    for first, last, style in spans:
        first, last = max(first, start), min(last, end)
        if first >= last:
            continue
        if styles is None:
            styles = [base] * (end - start)
        for at in range(first - start, last - start):
            styles[at] = styles[at] + style
    if styles is None:
        if end > start:
            out.append(Segment(text[start:end], base))
    else:
        at = start
        for style, group in groupby(styles):
            count = sum(1 for _ in group)
            out.append(Segment(text[at : at + count], style))
            at += count
    if cells < width:
        out.append(Segment(" " * (width - cells), base))
    return out


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """Printable text in exactly ``width`` cells: padded, or cut with an ellipsis."""
    if width <= 0:
        return ""
    total = cell_len(text)
    if total <= width:
        return text + " " * (width - total)
    start, end, _, cells = window(text, 0, max(0, width - cell_len(ellipsis)))
    cut = text[start:end] + ellipsis
    return cut + " " * (width - cells - cell_len(ellipsis))
