"""What is said of a measurement: verdict, exit code, table, one object; and of a probe's records."""

from __future__ import annotations

import json

import pytest

from core.bench import report as reporting
from core.bench.compare import Comparison, Verdict
from core.bench.probe import Case, Report
from core.bench.worker import check_records, own_ms
from core.runs.records import FinishRecord, ProbeErrorRecord, Record, StepRecord

FINE = Comparison(0.025, 0.02525, 1.01, 0.99, 1.03, 1.011, 1.012, 270)
ADDED = {"compiles": 0, "transfers_from": 0}


def case(state: str = "pass", *reasons: str, judged: bool = True) -> Case:
    verdict = Verdict(state, reasons)  # type: ignore[arg-type]
    return Case("xla", "transformer", verdict, 64, 29, FINE, ADDED, judged=judged)


def made(*cases: Case) -> Report:
    return Report(
        "/usr/bin/python",
        list(cases),
        {"xla": 0.21},
        {"torch": "2.9.1", "torch_xla": None},
        [0.5, 1.25],
        2,
    )


def test_it_holds_only_if_every_judged_case_passed() -> None:
    assert made(case(), case("shown", judged=False)).holds
    assert made(case(), case("fail", judged=False)).holds
    assert not made(case(), case("fail", "slow")).holds
    assert not made(case(), case("not run", "no torch_xla")).holds
    assert not made().holds
    assert not made(case("shown", judged=False)).holds


def test_the_object_has_every_number() -> None:
    result = json.loads(json.dumps(reporting.as_json(made(case()))))
    assert result == {
        "holds": True,
        "limit": 1.02,
        "judged_from_ms": 20.0,
        "python": "/usr/bin/python",
        "torch": "2.9.1",
        "torch_xla": None,
        "cpus": 2,
        "load": [0.5, 1.25],
        "own_ms": {"xla": 0.21},
        "cases": [
            {
                "device": "xla",
                "model": "transformer",
                "state": "pass",
                "reasons": [],
                "judged": True,
                "batch": 64,
                "tensors": 29,
                "steps": 270,
                "off_ms": 25.0,
                "on_ms": 25.25,
                "ratio": 1.01,
                "interval": [0.99, 1.03],
                "paired_ratio": 1.011,
                "processor_ratio": 1.012,
                "added": ADDED,
            }
        ],
    }


def test_the_table_fits_80_columns_and_says_why() -> None:
    nothing = Case("xla", "cnn", Verdict("not run", ("The Python of the runs has no torch_xla.",)))
    text = reporting.describe(made(case(), case("fail", "a step " + "takes longer " * 20), nothing))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:5] == ["device", "model", "off", "ms", "on"]
    assert lines[1].split() == [
        *("xla", "transformer", "25.00", "25.25", "1.010"),
        *("0.990", "to", "1.030", "1.012", "0", "pass"),
    ]
    assert lines[3].split() == ["xla", "cnn", *"------", "not", "run"]
    assert "  xla cnn: The Python of the runs has no torch_xla." in lines
    assert any("load average 0.50 to 1.25" in line for line in lines)
    assert "0.210 ms of a step on xla" in text
    assert lines[-1] == "It does not hold."


def test_a_pass_whose_interval_reaches_over_the_limit_is_pointed_out() -> None:
    assert "An interval reaches over 1.02" in reporting.describe(made(case()))


# --- the probe's records against the process that it watched ---------------------------------

COUNTERS = {"compiles": 2, "executes": 3, "transfers_from": 1}


def finish(**fields: int) -> FinishRecord:
    numbers = {"steps": 3, "compiles": 2, "executes": 3, "transfers": 1, "own_transfers": 0}
    return FinishRecord(**{**numbers, "own_compiles": 0, "dropped": 0, **fields})  # type: ignore[arg-type]


STEPS: list[Record] = [
    StepRecord(n=1, compiles=1, executes=1, transfers=0),
    StepRecord(n=2, compiles=1, executes=1, transfers=1),
    StepRecord(n=3, compiles=0, executes=1, transfers=0),
]


def test_records_that_agree() -> None:
    assert check_records([*STEPS, finish()], 3, COUNTERS, whole=True) == []
    assert check_records([*STEPS, finish()], 3, None, whole=False) == []


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "the probe recorded 0 of 3 steps"),
        ([*STEPS[:2], finish()], "the probe recorded 2 of 3 steps"),
        (STEPS, "the probe wrote no record of its end"),
        ([*STEPS, ProbeErrorRecord(where="clip", error="boom"), finish()], "at something: boom"),
        ([*STEPS, finish(dropped=4)], "4 records were not written"),
        ([*STEPS, finish(compiles=1)], "compiles: the probe says 1, XLA counts 2"),
        ([*STEPS, finish(executes=9)], "executions: the probe says 9, XLA counts 3"),
        ([*STEPS, finish(transfers=0)], "to the host: the probe says 0, XLA counts 1"),
        ([*STEPS, finish(transfers=0, own_transfers=1)], "made 1 transfers of its own"),
        ([*STEPS, finish(own_compiles=1)], "made 1 compiles of its own"),
        ([STEPS[0], STEPS[0], STEPS[2], finish()], "steps add up to 0, XLA counts 1"),
    ],
)
def test_records_that_disagree(records: list[Record], said: str) -> None:
    assert any(said in line for line in check_records(records, 3, COUNTERS, whole=True))


def test_the_probes_own_account_is_by_step() -> None:
    assert own_ms([FinishRecord(steps=4, own_ms=2.0)]) == 0.5
    assert own_ms([FinishRecord(steps=0, own_ms=2.0)]) is None
    assert own_ms([]) is None
