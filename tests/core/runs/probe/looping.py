"""Loop programs under the probe, in this Python or in others: running them and comparing.

``PILOTAGE_PROBE_PYTHONS`` names the interpreters, separated as in ``PATH``; without it the
programs run in the Python that runs the tests. A program says, section by section, what its steps
were by its own arithmetic (``programs/loop.py``); ``compare`` holds the probe's records to it.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.runs import probe_setup
from core.runs.records import FinishRecord, Malformed, ProbeErrorRecord, Record, StepRecord
from core.runs.tail import RecordTail

PROGRAMS = Path(__file__).parent / "programs"
# Not resolved: the python of an environment is a link, and known by where the link is.
PYTHONS = [
    os.path.abspath(p)  # noqa: PTH100
    for p in os.environ.get("PILOTAGE_PROBE_PYTHONS", "").split(os.pathsep)
    if p.strip()
] or [sys.executable]
MODES = ("light", "parity")
# What starts slowly runs in both modes only where other Pythons are asked for (the matrix).
MATRIX = bool(os.environ.get("PILOTAGE_PROBE_PYTHONS"))
FEW_MODES = MODES if MATRIX else ("light",)

# Light mode reads these at steps 1, 2, 5, 10, 20, ... only; a clip may tell grad_norm before.
SPARSE = {"param_norm", "update_norm", "params_changed", "norm_elements", "grad_norm_after"}
PARITY = {"by_hand"}


def sections(program: str) -> list[str]:
    """The names of a program's sections."""
    return re.findall(r"^@section\ndef (\w+)", (PROGRAMS / program).read_text(), re.MULTILINE)


class Seen(NamedTuple):
    """What a program said and what the probe recorded of it."""

    told: dict[str, dict[str, Any]]
    records: list[Record]
    out: str
    err: str
    code: int
    mode: str

    def steps(self, section: str) -> list[StepRecord]:
        tid = self.told[section]["tid"]
        found = [r for r in self.records if isinstance(r, StepRecord) and r.tid == tid]
        return found

    def of(self, section: str, kind: str) -> list[Record]:
        tid = self.told[section]["tid"]
        return [r for r in self.records if kind == r.K and r.tid == tid]

    @property
    def finish(self) -> FinishRecord:
        (found,) = [r for r in self.records if isinstance(r, FinishRecord)]
        return found


@functools.cache
def modules_of(python: str) -> frozenset[str]:
    """Which of the libraries in question a Python has."""
    names = ["torch", "torch_xla", "transformers", "accelerate", "lightning"]
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{python} does not run: {done.stderr}"
    return frozenset(re.findall(r"\w+", done.stdout))


def run_loop(
    where: Path,
    python: str,
    program: str,
    mode: str,
    *arguments: str,
    needs: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    steps: int = 10_000,
) -> Seen:
    """Run one of ``programs`` to its end, and read what it said and what the probe recorded.

    With a ``mode`` that is none of the probe's it runs alone. Skips the test where the Python
    lacks torch or a library that the program ``needs``.
    """
    for name in ("torch", *needs):
        if name not in modules_of(python):
            pytest.skip(f"{python} has no {name}")
    given = {}
    if mode in MODES:
        given = probe_setup.install(where, mode=mode, steps=steps)  # type: ignore[arg-type]
    done = subprocess.run(
        [python, str(PROGRAMS / program), *arguments],
        cwd=where,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **(env or {}),
            **given,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    records = RecordTail(probe_setup.records_dir(where)).finish() if given else []
    assert not [r for r in records if isinstance(r, Malformed)]
    kept = [r for r in records if isinstance(r, Record)]
    lines = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    told = {line["section"]: line for line in lines}
    return Seen(told, kept, done.stdout, done.stderr, done.returncode, mode)


def compare(seen: Seen, section: str) -> None:
    """Hold the probe's records of one section to what the section said itself."""
    assert section in seen.told, f"exit {seen.code}\n{seen.out[-2000:]}\n{seen.err[-4000:]}"
    told = seen.told[section]
    if "skip" in told:
        pytest.skip(told["skip"])
    assert "error" not in told, told.get("error")
    errors = [r for r in seen.records if isinstance(r, ProbeErrorRecord)]
    assert not errors, errors
    steps = seen.steps(section)
    if not steps and told.get("may be unseen"):
        return
    assert [s.n for s in steps] == list(range(1, len(told["steps"]) + 1))
    for step, expected in zip(steps, told["steps"], strict=True):
        _compare_step(step, expected, seen.mode)
    for kind in {record["k"] for record in told["records"]}:
        wanted = [r for r in told["records"] if r["k"] == kind]
        found = seen.of(section, kind)
        assert len(found) == len(wanted), (kind, found)
        for record, expected in zip(found, wanted, strict=True):
            for name in expected.keys() - {"k"}:
                assert _plain(getattr(record, name)) == expected[name], (kind, name, record)


def _compare_step(step: StepRecord, expected: dict[str, Any], mode: str) -> None:
    expected = dict(expected)
    override = expected.pop(mode, {})
    expected.pop("light", None)
    expected.pop("parity", None)
    always = set(expected.pop("always", ()))
    expected.update(override)
    sparse = mode == "parity" or str(step.n).rstrip("0") in ("1", "2", "5")
    why = expected.pop("why", None)
    if why is not None:
        assert step.missing is not None and step.missing.get(why), (why, step)
    for name, value in expected.items():
        where = f"{name} of step {step.n}: {step}"
        if name == "lr":
            assert step.groups[0]["lr"] == pytest.approx(value, rel=1e-6), where
            continue
        if name == "clips":
            found: Any = [[c.fn, c.max_norm, c.norm_type, c.total_norm] for c in step.clips]
            assert len(found) == len(value), where
            for one, other in zip(found, value, strict=True):
                assert one[0] == other[0], where
                assert one[1:] == pytest.approx(other[1:], rel=1e-4, nan_ok=True), where
            continue
        found = _plain(getattr(step, name))
        unread = (name in SPARSE and not sparse) or (name in PARITY and mode != "parity")
        if name in ("grad_norm", "grad_norm_source") and not sparse and name not in always:
            unread = unread or name not in override
        if unread:
            assert found is None, where
        elif isinstance(value, float) and not math.isnan(value):
            # An update of float32 parameters is itself a rounded number.
            assert found == pytest.approx(value, rel=1e-4, abs=1e-7), where
        elif isinstance(value, list):
            assert found == pytest.approx(value, rel=1e-4), where
        else:
            assert found == value or (found != found and value != value), where


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def without_calls(text: str) -> list[str]:
    """Without the frames of torch's own way from a module's call to its forward."""
    frame = re.compile(
        r'  File "\S+torch/nn/modules/module\.py", line \d+, in (?:_call_impl|inner)\n(?:    .*\n)*'
    )
    return frame.sub("", text).splitlines()
