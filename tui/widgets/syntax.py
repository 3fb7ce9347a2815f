"""Syntax colours for pieces of source text: characters and what kind of token they belong to.

The kinds are few, so that a theme can give each a colour: keyword, string, comment, number, name
(of a function or class where it is defined), builtin, decorator.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

TokenSpan = tuple[int, int, str]
"""Half-open range of characters of a line, and the kind of token."""

KINDS = ("keyword", "string", "comment", "number", "name", "builtin", "decorator")

MAX_COLOURED = 2_000
"""Lines longer than this many characters (minified code, data) stay without colour."""


# Asking Pygments by file name compiles some 900 patterns (100 ms), asking by alias none.
_ALIASES = {
    "bash": "bash",
    "c": "c",
    "cc": "cpp",
    "cfg": "ini",
    "cpp": "cpp",
    "cu": "cuda",
    "h": "cpp",
    "hpp": "cpp",
    "ini": "ini",
    "ipynb": "json",
    "json": "json",
    "md": "markdown",
    "py": "python",
    "pyi": "python",
    "sh": "bash",
    "toml": "toml",
    "yaml": "yaml",
    "yml": "yaml",
}


def lexer_for(path: str) -> Any | None:
    """The Pygments lexer for a file name, or None where there is none."""
    name = path.rsplit("/", 1)[-1]
    alias = _ALIASES.get(name.rpartition(".")[2].lower()) if "." in name else None
    return _lexer(alias, "" if alias else name)


@lru_cache(maxsize=256)
def _lexer(alias: str | None, name: str) -> Any | None:
    # Imported late: a cockpit without an open diff need not spend the time.
    from pygments.lexers import (  # type: ignore[import-untyped]
        get_lexer_by_name,
        get_lexer_for_filename,
    )
    from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    keep = {"stripnl": False, "ensurenl": False}
    try:
        if alias:
            return get_lexer_by_name(alias, **keep)
        lexer = get_lexer_for_filename(name, **keep)
    except (ClassNotFound, ValueError):
        return None
    return None if isinstance(lexer, TextLexer) else lexer


@lru_cache(maxsize=512)
def _kind(token: Any) -> str | None:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]

    for parent, kind in (
        (Comment, "comment"),
        (String, "string"),
        (Number, "number"),
        (Keyword, "keyword"),
        (Operator.Word, "keyword"),
        (Name.Decorator, "decorator"),
        (Name.Function, "name"),
        (Name.Class, "name"),
        (Name.Builtin, "builtin"),
        (Name.Tag, "keyword"),
        (Name.Attribute, "name"),
    ):
        if token in parent:
            return kind
    return None


def colour(path: str, lines: list[str]) -> list[list[TokenSpan]]:
    """Token spans of each of some consecutive lines of a file; empty where nothing is known."""
    out: list[list[TokenSpan]] = [[] for _ in lines]
    lexer = lexer_for(path)
    if lexer is None:
        return out
    # A line break of another kind inside a line would move every line below it.
    clean = [line[:MAX_COLOURED].replace("\r", " ").replace("\n", " ") for line in lines]
    row, column = 0, 0
    for _, token, value in lexer.get_tokens_unprocessed("\n".join(clean)):
        kind = _kind(token)
        for at, piece in enumerate(value.split("\n")):
            if at:
                row, column = row + 1, 0
            if row >= len(out):
                return out
            if kind and piece:
                out[row].append((column, column + len(piece), kind))
            column += len(piece)
    return out
