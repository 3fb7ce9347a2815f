"""Errors a person reads. Each message is a sentence: what happened, to what, what to do."""

from __future__ import annotations


class PilotageError(Exception):
    """Base of every error the product raises on purpose; ``str(error)`` can be shown as it is."""


class SessionError(PilotageError):
    """A session, or its event log, could not be found, read or written."""


class LostError(SessionError):
    """A session's file is damaged, deleted or replaced: trying again can't help."""
