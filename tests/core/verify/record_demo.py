"""Records the runs in ``recorded/``: the demo project's stages and faults, under the real probe.

    python tests/core/verify/record_demo.py WORKDIR [STAGE ...]

It needs the extra ``demo`` (torch, torch_xla) and takes about a minute a run on two idle cores.
Stages that compile in every step are stopped after ``LIMIT_S`` seconds. Not a test: the tests
read what it wrote, so that the verdicts on real records are checked without torch.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DEMO = ROOT / "core" / "demo"
RECORDED = HERE / "recorded"
LIMIT_S = {"optimizer-before-move": 150, "dynamic-shapes": 150}
STEPS = 16
#: What differs from machine to machine and no check reads.
DROPPED = ("argv", "t", "wall", "shapes")


def checkout(stage: str, to: Path) -> None:
    """The demo project with the route's edits up to ``stage`` (or the fault of that name)."""
    route = tomllib.loads((DEMO / "route" / "edits.toml").read_text(encoding="utf-8"))
    faults = {fault["name"]: fault for fault in route["fault"]}
    edits: list[dict[str, str]] = []
    if stage != "original":
        for step in route["stage"]:
            edits += step["edit"]
            if step["name"] == (faults[stage]["base"] if stage in faults else stage):
                break
        edits += faults[stage]["edit"] if stage in faults else []
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(DEMO / "project", to)
    for edit in edits:
        path = to / edit["path"]
        path.write_text(path.read_text().replace(edit["search"], edit["replace"], 1))


def record(name: str, stage: str, device: str, mode: str, work: Path) -> None:
    """Make one run and write ``recorded/<name>.json.gz``."""
    from core.runs import records
    from core.runs.probe_setup import install, records_dir

    project, run = work / "project", work / name
    checkout(stage, project)
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    env = {**os.environ, **install(run, mode=mode, steps=STEPS)}  # type: ignore[arg-type]
    if device == "xla":
        env["PJRT_DEVICE"] = "CPU"
    command = [sys.executable, "-m", "inkformer.train", "--device", device]
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=project, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S.get(stage) if mode == "light" else None)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    took = time.monotonic() - began
    lines = [x for f in sorted(records_dir(run).glob("*.jsonl")) for x in f.open("rb")]
    parsed = [r for x in lines if isinstance(r := records.parse(x), records.Record)]
    write(
        name,
        {
            "exit_code": process.returncode if process.returncode >= 0 else None,
            "duration_s": round(took, 1),
            "out": [_place(x, project, run) for x in out.splitlines()],
            "err": [_place(x, project, run) for x in err.splitlines()],
            "records": [_neutral(records.to_json(r)) for r in parsed],
        },
    )


def _place(line: str, project: Path, run: Path) -> str:
    for path, name in ((project, "/project"), (run, "/run"), (Path(sys.prefix), "/venv")):
        line = line.replace(str(path), name)
    return line


def _neutral(record: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in record.items() if k not in DROPPED}
    return {**kept, **{k: 1000 for k in ("pid", "tid") if k in kept}}


def write(name: str, run: dict[str, Any]) -> None:
    """Write one recording; the same run gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(json.dumps(run, separators=(",", ":")).encode())
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.json.gz").write_bytes(buffer.getvalue())


def main() -> None:
    """Record the reference, or the stages that are named."""
    work, stages = Path(sys.argv[1]).resolve(), sys.argv[2:]
    sys.path.insert(0, str(ROOT))
    if not stages:
        record("ref", "original", "cpu", "light", work)
        record("ref.parity", "original", "cpu", "parity", work)
        record("loud", "original", "xla", "light", work)
    for stage in stages:
        record(stage, stage, "xla", "light", work)
        record(f"{stage}.parity", stage, "xla", "parity", work)


if __name__ == "__main__":
    main()
