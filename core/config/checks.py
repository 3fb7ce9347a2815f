"""Values of a configuration that have the right type and are still wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import inf
from pathlib import PurePosixPath

from core.config.sections import (
    DRIVERS,
    LATER_DRIVERS,
    POLICIES,
    PRECISIONS,
    Agent,
    Guard,
    Metric,
    Parity,
    Prices,
    SessionConfig,
)
from core.config.source import Source

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MAX_COMMAND = 131_072
"""Bytes: Linux's ``MAX_ARG_STRLEN``, above which no argument of ``sh -c`` can be."""

HANG_ACTIONS = ("warn", "stop")
"""What is done with a run that has stalled."""

MAX_REPEATS = 20
"""Of parity runs of the reference; each is a short run."""

_TARGET_KIND = re.compile(r"xla-cpu|tpu-v[0-9]+[a-z]*(-[0-9]+)?")


def check(config: SessionConfig, source: Source) -> None:
    """Raise the :class:`ConfigError` of the first value that can't be used."""
    for section, command, env in (
        ("reference", config.reference.command, config.reference.env),
        ("target", config.target.command, config.target.env),
    ):
        if section == "reference" and config.reference.bundle and not command.strip():
            command = "python"  # the bundle has the command; only env is left to look at
        _check_command(section, command, env, source)
    if not _TARGET_KIND.fullmatch(config.target.kind):
        raise source.error(
            "target",
            "kind",
            f"there is no target kind {config.target.kind!r}: use xla-cpu or tpu-<type>-<chips>, "
            "such as tpu-v5e-4.",
        )
    if config.target.chips < 1:
        raise source.error("target", "chips", "chips in [target] has to be 1 or more.")
    for seed in config.reference.seeds:
        if not 0 <= seed < 2**32:
            raise source.error(
                "reference", "seeds", f"the seed {seed} in [reference] has to be 0 to 2**32 - 1."
            )
    if config.reference.names_seed and not config.reference.seeds:
        raise source.error(
            "reference",
            "command",
            "[reference] contains {seed}, and there are no seeds: set seeds = [0], or write the "
            "number in its place.",
        )
    if len(set(config.reference.seeds)) < len(config.reference.seeds):
        raise source.error("reference", "seeds", "seeds in [reference] names one seed twice.")
    if not 0 <= config.reference.repeats <= MAX_REPEATS:
        raise source.error(
            "reference", "repeats", f"repeats in [reference] has to be 0 to {MAX_REPEATS}."
        )
    if config.target.precision not in PRECISIONS:
        raise source.error(
            "target",
            "precision",
            f"there is no precision {config.target.precision!r}: use "
            f"{' or '.join(p for p in PRECISIONS if p)}, or leave it out for what the reference "
            "computes in.",
        )
    _check_parity(config.parity, source)
    _check_metric(config.metric, source)
    _check_prices(config.prices, source)
    _check_agent(config.agent, source)
    if config.guard != Guard():
        _check_guard(config.guard, source)
    for section, key, number in (
        ("agent", "speed", config.agent.speed),
        ("budgets", "agent_usd", config.budgets.agent_usd),
        ("budgets", "attempts", config.budgets.attempts),
        ("budgets", "hours", config.budgets.hours),
        ("operator", "rate_usd_per_hour", config.operator.rate_usd_per_hour),
        ("recorder", "grace_s", config.recorder.grace_s),
        ("recorder", "run_limit_s", config.recorder.run_limit_s),
        ("recorder", "shell_limit_s", config.recorder.shell_limit_s),
        ("recorder", "hang_s", config.recorder.hang_s),
        ("recorder", "max_output_mb", config.recorder.max_output_mb),
    ):
        if number < 0:
            raise source.error(section, key, f"{key} in [{section}] can't be below 0.")

    if config.recorder.hang_action not in HANG_ACTIONS:
        raise source.error(
            "recorder",
            "hang_action",
            f"there is no hang_action {config.recorder.hang_action!r}: use "
            f"{' or '.join(HANG_ACTIONS)}.",
        )


def _check_command(section: str, command: str, env: Mapping[str, str], source: Source) -> None:
    if not command.strip():
        raise source.error(
            section, "command", f"[{section}] needs a command: how the project is started."
        )
    if len(command.encode("utf-8", "replace")) >= MAX_COMMAND:
        raise source.error(
            section,
            "command",
            f"command in [{section}] is longer than {MAX_COMMAND:,} bytes, which Linux can't "
            "start. Put it into a script and name that.",
        )
    if "\0" in command:
        raise source.error(
            section, "command", f"command in [{section}] has a NUL character, which none can."
        )
    for name, value in env.items():
        if "\0" in value:
            raise source.error(
                f"{section}.env", name, f"{name} in env of [{section}] has a NUL character."
            )
        if not _ENV_NAME.fullmatch(name):
            raise source.error(
                f"{section}.env", name, f"{name!r} in env of [{section}] is no variable name."
            )


