"""Words, signs and colours of check states, for pane and detail alike."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from core.levels import FAIL, NOT_RUN, PASS, STALE, WAIVED, CheckStatus
from tui.theme import Palette
from tui.wording import one_line

WORDS = {PASS: "pass", FAIL: "FAIL", NOT_RUN: "not run", STALE: "stale", WAIVED: "waived"}
SIGNS = {PASS: "✓", FAIL: "✗", NOT_RUN: "·", STALE: "~", WAIVED: "w"}


def state_style(state: str, colours: Palette) -> Style:
    """The colour that repeats what sign and word of a check state say."""
    return {
        PASS: colours.ok,
        FAIL: colours.bad,
        STALE: colours.warn,
        WAIVED: colours.warn,
    }.get(state, colours.muted)


def failed_before(status: CheckStatus) -> bool:
    """Whether a stale check had failed when it was measured."""
    return status.state == STALE and status.result is not None and status.result.body.state == FAIL


def state_words(status: CheckStatus, colours: Palette) -> Text:
    """``FAIL``; of a stale check also what it was: ``stale (was FAIL)``."""
    text = Text().append(WORDS[status.state], state_style(status.state, colours))
    if status.state == STALE and status.result is not None:
        was = status.result.body.state
        style = state_style(was, colours) if was == FAIL else colours.muted
        text.append(" (was ", colours.muted).append(WORDS.get(was, one_line(was, 20)), style)
        text.append(")", colours.muted)
    return text
