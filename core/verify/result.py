"""The metric of a run, as it was put on record when the run ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import PilotageError
from core.metric import MetricReading, check_settings, find_metric, is_configured, setting
from core.state_parts import Run
from core.verify.subject import NotRun


def metric_of(run: Run, config: Mapping[str, Any]) -> tuple[MetricReading | None, str]:
    """What was found, or null and the sentence that says why nothing was.

    A session of a release that put no result on record is read as that release did: by the
    pattern, in the lines. Raises :class:`NotRun` where nothing was or can be looked for.
    """
    if not is_configured(config):
        raise NotRun(
            "No metric is configured: set name and pattern in [metric], or reader, key or file."
        )
    try:
        check_settings(config)
        result = run.result
        if result is not None:
            if result.value is None:
                return None, result.problem or f"Run #{run.number} has no {result.name}."
            return MetricReading(result.value, result.source, result.how, result.text), ""
        if not setting(config, "pattern"):
            raise NotRun(
                f"The metric of run #{run.number} is not on record: set [metric] pattern, or run "
                "it again."
            )
        found = find_metric(run.lines, config)
    except PilotageError as error:
        raise NotRun(str(error)) from error
    name = setting(config, "name") or "metric"
    return found, f"Run #{run.number} printed no {name} that matches the pattern."


def shown(found: MetricReading) -> str:
    """What matched, for the evidence of a check."""
    return f"{found.source}, by {found.how}: {found.text}"
