"""Diagnosis of whole logs: faults of every kind are found, and healthy runs open nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.body import JSON
from core.detectors.output_look import Line
from core.diagnose import diagnose_text
from core.log_file import LogText
from tests.core.diagnosing.healthy import HEALTHY as PLAIN
from tests.core.diagnosing.healthy_more import MORE
from tests.core.diagnosing.healthy_short import FEW
from tests.core.diagnosing.healthy_told import TOLD_WELL
from tests.core.diagnosing.loud import LOUD
from tests.core.diagnosing.short import SHORT
from tests.core.diagnosing.short_more import MORE_SHORT
from tests.core.diagnosing.short_told import TOLD_SHORT
from tests.core.diagnosing.silent import SILENT

HEALTHY = PLAIN | MORE | FEW | TOLD_WELL


def diagnosis(text: str) -> JSON:
    lines = [Line(i, t) for i, t in enumerate(text.split("\n"), 1)]
    return diagnose_text(LogText("a.log", lines, len(lines), len(text)))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_opens_nothing(name: str) -> None:
    found = diagnosis(HEALTHY[name])
    assert found["findings"] == []
    assert (found["category"], found["silent"]) == (None, False)


@pytest.mark.parametrize("name", [n for n, log in HEALTHY.items() if log.count("\n") > 12])
def test_a_part_of_a_healthy_log_complains_of_nothing(name: str) -> None:
    lines = HEALTHY[name].split("\n")
    middle = len(lines) // 2
    for part in (lines[:3], lines[:8], lines[middle:][:4], lines[middle:][:10], lines[-8:]):
        found = {f["detector"] for f in diagnosis("\n".join(part))["findings"]}
        assert not found & {"told", "about", "sides_apart"}, part


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_failure_is_seen(name: str) -> None:
    log, category, detector = SILENT[name]
    found = diagnosis(log)
    assert (found["category"], found["silent"]) == (category, True), found["findings"]
    first = found["findings"][0]
    assert first["detector"] == detector
    assert first["next_step"].endswith(".")
    assert first["threshold"]
    whole = log.split("\n")
    for item in first["evidence"]:  # every line is quoted from where it says
        if item["line"] and not item["text"].startswith("Metric: "):
            assert item["text"][:40].strip() in whole[item["line"] - 1] or ":" in item["text"]


@pytest.mark.parametrize(("log", "category", "silent"), [*SHORT, *MORE_SHORT, *TOLD_SHORT])
def test_a_few_lines_say_enough(log: str, category: str, silent: bool) -> None:
    found = diagnosis(log)
    assert (found["category"], found["silent"]) == (category, silent), found["findings"]


@pytest.mark.parametrize("name", LOUD)
def test_an_error_is_put_in_its_category(name: str) -> None:
    log, category, detector = LOUD[name]
    found = diagnosis(log)
    assert (found["category"], found["silent"]) == (category, False), found["findings"]
    assert found["findings"][0]["detector"] == detector
    assert found["ended"] == "error"
    assert sum(not f["silent"] for f in found["findings"]) == 1  # one error speaks


@pytest.mark.parametrize("name", LOUD)
def test_an_error_after_which_the_run_went_on_is_no_failure(name: str) -> None:
    more = "\n".join(f"step {100 + i * 10} loss {1.9 * 0.97**i:.4f}" for i in range(30))
    found = diagnosis(LOUD[name][0] + "\nretrying with other settings\n" + more + "\ndone")
    assert [f for f in found["findings"] if not f["silent"]] == []


# --- public cases ----------------------------------------------------------------------------


def _cases() -> Path | None:
    named = os.environ.get("PILOTAGE_CASES")
    beside = Path(__file__).parents[3].parent / "shared" / "data" / "cases.jsonl"
    path = Path(named) if named else beside
    return path if path.is_file() else None


#: Cases of which the log alone shows less than the thread: what is asked of them is the flag.
LITTLE_SIGN = frozenset({"https://github.com/huggingface/transformers/pull/13030"})


def test_public_cases_are_put_where_their_threads_put_them() -> None:
    path = _cases()
    if path is None:
        pytest.skip("no file of public cases: set PILOTAGE_CASES to a cases.jsonl")
    cases = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    assert len(cases) >= 42
    wrong = []
    for case in cases:
        found = diagnosis(case["symptom_log"])
        assert found["silent"] == case["silent"], case["url"]
        if found["category"] != case["category"] and case["url"] not in LITTLE_SIGN:
            wrong.append((case["url"], case["category"], found["category"]))
    assert len(wrong) <= 0.1 * len(cases), wrong
