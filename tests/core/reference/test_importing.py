"""A bundle becomes the reference of a session: all of its runs, or nothing at all."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import events as ev
from core.config import load
from core.errors import PilotageError
from core.events import Event, NewEvent
from core.levels import CHECKS
from core.process import RecorderLock, recorder_alive
from core.reference.importing import another_project
from core.reference.manifest import BundleError, Manifest
from core.reference.marks import CUDA_ON_CPU
from core.reference.opening import Bundle
from core.state import SessionState, fold
from core.verify.evaluate import measure
from sessions.audit import audit
from sessions.log import EventLog
from sessions.opening import create, play_headless
from sessions.references import import_reference
from tests.core.reference.making import CODE, edited, make_bundle, rehash, rewrite, started

OTHER = "\n".join(f"value_{i} = compute_something_else({i})" for i in range(40))

CONFIG = """
[project]
title = "{title}"
path = "proj"
[reference]
command = "{command}"
[target]
command = "python train.py --device xla"
[metric]
name = "accuracy"
points = 100
[criteria]
parity_steps = 2
[agent]
driver = "manual"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "home"))


def session(
    place: Path, *, title: str = "thing", code: str = CODE, command: str = "python train.py"
) -> Path:
    (place / "proj").mkdir()
    (place / "proj" / "train.py").write_text(code)
    (place / "pilotage.toml").write_text(CONFIG.format(title=title, command=command))
    return create(load(place), "0.0.test")


def events(path: Path) -> list[Event]:
    with EventLog.read(path) as log:
        return [*log.events()]


def state_of(path: Path) -> SessionState:
    return fold(events(path))


def files(path: Path) -> list[str]:
    return sorted(
        f"{p.relative_to(path.parent)}"
        for p in path.parent.rglob("*")
        if p.suffix not in (".lock", ".db-wal", ".db-shm")
    )


def test_the_runs_get_ids_of_the_session_and_their_tensors(tmp_path: Path) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path)
    with EventLog.open(path) as log:
        log.append(NewEvent(started(1, "attempt"), "recorder", "r1"))
        log.append(NewEvent(ev.RunEnded("exited", 0), "recorder", "r1"))
    done = import_reference(path, bundle)
    assert done.runs == ["r2", "r3"]
    state = state_of(path)
    full, parity = state.runs["r2"], state.runs["r3"]
    assert (full.started.by, full.started.bundle) == ("bundle", done.sha256)
    assert (full.number, full.tree, full.ok_exit, full.seconds) == (2, "ab" * 20, True, 3.0)
    assert full.result is not None and full.result.value == 0.75
    assert [line.text for line in full.lines] == ["epoch 1", "accuracy 0.75"]
    assert (parity.started.of, len(parity.steps)) == ("reference", 2)
    assert not full.started.pid
    capture = path.parent / "runs" / "r3" / "capture" / "rank0"
    assert sorted(p.name for p in capture.iterdir()) == [
        "forward.safetensors",
        "index.json",
        "weights.safetensors",
    ]
    assert not (path.parent / "runs" / "r2").exists()
    assert audit(path)["holds"]


def test_the_run_it_was_fed_from_keeps_its_name(tmp_path: Path) -> None:
    def fed(manifest: Manifest) -> Manifest:
        first, second = manifest.runs
        return replace(manifest, runs=[first, replace(second, against=1)])

    path = session(tmp_path)
    import_reference(path, make_bundle(tmp_path, change=fed))
    assert state_of(path).runs["r2"].started.against == "r1"


def test_the_checks_see_it(tmp_path: Path) -> None:
    path = session(tmp_path)
    import_reference(path, make_bundle(tmp_path))
    state = state_of(path)
    results, _ = measure(state, state.tree)
    why = {r.check: r.reason for r in results}
    assert set(why) == set(CHECKS)
    assert "reference run" not in why["L3.metric"]  # what is missing now is the target's run


def test_a_second_time_is_refused(tmp_path: Path) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path)
    import_reference(path, bundle)
    before = events(path)
    with pytest.raises(BundleError, match="imported into this session already, as run #1"):
        import_reference(path, bundle)
    assert events(path) == before


