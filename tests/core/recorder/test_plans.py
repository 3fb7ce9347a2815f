"""Which runs are made: of the reference, and of the migrated code beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.body import JSON
from core.config import SessionConfig
from core.recorder.plans import (
    RENAME,
    Plan,
    asks_half,
    capture_dir,
    reference_plans,
    target_parity,
)
from tests.core.scene import CONFIG, Scene, signal, signal_records

FILES: Any = SimpleNamespace(
    project=Path("/project"),
    root=Path("/s/worktree"),
    reference_root=Path("/s/reference"),
    reference_cwd=Path("/s/reference"),
    cwd=Path("/s/worktree"),
    prefix="",
    baseline="base",
)


def config(**tables: JSON) -> SessionConfig:
    table = {k: v for k, v in CONFIG.items() if k in ("reference", "target", "metric")}
    for name, more in tables.items():
        table[name] = {**table.get(name, {}), **more}
    table["agent"] = {"driver": "manual"}
    return SessionConfig.from_json(table)


def wanted(scene: Scene, session: Path, **tables: JSON) -> Plan | None:
    return next(reference_plans(scene.state, config(**tables), FILES, session), None)


def half(scene: Scene, purpose: str, of: str, requests: bool = True, **more: Any) -> str:
    signals = signal_records(4, xla=of.startswith("target"), parity=True)
    if requests:
        signal(signals, "precision")["requests"] = [{"what": "autocast(bfloat16)", "count": 1}]
    return scene.run(purpose, of, signals=signals, lines=(), **more)


def capture(session: Path, run_id: str) -> None:
    place = capture_dir(session, run_id) / "rank0"
    place.mkdir(parents=True)
    (place / "index.json").write_text("{}")


def test_the_reference_runs_in_full_and_once_more_writing_its_tensors(tmp_path: Path) -> None:
    scene = Scene()
    first = wanted(scene, tmp_path)
    assert first is not None
    assert (first.purpose, first.probe, first.capture, first.seed) == (
        "reference",
        "light",
        False,
        None,
    )
    scene.run("reference")
    second = wanted(scene, tmp_path)
    assert second is not None
    assert (second.of, second.probe, second.capture, second.precision) == (
        *("reference", "parity", True, "fp32"),
    )
    scene.run("parity", "reference", lines=())
    assert wanted(scene, tmp_path) is None


def test_a_reference_that_fails_is_not_run_again_nor_further(tmp_path: Path) -> None:
    scene = Scene()
    scene.run("reference", exit_code=1)
    assert wanted(scene, tmp_path) is None


def test_each_seed_has_its_run_where_the_command_takes_it(tmp_path: Path) -> None:
    seeds: JSON = {"reference": {"command": "python train.py --seed {seed}", "seeds": [3, 5]}}
    scene = Scene(**seeds)
    first = wanted(scene, tmp_path, **seeds)
    assert first is not None and first.command.text == "python train.py --seed 3"
    scene.end(scene.start("reference", seed=3))
    second = wanted(scene, tmp_path, **seeds)
    assert second is not None and (second.purpose, second.seed) == ("reference", 5)
    scene.end(scene.start("reference", seed=5))
    third = wanted(scene, tmp_path, **seeds)
    assert third is not None and (third.of, third.seed) == ("reference", 3)


def test_a_reference_in_half_precision_also_runs_as_it_asks_and_repeats_follow(
    tmp_path: Path,
) -> None:
    scene = Scene()
    scene.run("reference")
    main = half(scene, "parity", "reference")
    assert asks_half(scene.state.runs[main])
    own = wanted(scene, tmp_path, reference={"repeats": 1})
    assert own is not None and (own.of, own.precision, own.capture) == (
        "reference own",
        "own",
        True,
    )
    half(scene, "parity", "reference own")
    assert wanted(scene, tmp_path, reference={"repeats": 1}) is None  # it left no tensors
    capture(tmp_path, main)
    repeat = wanted(scene, tmp_path, reference={"repeats": 1})
    assert repeat is not None and (repeat.of, repeat.against) == ("reference repeat", main)


def test_an_imported_reference_is_not_run(tmp_path: Path) -> None:
    scene = Scene()
    scene.end(scene.start("reference", bundle="ab" * 32, by="bundle"))
    assert wanted(scene, tmp_path) is None


def test_the_target_is_fed_from_the_latest_good_capture(tmp_path: Path) -> None:
    scene = Scene().references().snapshot("t1")
    before = target_parity(scene.state, config(), FILES, tmp_path, "t1", "operator")
    assert (before.of, before.against, before.precision) == ("target", "", "")
    capture(tmp_path, "r2")
    renamed = config(parity={"rename": {"a.weight": "b.weight"}})
    plan = target_parity(scene.state, renamed, FILES, tmp_path, "t1", "operator")
    assert (plan.against, plan.precision, plan.of_target) == ("r2", "fp32", True)
    assert plan.command.env[RENAME] == '{"a.weight": "b.weight"}'
    own = target_parity(scene.state, config(), FILES, tmp_path, "t1", "operator", own=True)
    assert (own.of, own.against, own.precision) == ("target own", "r2", "own")
    better = half(scene, "parity", "reference own")
    capture(tmp_path, better)
    own = target_parity(scene.state, config(), FILES, tmp_path, "t1", "operator", own=True)
    assert own.against == better
