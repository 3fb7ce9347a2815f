"""Processes of runs whose recorder and supervisor are both gone."""

from __future__ import annotations

from core.runs import processes

SESSION_VARIABLE = "PILOTAGE_SESSION_ID"
RUN_VARIABLE = "PILOTAGE_RUN_ID"


def kill_leftovers(session_id: str, grace_s: float = 1.0) -> list[int]:
    """End every process that a run of this session left behind; returns their ids.

    They are known by ``PILOTAGE_SESSION_ID`` in the environment they were started with.
    """
    return processes.end_all(lambda: processes.marked(SESSION_VARIABLE, session_id), grace_s)


def kill_run(run_id: str, grace_s: float = 0.0) -> list[int]:
    """End every process of one run; returns their ids."""
    return processes.end_all(lambda: processes.marked(RUN_VARIABLE, run_id), grace_s)