@pytest.mark.parametrize(
    ("title", "code", "same"),
    [
        ("thing", CODE, True),
        ("thing", CODE.replace("nn.Linear(4, 2)", "nn.Linear(4, 2).to(xm.xla_device())"), True),
        ("proj", CODE, True),  # the directory's name, the same code
        ("thing-tpu", CODE, False),  # two names that people gave
        ("thing", OTHER, False),  # the same name, other code
        ("other", OTHER, False),
    ],
)
def test_which_project_it_is_of(tmp_path: Path, title: str, code: str, same: bool) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path, title=title, code=code)
    before, there = events(path), files(path)
    if same:
        import_reference(path, bundle)
        return
    with pytest.raises(BundleError, match="is of another project: it was recorded of 'thing'"):
        import_reference(path, bundle)
    assert events(path) == before and files(path) == there
    done = import_reference(path, bundle, "renamed, and rewritten since")
    assert done.notes[0].endswith("Reason given: renamed, and rewritten since")
    assert done.notes[0] in state_of(path).runs["r1"].notices


def test_where_there_is_no_code_to_tell_the_command_has_to_be_the_same(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, code="import torch\n")
    path = session(tmp_path, code="import torch\n", command="python other.py")
    with pytest.raises(BundleError, match="of another project"):
        import_reference(path, bundle)
    with Bundle(bundle) as opened:
        (tmp_path / "pilotage.toml").write_text(
            CONFIG.format(title="thing", command="python  train.py")
        )
        assert not another_project(opened.manifest, load(tmp_path), tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "newer", "tensors", "no run"])
def test_a_bundle_that_can_not_be_used_changes_nothing(tmp_path: Path, damage: str) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path)
    content = bytearray(bundle.read_bytes())
    if damage == "cut":
        bundle.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        bundle.write_bytes(content)
    elif damage == "newer":
        rewrite(bundle, lambda n, c: c.replace(b'"format": 1,', b'"format": 7,', 1))
    elif damage == "tensors":
        rehash(bundle, lambda n, c: b"x" if n.endswith("weights.safetensors") else c)
    else:
        bundle = make_bundle(tmp_path, name="failed.pilotage", change=_failed)
    before, there = events(path), files(path)
    with pytest.raises(PilotageError):
        import_reference(path, bundle)
    assert events(path) == before and files(path) == there


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_damage_anywhere_changes_anything(
    unchanged: tuple[Path, Path, list[Event], list[str]], data: st.DataObject
) -> None:
    bundle, path, before, there = unchanged
    content = bytearray(bundle.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:at]
    else:
        content[at] ^= data.draw(st.integers(1, 255))
    bad = bundle.with_name("bad.pilotage")
    bad.write_bytes(content)
    with pytest.raises(BundleError):
        import_reference(path, bad)
    assert events(path) == before and files(path) == there


@pytest.fixture
def unchanged(tmp_path: Path) -> tuple[Path, Path, list[Event], list[str]]:
    """A bundle, a session that it is of, and what is in that session."""
    path = session(tmp_path)
    return make_bundle(tmp_path), path, events(path), files(path)


def _failed(manifest: Manifest) -> Manifest:
    return replace(manifest, runs=[replace(run, exit_code=1) for run in manifest.runs])


def test_a_log_that_can_not_be_written_leaves_no_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path)
    there = files(path)

    def full(self: EventLog, *new: NewEvent) -> list[Event]:
        from core.errors import LostError

        raise LostError("the disk is gone.")

    monkeypatch.setattr(EventLog, "append", full)
    with pytest.raises(PilotageError, match="the disk is gone"):
        import_reference(path, bundle)
    assert files(path) == there


def test_a_full_disk_does_not_keep_the_lock_from_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("core.process.os.write", full)
    with RecorderLock(tmp_path):
        assert recorder_alive(tmp_path)
    assert not recorder_alive(tmp_path)


def test_a_session_that_is_being_recorded_is_left_alone(tmp_path: Path) -> None:
    bundle, path = make_bundle(tmp_path), session(tmp_path)
    with RecorderLock(path.parent):
        # The lock is per open file: a second one of this process is refused like another's.
        with pytest.raises(PilotageError, match=r"is being recorded.*pilotage run --resume"):
            import_reference(path, bundle)
    assert len(events(path)) == 1


