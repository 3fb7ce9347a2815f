"""Which driver a configuration means."""

from __future__ import annotations

from pathlib import Path

from core.agents.base import Driver
from core.config import ConfigError, SessionConfig


def make_driver(config: SessionConfig) -> Driver:
    """The driver of a session; raises :class:`ConfigError` for one that does not exist here."""
    agent = config.agent
    if agent.driver == "scripted":
        from core.agents.scripted import ScriptedDriver

        return ScriptedDriver(Path(agent.script), agent.speed)
    if agent.driver == "manual":
        from core.agents.manual import ManualDriver

        return ManualDriver()
    raise ConfigError(f"There is no driver {agent.driver!r} in this release.")


def check_driver(config: SessionConfig) -> None:
    """Raise a :class:`PilotageError` for what a driver would fail on before its first word.

    Asked before a session is made, so that a mistake in a script is bad input and no session.
    """
    if config.agent.driver == "scripted":
        from core.agents.script import load

        load(Path(config.agent.script))
