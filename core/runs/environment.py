"""The environment of a run: the recorder's, without what is ours or secret, plus what is stated."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# Ours, and what would make the run's Python ours. A run that needs one of them is given it.
_OURS = re.compile(
    r"PYTHONPATH|PYTHONHOME|PYTHONSTARTUP|PYTHONSAFEPATH|PYTHONNOUSERSITE|VIRTUAL_ENV"
    r"|PILOTAGE_.*|TEXTUAL.*"
)
# Credentials by name. A token the project needs is given as an explicit addition.
_SECRET = re.compile(
    r"(ANTHROPIC|CLAUDE|OPENAI)_?.*|CLAUDECODE|AWS_(SECRET|SESSION).*|GOOGLE_APPLICATION_CREDENTIALS"
    r"|(.*_)?(API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH)(_.*)?"
    r"|(NETRC|SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO)",
    re.IGNORECASE,
)


def withheld(name: str) -> bool:
    """Whether a variable of the recorder's environment is kept from runs."""
    return bool(_OURS.fullmatch(name) or _SECRET.fullmatch(name))


def for_run(inherited: Mapping[str, str], additions: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a run."""
    env = {name: value for name, value in inherited.items() if not withheld(name)}
    env.update(additions)
    return env


def stated(inherited: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str | None]:
    """What differs from the recorder's environment, for the log; None: taken away.

    A value with something put before the inherited one, as in ``PATH``, is stated as that and
    ``$PATH``: the log goes to other people, and the rest is the operator's own.
    """
    changes: dict[str, str | None] = {}
    for name, value in env.items():
        old = inherited.get(name)
        if old and value != old and value.endswith(os.pathsep + old):
            changes[name] = f"{value.removesuffix(old)}${name}"
        elif value != old:
            changes[name] = value
    changes.update({name: None for name in inherited if name not in env})
    return dict(sorted(changes.items()))
