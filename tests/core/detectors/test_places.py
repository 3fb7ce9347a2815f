"""The lines of the program that XLA's own reports name, in the findings that they explain."""

from __future__ import annotations

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, each

CWD = "/home/user/project"
SYNC = f"step ({CWD}/train.py:40)"
READ = f"log ({CWD}/train.py:52)"
LIBRARY = "mask (/venv/lib/python3.11/site-packages/transformers/masking_utils.py:354)"
TORCH = "sync (/venv/lib/python3.11/site-packages/torch_xla/torch_xla.py:87)"


def reported(*reports: tuple[str, str, list[str]], **fields: object) -> Change:
    """Reports of compilations: cause, the project's line, the frames innermost first."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        each(**fields)(steps, signals)
        signals.extend(
            {
                "k": "xla_compile",
                "kind": "compilation",
                "n": n,
                "cause_kind": cause,
                "at": at,
                "frames": frames,
            }
            for n, (cause, at, frames) in enumerate(reports, 1)
        )

    return change


def test_a_recompile_names_the_line_that_its_graphs_end_at() -> None:
    reports = [("sync", SYNC, [TORCH, SYNC])] * 30
    finding = attempt(reported(*reports, compiles=1), cwd=CWD)["recompile"]
    assert finding.evidence[-1] == "compiled at train.py:40 in step: 30 of the last 30"


def test_a_read_names_its_line_and_the_library_that_reads() -> None:
    reports = [("value read", READ, [READ]), ("sync", SYNC, [TORCH, SYNC])]
    finding = attempt(reported(*reports, transfers=1, executes=2), cwd=CWD)["transfer_per_step"]
    assert finding.evidence[1:] == ["a value is read at train.py:52 in log"]
    inside = reported(("value read", READ, [LIBRARY, READ]), transfers=1, executes=2)
    assert attempt(inside, cwd=CWD)["transfer_per_step"].evidence[1:] == [
        (
            "a value is read at train.py:52 in log, by way of "
            "transformers/masking_utils.py:354 in mask"
        )
    ]


def test_a_read_behind_the_sync_is_not_blamed_on_another_line() -> None:
    """One execution a step: the reads compile nothing, and the one report is of an evaluation."""
    other = reported(("value read", READ, [READ]), transfers=1, executes=1)
    assert len(attempt(other, cwd=CWD)["transfer_per_step"].evidence) == 1


def test_the_probes_own_word_names_a_read_behind_the_sync() -> None:
    line = each(transfers=1, executes=1, read_at=f"{CWD}/train.py:52 in log")
    assert attempt(line, cwd=CWD)["transfer_per_step"].evidence[1:] == [
        "a value is read at train.py:52 in log, in 37 of the 37 steps"
    ]
    both = reported(
        ("value read", READ, [READ]), transfers=1, executes=2, read_at=f"{CWD}/train.py:52 in log"
    )
    assert len(attempt(both, cwd=CWD)["transfer_per_step"].evidence) == 2


def test_reports_of_any_shape_break_nothing() -> None:
    junk: list[object] = [None, 1, [], {}, [1], [None], "x (y)", "a (b:c)"]

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        each(compiles=1, transfers=1, executes=2)(steps, signals)
        for at in junk:
            for frames in junk:
                signals.append(
                    {"k": "xla_compile", "kind": "compilation", "at": at, "frames": frames}
                )

    assert {"recompile", "transfer_per_step"} == set(attempt(change))


def test_executions_that_are_slow_on_the_average_are_seen_in_a_metrics_file() -> None:
    def metrics(total: object) -> Change:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            time = {"samples": 10, "total": total, "unit": "s"}
            signals.append({"k": "xla_metrics", "step": 10, "metrics": {"ExecuteTime": time}})

        return change

    found = attempt(metrics(450.0))
    assert set(found) == {"execution_too_slow"}
    assert found["execution_too_slow"].evidence == ["10 executions took 45 s on the average"]
    assert attempt(metrics(200.0)) == attempt(metrics(None)) == {}
