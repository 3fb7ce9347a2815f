"""A project that needs a GPU, on a machine that has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.runs.records import ProbeErrorRecord
from core.runs.records_replay import PrecisionRecord
from core.runs.records_world import CudaRedirectRecord

PROGRAM = (Path(__file__).parent / "programs" / "gpu_only.py").read_text()


def test_a_project_for_gpus_trains_on_the_cpu(run: Callable[..., Any], tmp_path: Path) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    plain = run(tmp_path, PROGRAM, str(tmp_path), mode="light", env=env)
    assert plain.code == 1
    assert "needs a GPU" in plain.err
    assert plain.of(CudaRedirectRecord) == []
    env["PILOTAGE_PROBE_CUDA"] = "cpu"
    (tmp_path / "again").mkdir()
    done = run(tmp_path / "again", PROGRAM, str(tmp_path), mode="light", env=env)
    assert done.code == 0, done.err
    assert done.of(ProbeErrorRecord) == []
    assert done.out.splitlines()[-1] == "done"
    assert len(done.steps) == 4
    assert all(step.scaler for step in done.steps)
    assert done.models[0].devices == {"cpu": 8 * 16 + 16 + 16 * 2 + 2}
    (record,) = done.of(CudaRedirectRecord)
    assert record.unsupported == ("torch.cuda.CUDAGraph",)
    for name, count in {
        "Tensor.cuda": 6,
        "torch.cuda.synchronize": 4,
        "DataLoader.pin_memory": 1,
        "init_process_group(nccl)": 1,
        "DistributedDataParallel": 1,
        "DataParallel": 1,
        "Tensor.new_zeros": 5,
        "load": 3,
    }.items():
        assert record.calls[name] == count, name
    (precision,) = done.of(PrecisionRecord)
    assert precision.asked == "fp32"
    assert [(r.what, r.count) for r in precision.requests] == [("autocast(float16)", 4)]
