"""Records the runs in ``recorded_ranks/``: the fault project ``ddp4`` under the real probe.

    python tests/core/verify/record_ranks.py WORKDIR [VARIANT ...]

Named variants are recorded again, against the reference that is in WORKDIR. It needs the extra ``demo`` (torch, torch_xla) and takes some five minutes on two idle cores. Not a
test: the tests read what it wrote, so that verdicts on four real processes are checked without
torch.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT))

from core.bench.fault_projects import read_project  # noqa: E402
from core.bench.fault_runs import lay_out  # noqa: E402
from core.runs import records  # noqa: E402
from core.runs.probe_setup import install, records_dir  # noqa: E402
from tests.core.verify import record_demo  # noqa: E402

RECORDED = HERE / "recorded_ranks"
VARIANTS = ("processes", "spmd", "clip-times-world", "clip-before-reduce")
STEPS = 18


def record(name: str, project: Path, table: Any, work: Path, mode: str, **more: Any) -> None:
    """Make one run and write ``recorded_ranks/<name>.json.gz``."""
    run = work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    env = {**os.environ, **table["env"], **install(run, mode=mode, steps=STEPS, **more)}  # type: ignore[arg-type]
    command = [sys.executable, *shlex.split(table["command"])[1:]]
    began = time.monotonic()
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    took = time.monotonic() - began
    lines = [x for f in sorted(records_dir(run).glob("*.jsonl")) for x in f.open("rb")]
    parsed = [r for x in lines if isinstance(r := records.parse(x), records.Record)]
    record_demo.RECORDED = RECORDED
    record_demo.write(
        name,
        {
            "exit_code": done.returncode,
            "duration_s": round(took, 1),
            "out": done.stdout.splitlines(),
            "err": [],
            "records": [
                json.loads(record_demo._place(json.dumps(r), project, run))
                for r in _neutral([records.to_json(r) for r in parsed])
            ],
        },
    )
    print(name, done.returncode, round(took, 1), flush=True)


def _neutral(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs from machine to machine; processes are numbered by their rank."""
    ranks = {r["pid"]: r["rank"] for r in found if r.get("k") == "step" and "rank" in r}
    kept = []
    for one in found:
        pid = 1000 + ranks.get(one.get("pid"), 900 if ranks else 0)
        fields = {k: v for k, v in one.items() if k not in record_demo.DROPPED}
        kept.append({**fields, "pid": pid, "tid": pid})
    return kept


def main() -> None:
    """Record the reference and the variants."""
    work = Path(sys.argv[1]).resolve()
    project = read_project(ROOT / "tests" / "faults" / "ddp4")
    capture = work / "capture"
    names = sys.argv[2:]
    if not names:
        shutil.rmtree(work, ignore_errors=True)
        original = lay_out(project.original, work / "original", project.tables, ())
        reference = project.tables["reference"]
        record("ref", original, reference, work, "light")
        record("ref.parity", original, reference, work, "parity", capture=capture)
    for variant in project.variants:
        if variant.name in (names or VARIANTS):
            copy = lay_out(project.original, work / variant.name, variant.tables, variant.patches)
            target = variant.tables["target"]
            record(variant.name, copy, target, work, "light")
            record(
                f"{variant.name}.parity",
                copy,
                target,
                work,
                "parity",
                reference=capture,
                precision="fp32",
            )


if __name__ == "__main__":
    main()