def test_a_recorded_session_of_the_product_is_not_written_to(tmp_path: Path) -> None:
    from sessions.home import RECORDED

    shipped = sorted(RECORDED.glob("*/session.db"))
    assert shipped
    with pytest.raises(PilotageError, match="only to look at"):
        import_reference(shipped[0], make_bundle(tmp_path))


def test_parity_runs_of_another_length_are_said(tmp_path: Path) -> None:
    done = import_reference(session(tmp_path), make_bundle(tmp_path, change=edited(k=8)))
    (note,) = done.notes
    assert "parity runs have 8 steps and this session's criteria ask for 2" in note


def test_the_time_of_redirected_cuda_counts_for_nothing(tmp_path: Path) -> None:
    from core.money import run_cost

    bundle = make_bundle(tmp_path)

    def redirect(name: str, content: bytes) -> bytes:
        return content.replace(b'"target":"cuda"', f'"target":"{CUDA_ON_CPU}"'.encode())

    rehash(bundle, redirect)
    path = session(tmp_path)
    import_reference(path, bundle)
    with EventLog.open(path) as log:
        opened = state_of(path).opened
        assert opened is not None
        target = str(opened.config["target"]["command"])
        log.append(
            NewEvent(ev.TreeSnapshotted("t" * 40, "c" * 40), "recorder"),
            NewEvent(
                ev.RunStarted(3, "attempt", target, target="xla-cpu", chips=1),
                "recorder",
                "r3",
                "t" * 40,
            ),
            NewEvent(ev.RunEnded("exited", 0, duration_s=1.0), "recorder", "r3", "t" * 40),
        )
    state = state_of(path)
    results, _ = measure(state, "t" * 40)
    time = next(r for r in results if r.check == "L4.time")
    assert time.state == "not run" and "says nothing of time or dollars" in time.reason
    assert run_cost(state, state.runs["r1"]).usd is None


def test_what_was_spent_elsewhere_is_not_this_sessions(tmp_path: Path) -> None:
    from core.money import costs

    config = CONFIG + "[prices]\nreference = 'mine'\noverride = { mine = { usd_per_hour = 36, "
    config += "scope = 'instance' } }\n"
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "train.py").write_text(CODE)
    config = config.replace("{title}", "thing").replace("{command}", "python train.py")
    (tmp_path / "pilotage.toml").write_text(config)
    path = create(load(tmp_path), "0.0.test")
    import_reference(path, make_bundle(tmp_path))
    found = costs(state_of(path))
    assert found.reference_run.usd == pytest.approx(3.0 / 3600 * 36)
    assert found.hardware.usd == 0.0


def test_a_run_says_where_it_comes_from(tmp_path: Path) -> None:
    path = session(tmp_path)
    import_reference(path, make_bundle(tmp_path))
    for run in state_of(path).runs.values():
        assert run.notices[0].startswith(
            "Recorded 2026-01-02T03:04:05+00:00 on a CPU, a GPU with torch 2.9.1, and imported from "
            "the bundle made.pilotage (sha256 "
        )


def test_a_bundle_that_was_damaged_since_ends_the_recorder_with_its_sentence(
    tmp_path: Path,
) -> None:
    bundle = make_bundle(tmp_path)
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "train.py").write_text(CODE)
    text = CONFIG.format(title="thing", command="python train.py")
    (tmp_path / "pilotage.toml").write_text(
        text.replace("[target]", "bundle = 'made.pilotage'\n[target]")
    )
    path = create(load(tmp_path), "0.0.test")
    bundle.write_bytes(bundle.read_bytes()[:-100])
    with pytest.raises(BundleError, match="cut off"):
        play_headless(path, lambda line: None)
    last = events(path)[-1].body
    assert isinstance(last, ev.RecorderStopped) and "is cut off" in last.reason
    assert not state_of(path).runs
    with pytest.raises(BundleError, match="cut off"):
        create(load(tmp_path), "0.0.test")