def _check_parity(parity: Parity, source: Source) -> None:
    if parity.budget_mb < 1:
        raise source.error("parity", "budget_mb", "budget_mb in [parity] has to be 1 or more.")
    for old, new in parity.rename.items():
        if not old.strip() or not new.strip() or "\0" in old + new:
            raise source.error(
                "parity.rename",
                old,
                f"{old!r} = {new!r} in rename of [parity] has to be a name in the reference and one "
                "in the migrated code.",
            )
    if len(json.dumps(parity.rename)) >= MAX_COMMAND - 100:  # it travels in one variable
        raise source.error(
            "parity",
            "rename",
            f"rename in [parity] is longer than {MAX_COMMAND:,} bytes. Name modules, which stand for "
            "all their parameters.",
        )


def _check_metric(metric: Metric, source: Source) -> None:
    if metric.pattern:
        try:
            groups = re.compile(metric.pattern).groups
        except (re.error, RecursionError, OverflowError) as err:
            raise source.error(
                "metric", "pattern", f"pattern in [metric] is no regular expression: {err}."
            ) from err
        if not groups:
            raise source.error(
                "metric", "pattern", "pattern in [metric] needs a group ( ) around the number."
            )
    if metric.points < 0:
        raise source.error(
            "metric",
            "points",
            "points in [metric] has to be above 0, or 0 for a metric that is compared by its share.",
        )
    if metric.reader:
        from core.readings.training import READERS

        if metric.reader not in READERS:
            raise source.error(
                "metric",
                "reader",
                f"there is no reader {metric.reader!r}. Readers: {', '.join(READERS)}.",
            )
    if metric.file:
        path = PurePosixPath(metric.file)
        if path.is_absolute() or ".." in path.parts or "\0" in metric.file:
            raise source.error(
                "metric",
                "file",
                f"file {metric.file!r} in [metric] has to be a path inside the project, relative "
                "to it: each run writes its own.",
            )


def _check_agent(agent: Agent, source: Source) -> None:
    if agent.driver in LATER_DRIVERS:
        raise source.error(
            "agent",
            "driver",
            f"the driver {agent.driver!r} is not in this release. Use manual, where you make the "
            "edits and Pilotage runs and measures, or scripted.",
        )
    if agent.driver not in DRIVERS:
        raise source.error(
            "agent",
            "driver",
            f"there is no driver {agent.driver!r}. Drivers: {', '.join(DRIVERS)}.",
        )
    if agent.driver == "scripted" and not agent.script:
        raise source.error(
            "agent",
            "script",
            'the scripted driver needs a script in [agent]. Without one set driver = "manual": '
            "you make the edits, and Pilotage runs and measures.",
        )
    if not agent.policy:
        return
    from core.agents.base import TOOLS

    for tool, word in agent.policy.items():
        if tool not in TOOLS:
            raise source.error(
                "agent.policy",
                tool,
                f"there is no tool {tool!r} for a policy. Tools: {', '.join(TOOLS)}.",
            )
        if word not in POLICIES:
            raise source.error(
                "agent.policy",
                tool,
                f"the policy of {tool} has to be {', '.join(POLICIES[:-1])} or {POLICIES[-1]}, "
                f"not {word!r}.",
            )


def _check_guard(guard: Guard, source: Source) -> None:
    from core.guard.kinds import KINDS  # not above: few files have the section

    for kind in guard.ask:
        if kind not in KINDS and kind != "all":
            raise source.error(
                "guard",
                "ask",
                f"there is no kind of change {kind!r} to ask for. Kinds: all, {', '.join(KINDS)}.",
            )
    for glob in guard.protect:
        inside = not glob.startswith("/") and ".." not in PurePosixPath(glob).parts
        if not glob.strip() or not inside or "\0" in glob:
            raise source.error(
                "guard",
                "protect",
                f"{glob!r} in protect of [guard] is no glob of files relative to the project, "
                "such as tests/**.",
            )


def _check_prices(prices: Prices, source: Source) -> None:
    from core.money import price_table

    shipped = price_table()
    for key, row in prices.override.items():
        table = row if isinstance(row, dict) else {"usd_per_hour": row}
        rate = table.get("usd_per_hour")
        good = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < inf
        scope = table.get("scope", shipped[key].scope if key in shipped else "")
        if not good or scope not in ("chip", "instance", "instance/8"):
            raise source.error(
                "prices.override",
                key,
                f"the price of {key!r} needs usd_per_hour of 0 or more, and a scope, chip or "
                "instance, where the price table has no such key.",
            )
    for side, key in (("reference", prices.reference), ("target", prices.target)):
        if key and key not in shipped and key not in prices.override:
            known = ", ".join(sorted(shipped))
            raise source.error("prices", side, f"there is no price {key!r}. Prices: {known}.")
