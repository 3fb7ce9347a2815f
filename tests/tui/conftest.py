"""What tests of the cockpit stand on: the clock on the wall shows UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def utc(isolated_environment: Path) -> Iterator[None]:
    """Make the C library read the TZ of the test's environment, whatever it has read before."""
    time.tzset()
    yield
    time.tzset()
