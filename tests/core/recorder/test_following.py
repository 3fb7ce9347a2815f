"""A run as the recorder follows it: silence, limits of its output, samples, all on record."""

from __future__ import annotations

from pathlib import Path

from core import events as ev
from core.runs.telemetry import NO_TPU, tpu_devices
from tests.core.recorder.recording import Console, make, record, recording

WAITS = """\
import os, sys, time
print("begin", flush=True)
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("acc 0.9")
"""


async def test_a_stalled_run_is_a_finding_until_it_goes_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f'[[step]]\nrun = "python train.py {go}"\n'
    path = make(tmp_path, script, {"train.py": WAITS}, "[recorder]\nhang_s = 0.5\n")
    with Console(path) as console:
        async with recording(path):
            await console.until(lambda s: any(f.open for f in s.findings.values()))
            go.touch()
        state = console.look()
        (finding,) = state.findings.values()
        assert finding.opened.detector == "stall" and finding.opened.silent
        assert "last line: begin" in finding.opened.evidence
        assert not finding.open and finding.resolved.startswith("The run went on after")
        run = state.attempts[0]
        assert run.ok_exit and run.stalls == 1 and run.stalled is None
        (stall,) = [b for b in console.bodies(ev.RunStalled) if b.last_line == "begin"]
        assert stall.seconds >= stall.limit_s == 0.5


async def test_a_stalled_run_is_stopped_where_that_is_asked_for(tmp_path: Path) -> None:
    script = f'[[step]]\nrun = "python train.py {tmp_path / "never"}"\n'
    config = '[recorder]\nhang_s = 0.5\nhang_action = "stop"\n'
    state = await record(make(tmp_path, script, {"train.py": WAITS}, config))
    end = state.attempts[0].ended
    assert end is not None and end.reason == "stopped"
    assert end.text.startswith("Stopped as stalled: no output and no step for")
    assert [f.opened.detector for f in state.findings.values() if f.open] == ["stall"]


async def test_output_beyond_the_limit_is_counted_and_what_tells_something_kept(
    tmp_path: Path,
) -> None:
    code = (
        "for i in range(30000): print('line', i, 'x' * 60)\n"
        "print('acc 0.9')\n"
        "for i in range(30000): print('more', i, 'x' * 60)\n"
    )
    config = "[recorder]\nmax_output_mb = 0.5\n"
    path = make(tmp_path, "[[step]]\nrun = true\n", {"train.py": code}, config)
    state = await record(path)
    run = state.attempts[0]
    assert len(run.lines) == 60_001 and run.elided_lines == run.lines.missing > 40_000
    assert run.lines[0].text.startswith("line 0 ") and run.lines[60_000].text.startswith(
        "more 29999"
    )
    assert run.lines[30_000].text == "acc 0.9"
    checks = {c: results[-1].body for c, results in state.checks.items()}
    assert checks["L0.result"].state == "pass" and "0.9" in checks["L0.result"].summary
    assert path.stat().st_size < 3_000_000


async def test_memory_and_the_machine_are_sampled(tmp_path: Path) -> None:
    state = await record(make(tmp_path, "[[step]]\nrun = true\n"))
    run = state.attempts[0]
    (_, host), *_ = run.telemetry
    assert host.mem_total_mb and host.disk_free_mb
    if not tpu_devices():  # said once, with the session's first run
        assert [r.notices for r in state.runs.values() if r.notices] == [[NO_TPU]]
