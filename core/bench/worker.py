"""One process of the project's Python that makes training steps when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from core.bench.compare import Times
from core.errors import PilotageError
from core.runs import environment, probe_setup
from core.runs.records import FinishRecord, ProbeErrorRecord, Record, StepRecord
from core.runs.tail import RecordTail
from core.text import clean

PROGRAM = Path(__file__).parent / "programs" / "steps.py"
START_S = (
    180.0  # the import of torch_xla takes 4 s on an idle core, and many times that on a busy one
)
STEP_S = 5.0  # more for each step that is asked for
END_S = 60.0
MAX_LINE = 4 * 1024 * 1024  # bytes of one answer
MAX_NOISE = 64 * 1024  # bytes on standard output before the greeting: what `site` may have printed


_MISSING = re.compile(r"No module named '([\w.]{1,100})'")


class NotThere(PilotageError):
    """The project's Python could not import what a device needs; the sentence says what."""


def given(device: str, *, counting: bool) -> dict[str, str]:
    """Variables of a process: one thread for torch's operators, and XLA on the host.

    ``counting``: only XLA's counters matter, so it need not make the compiled code fast.
    """
    variables = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if device == "xla":
        variables["PJRT_DEVICE"] = "CPU"
        if counting:
            variables["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    return variables


class Worker:
    """A process of ``programs/steps.py``; a context manager that ends it whatever happens.

    ``directory``: its own, empty; gets the probe, its records and what the process prints.
    Methods raise PilotageError with a sentence if the process ends early or does not answer.
    """

    def __init__(
        self, python: str, device: str, directory: Path, *, probe: bool, counting: bool = False
    ) -> None:
        self.name = f"{device}, probe {'on' if probe else 'off'}"
        self.directory = directory
        self.probe = probe
        self.made = 0  # steps made, and those of them with the probe's hooks in place
        self.watched = 0
        self._rest = b""
        self._noise = directory / "output.log"
        directory.mkdir(parents=True, exist_ok=True)
        additions = given(device, counting=counting)
        if probe:
            additions |= probe_setup.install(directory, mode="light")
        with self._noise.open("wb") as output:
            try:
                self.process = subprocess.Popen(
                    [python, str(PROGRAM), device],
                    env=environment.for_run(os.environ, additions),
                    cwd=directory,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,  # ended as a group
                )
            except OSError as error:
                raise PilotageError(
                    f"{python} could not be started: {error.strerror or error}. "
                    "Name the Python of the runs with --python."
                ) from error

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process and what it started, at once; nothing if it has ended."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    # --- what it can be told -----------------------------------------------------------------

    def greet(self) -> dict[str, Any]:
        """Wait until torch is imported; versions of Python, torch and torch_xla."""
        try:
            return self._answer(START_S, greeting=True)
        except _Ended as error:
            said = self.said()
            missing = _MISSING.search(said[-1]) if said else None
            if missing is None:
                raise NotThere(str(error)) from None
            raise NotThere(f"The Python of the runs has no {missing[1]}.") from None

    def make(self, model: str, size: int, depth: int, batch: int) -> dict[str, int]:
        """Put a new model in place of the last; its numbers of tensors and parameters."""
        found = self._ask("make", model=model, size=size, depth=depth, batch=batch)
        return {name: int(found[name]) for name in ("tensors", "parameters")}

    def run(self, steps: int, *, watched: bool | None = None) -> Times:
        """Make steps; what each took.

        ``watched`` (in a process with the probe): whether the probe's hooks are in place during
        these steps; None leaves them alone. A process without the probe has nothing to switch.
        """
        switch = {} if watched is None else {"watched": watched}
        found = self._ask("run", seconds=START_S + STEP_S * steps, steps=steps, **switch)
        if watched is not None and not found["places"]:
            raise PilotageError(
                f"The probe is not in place in the process ({self.name}): there is nothing to "
                "compare. Is PYTHONPATH ignored by this Python?"
            )
        self.made += steps
        self.watched += steps if watched is not False else 0
        return Times(
            tuple(float(value) for value in found["seconds"]),
            tuple(float(value) for value in found["processor"]),
        )

    def counters(self) -> dict[str, int] | None:
        """Totals of the process by XLA's own counters; None where there are none."""
        found = self._ask("counters")["counters"]
        return None if found is None else {name: int(value) for name, value in found.items()}

    def end(self) -> None:
        """Let the process end in good order; its exit code has to be 0."""
        self._tell({"do": "end"})
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise PilotageError(
                f"The process ({self.name}) did not end in {END_S:.0f} s."
            ) from None
        if code:
            raise self._ended(f"ended with exit code {code}")

    def records(self) -> list[Record]:
        """What the probe has written, once the process has ended."""
        tail = RecordTail(probe_setup.records_dir(self.directory))
        return [record for record in tail.finish() if isinstance(record, Record)]

    def said(self) -> list[str]:
        """The last lines that the process printed."""
        with self._noise.open("rb") as file:
            file.seek(max(0, self._noise.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [clean(line)[:300] for line in lines if line.strip()][-5:]

    # --- the pipe ----------------------------------------------------------------------------

    def _ask(self, what: str, *, seconds: float = START_S, **fields: Any) -> dict[str, Any]:
        self._tell({"do": what, **fields})
        return self._answer(seconds)

    def _tell(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._ended("ended early") from None

    def _answer(self, seconds: float, *, greeting: bool = False) -> dict[str, Any]:
        until = time.monotonic() + seconds
        noise = 0
        while True:
            line = self._line(until)
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict) and (not greeting or value.get("bench") == 1):
                    return value
            noise += len(line)
            if not greeting or noise > MAX_NOISE:
                raise self._ended("answered with something that is no answer")

    def _line(self, until: float) -> bytes:
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise PilotageError(f"The process ({self.name}) did not answer in time.")
            chunk = os.read(fd, 65536)
            if not chunk:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_S)
                raise self._ended(f"ended early with exit code {self.process.returncode}")
            if len(self._rest) > MAX_LINE:
                raise self._ended("answered with a line that does not end")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, what: str) -> _Ended:
        said = self.said()
        return _Ended(
            f"The process ({self.name}) {what}"
            + (f"; its last line was: {said[-1]}" if said else " and printed nothing")
            + "."
        )


class _Ended(PilotageError):
    """The process is gone, or no longer talks sense."""


def own_ms(records: Sequence[Record]) -> float | None:
    """Milliseconds of a step (mean) that the probe says it took, its start included."""
    finish = next((r for r in records if isinstance(r, FinishRecord)), None)
    if finish is None or finish.own_ms is None or not finish.steps:
        return None
    return finish.own_ms / finish.steps


def check_records(
    records: Sequence[Record], steps: int, counters: Mapping[str, int] | None, *, whole: bool
) -> list[str]:
    """What the probe's records say otherwise than the process that it watched; [] if nothing.

    ``steps``: optimizer steps that it watched. ``counters``: XLA's own totals at the end, or None.
    ``whole``: its records of steps must add up to them, too; not where it was taken out at times.
    A probe that was not there at all would cost nothing: that is the first thing to rule out.
    """
    wrong = []
    watched = [record for record in records if isinstance(record, StepRecord)]
    if len(watched) != steps:
        wrong.append(f"the probe recorded {len(watched)} of {steps} steps")
    errors = [record for record in records if isinstance(record, ProbeErrorRecord)]
    if errors:
        wrong.append(f"the probe failed at something: {errors[0].error}")
    finish = next((r for r in records if isinstance(r, FinishRecord)), None)
    if finish is None:
        return [*wrong, "the probe wrote no record of its end"]
    if finish.dropped:
        wrong.append(f"{finish.dropped} records were not written")
    if counters is None:
        return wrong
    claims: dict[str, tuple[int, str]] = {
        "compiles": (finish.compiles or 0, "compiles"),
        "executions": (finish.executes or 0, "executes"),
        "transfers to the host": (
            (finish.transfers or 0) + (finish.own_transfers or 0),
            "transfers_from",
        ),
    }
    for words, (claimed, name) in claims.items():
        if claimed != counters[name]:
            wrong.append(f"{words}: the probe says {claimed}, XLA counts {counters[name]}")
    if whole:
        for words, values, name in (
            ("compiles", [r.compiles for r in watched], "compiles"),
            ("executions", [r.executes for r in watched], "executes"),
            ("transfers to the host", [r.transfers for r in watched], "transfers_from"),
        ):
            # None: of fast steps not each one is looked at, and their differences can't add up.
            counted = [value for value in values if value is not None]
            if len(counted) == len(values) and sum(counted) != counters[name]:
                wrong.append(
                    f"{words}: the records of steps add up to {sum(counted)}, XLA counts "
                    f"{counters[name]}"
                )
    for words, own in (("transfers", finish.own_transfers), ("compiles", finish.own_compiles)):
        if own:
            wrong.append(f"the probe says that it made {own} {words} of its own")
    return wrong
