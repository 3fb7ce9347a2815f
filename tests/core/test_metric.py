"""Reading the metric."""

from __future__ import annotations

import math

import pytest

from core.errors import PilotageError
from core.metric import higher_is_better, read_metric
from core.state_parts import LogLine


def read(*lines: str, pattern: str = r"acc: (\S+)") -> float | None:
    return read_metric(list(lines), {"pattern": pattern})


def test_the_last_value_of_the_last_line_counts() -> None:
    assert read("acc: 0.1", "acc: 0.2 acc: 0.3", "done") == 0.3


@pytest.mark.parametrize(
    ("text", "value"),
    [("91.5%", 91.5), ("1e-3", 0.001), ("-2", -2.0), ("0.95.", 0.95), ("inf", math.inf)],
)
def test_numbers_come_in_many_forms(text: str, value: float) -> None:
    assert read(f"acc: {text}") == value


def test_nan_is_a_value_and_words_are_passed_over() -> None:
    assert math.isnan(read("acc: nan") or 0.0)
    assert read("acc: 0.5", "acc: pending") == 0.5
    assert read("acc: pending") is None
    assert read() is None


def test_the_number_is_the_named_group_the_first_group_or_the_match() -> None:
    assert read("a 1 b 2", pattern=r"a (\d) b (?P<value>\d)") == 2
    assert read("a 1 b 2", pattern=r"a (\d) b (\d)") == 1
    assert read("v7", pattern=r"(?<=v)\d") == 7


def test_log_lines_are_read_too_and_no_pattern_is_no_value() -> None:
    assert read_metric([LogLine(1, "stdout", "acc: 0.5")], {"pattern": "acc: (.*)"}) == 0.5
    assert read_metric(["acc: 0.5"], {}) is None
    assert read_metric(["acc: 0.5"], {"pattern": 3}) is None


def test_a_bad_pattern_is_said_in_a_sentence() -> None:
    with pytest.raises(PilotageError, match="no regular expression"):
        read("x", pattern="(")


def test_higher_is_better_unless_said_otherwise() -> None:
    assert higher_is_better({})
    assert not higher_is_better({"higher_is_better": False})
