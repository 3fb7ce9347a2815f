"""The migration route of the demo project: its edits apply, and its last stage is faithful."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEMO = Path(__file__).resolve().parents[3] / "core" / "demo"
PROJECT = DEMO / "project"
ROUTE = tomllib.loads((DEMO / "route" / "edits.toml").read_text(encoding="utf-8"))

# Runs the first steps of the training in the working directory, then stops it. It keeps what
# reached the optimizer: the losses (their graph is left alone until the end, so that it measures
# the program and not itself), the number of trained values, and the compiles.
FIRST_STEPS = """
import json, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

device, steps = sys.argv[1], int(sys.argv[2])
if device == "xla":
    import torch_xla.debug.metrics as metrics

losses, compiles, trained = [], [], []
backward = torch.Tensor.backward


def keep_loss(self, *args, **kwargs):
    losses.append(self.detach())
    return backward(self, *args, **kwargs)


class Enough(Exception):
    pass


def after_step(optimizer, args, kwargs):
    trained[:] = [p for group in optimizer.param_groups for p in group["params"]]
    if device == "xla":
        compiles.append(metrics.counter_value("UncachedCompile") or 0)
    if len(losses) == steps:
        raise Enough


torch.Tensor.backward = keep_loss
register_optimizer_step_post_hook(after_step)
sys.path.insert(0, ".")
sys.argv = ["inkformer.train", "--device", device]
try:
    runpy.run_module("inkformer.train", run_name="__main__")
except Enough:
    pass
print(json.dumps({
    "losses": [loss.item() for loss in losses],
    "compiles": compiles,
    "trained": sum(p.numel() for p in trained),
    "device": trained[0].device.type,
}))
"""


def stages_up_to(name: str) -> list[dict]:
    names = [stage["name"] for stage in ROUTE["stage"]]
    return [edit for stage in ROUTE["stage"][: names.index(name) + 1] for edit in stage["edit"]]


def endings() -> dict[str, list[dict]]:
    """Every version of the project that the route can lead to, with its edits in order."""
    versions = {stage["name"]: stages_up_to(stage["name"]) for stage in ROUTE["stage"]}
    for fault in ROUTE["fault"]:
        versions[fault["name"]] = stages_up_to(fault["base"]) + fault["edit"]
    return versions


def migrated(edits: list[dict], into: Path) -> Path:
    """A copy of the project with the edits applied."""
    shutil.copytree(PROJECT, into, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for edit in edits:
        path = into / edit["path"]
        text = path.read_text(encoding="utf-8")
        found = text.count(edit["search"])
        assert found == 1, f"{edit['path']}: found {found} times, not once:\n{edit['search']}"
        path.write_text(text.replace(edit["search"], edit["replace"]), encoding="utf-8")
    return into


def first_steps(project: Path, device: str, steps: int = 16) -> dict:
    # A process for each device: a CPU backward before the first XLA device breaks torch_xla.
    # XLA's optimisation is off: a compile takes less than half the time, and a few steps are no
    # slower for it.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIRST_STEPS, device, str(steps)],
        cwd=project,
        env={
            **os.environ,
            "PJRT_DEVICE": "CPU",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_route_has_the_stages_of_the_demo_and_three_faults() -> None:
    assert [stage["name"] for stage in ROUTE["stage"]] == [
        "optimizer-before-move",
        "dynamic-shapes",
        "clip-after-step",
        "faithful",
    ]
    assert len({fault["name"] for fault in ROUTE["fault"]}) == 3


@pytest.mark.parametrize("name", sorted(endings()))
def test_edits_apply_and_the_result_compiles(name: str, tmp_path: Path) -> None:
    project = migrated(endings()[name], tmp_path / "project")
    changed = 0
    for path in sorted(project.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        compile(text, str(path), "exec")
        changed += text != (PROJECT / path.relative_to(project)).read_text(encoding="utf-8")
    assert changed > 0


def test_versions_differ_from_one_another(tmp_path: Path) -> None:
    seen = {}
    for name, edits in endings().items():
        project = migrated(edits, tmp_path / name)
        text = "".join(p.read_text(encoding="utf-8") for p in sorted(project.rglob("*.py")))
        assert text not in seen, f"{name} is the same program as {seen[text]}"
        seen[text] = name


def test_project_does_not_know_the_product() -> None:
    for path in PROJECT.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            text = path.read_text(encoding="utf-8").lower()
            assert "pilotage" not in text and "xla" not in text, path


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The first 16 steps of the untouched project on the CPU."""
    return first_steps(migrated([], tmp_path_factory.mktemp("reference") / "project"), "cpu")


@pytest.mark.xla
def test_faithful_stage_repeats_the_reference_losses(reference: dict, tmp_path: Path) -> None:
    faithful = first_steps(migrated(endings()["faithful"], tmp_path / "project"), "xla")
    assert (reference["device"], faithful["device"]) == ("cpu", "xla")
    assert len(faithful["losses"]) == 16
    assert faithful["trained"] == reference["trained"]
    assert faithful["losses"] == pytest.approx(reference["losses"], rel=1e-5)
    assert faithful["compiles"][-1] == 2  # step 1, and step 2 where the optimizer has its state


@pytest.mark.xla
def test_clip_after_step_leaves_the_reference_losses(reference: dict, tmp_path: Path) -> None:
    late = first_steps(migrated(endings()["clip-after-step"], tmp_path / "project"), "xla", 6)
    assert late["losses"][0] == pytest.approx(reference["losses"][0], rel=1e-5)
    # Adam hides the scale of a gradient: the first two steps are the same with and without clipping.
    assert late["losses"][5] != pytest.approx(reference["losses"][5], rel=1e-5)
