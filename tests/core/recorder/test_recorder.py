"""The recorder on real sessions: real git, real processes, no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from core import events as ev
from core.state import SessionState, fold
from core.state_parts import Run
from sessions.audit import unsupported
from sessions.log import EventLog
from tests.core.recorder.recording import Console, make, record, recording


def said(state: SessionState) -> list[str]:
    return [e.text for e in state.transcript if e.kind == "said"]


def running(command: str) -> Any:
    def look(state: SessionState) -> Run | None:
        run = state.running
        return run if run and command in run.started.command and run.lines else None

    return look


def pending(state: SessionState) -> Any:
    return state.pending_ask


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_script_is_played_and_everything_is_on_record(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        """
[[step]]
say = "hello"
[[step]]
read = "train.py"
[[step]]
search = "loss"
[[step]]
edit = {path = "train.py", search = "range(3)", replace = "range(4)"}
[[step]]
edit = {path = "train.py", search = "no such text", replace = "x"}
[[step]]
run = true
if_ok = "it ran"
if_failed = "it failed"
[[step]]
run = "python nothing.py"
if_ok = "it ran"
if_failed = "it failed: {why}"
[[step]]
claim = 1
text = "same numbers"
if_refuted = "measured {level}: {why}"
if_reached = "reached"
""",
    )
    state = await record(path)
    assert state.phase == "finished" and state.over
    texts = said(state)
    assert texts[0] == "hello"
    assert texts[1].startswith("That did not work: The text to replace")
    assert texts[2] == "it ran"
    assert texts[3] == f"it failed: {next(iter(state.findings.values())).opened.title}"
    assert texts[4].startswith("measured not even L0: L0.steps not run")

    reference, parity, attempt, failed, target_parity = state.runs.values()
    assert (reference.started.purpose, reference.tree) == ("reference", state.snapshots[0].tree)
    assert reference.started.cwd == str(path.parent / "reference")
    assert (parity.started.purpose, parity.started.of) == ("parity", "reference")
    assert parity.started.probe_mode == "parity" and parity.started.parity_steps == 16
    assert attempt.started.command == "python train.py --device xla"
    assert [line.text for line in attempt.lines] == [
        "loss 1.0", "loss 0.5", "loss 0.3333333333333333", "loss 0.25", "acc 0.9",
    ]  # fmt: skip
    assert [line.text for line in reference.lines][-2:] == ["loss 0.3333333333333333", "acc 0.9"]
    assert failed.ended is not None and failed.ended.exit_code == 2
    assert target_parity.started.of == "target" and target_parity.tree == attempt.tree
    assert attempt.tree == state.tree == state.snapshots[-1].tree != reference.tree
    assert [s.body.cause for s in state.snapshots] == ["baseline", "edit"]
    assert state.snapshots[1].body.call_id.startswith("c")

    # Without torch nothing numerical was measured, and the ladder says so.
    assert state.measured_level == -1
    assert state.checks["L1.clip"][-1].body.state == "not run"
    assert state.checks["L0.exit"][-1].body.state == "pass"
    assert not (path.parent / "recorder.log").exists()


async def test_verdicts_follow_from_the_log_and_the_replay_is_the_live_state(
    tmp_path: Path,
) -> None:
    path = make(tmp_path, "[[step]]\nrun = true\n[[step]]\nclaim = 0\n")
    async with recording(path) as recorder:
        pass
    with EventLog.read(path) as log:
        assert unsupported(log.events()) == []
        assert fold(log.events()) == recorder._journal.state


async def test_the_reference_is_recorded_before_the_first_attempt_and_once(tmp_path: Path) -> None:
    path = make(tmp_path, "[[step]]\nrun = true\n")
    first = await record(path)
    assert [r.started.purpose for r in first.runs.values()] == ["reference", "parity", "attempt"]
    second = await record(path)  # the agent has ended; nothing is made again
    assert len(second.runs) == 3
    assert [e.kind for e in second.transcript].count("started") == 1


async def test_permission_allow_deny_and_edit(tmp_path: Path) -> None:
    step = '[[step]]\nshell = "touch asked; rm -r out"\nreason = "old"\nif_denied = "no then"\n'
    path = make(tmp_path, step * 3)
    with Console(path) as console:
        async with recording(path):
            worktree = path.parent / "worktree"
            ask = await console.until(pending)
            assert ask.body.tool == "shell" and ask.body.reason == "old"
            assert console.look().phase == "waiting"
            assert not (worktree / "asked").exists()
            console.act(ev.OperatorDecided(ask.body.ask_id, "deny", "keep it", author="ana"))
            ask = await console.until(lambda s: pending(s) if len(s.asks) == 2 else None)
            new = {"command": "touch edited"}
            console.act(ev.OperatorDecided(ask.body.ask_id, "edit", "", new, author="ana"))
            ask = await console.until(lambda s: pending(s) if len(s.asks) == 3 else None)
            assert (worktree / "edited").exists() and not (worktree / "asked").exists()
            (worktree / "out").mkdir()
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow", author="ana"))
        state = console.look()
        assert (worktree / "asked").exists() and not (worktree / "out").exists()
        denied, edited, allowed = [e for e in state.transcript if e.kind == "called"]
        assert denied.ok is False and "keep it" in str(denied.output)
        assert edited.ok is True and allowed.ok is True
        assert said(state) == ["no then"]
        made = list(state.interventions.values())
        assert [(i.kind, i.trigger, i.author) for i in made] == [("permission", "asked", "ana")] * 2
        assert all(i.recorded.automatic for i in made)
        assert made[0].text == "denied: touch asked; rm -r out (keep it)"
        assert made[1].text == "changed: touch asked; rm -r out -> touch edited"
        assert made[0].recorded.at_ts_us == next(iter(state.asks.values())).decided_ts_us
        assert [s.body.cause for s in state.snapshots] == ["baseline", "shell", "shell"]


async def test_an_interrupt_stops_the_run_and_the_agent_waits_for_a_word(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nrun = "python forever.py"\n[[step]]\nsay = "after"\n')
    with Console(path) as console:
        async with recording(path):
            run = await console.until(running("forever"))
            child = int(run.lines[0].text.split()[1])
            assert alive(child)
            console.act(ev.OperatorInterrupted("wrong way", author="ana"))
            await console.until(lambda s: any("wait for a message" in t for t in said(s)))
            assert not alive(child)
            ended = console.look().runs[run.run_id].ended
            assert ended is not None and ended.reason == "stopped"
            assert "interrupted" in ended.text
            call = next(e for e in console.state.transcript if e.kind == "called")
            assert call.ok is False and call.output is not None
            assert "after" not in said(console.state)
            console.act(ev.OperatorMessaged("m1", "try the other one", author="ana"))
        state = console.look()
        assert state.messages["m1"].delivered_ts_us is not None
        texts = said(state)
        assert "I play a fixed script" in texts[1]
        assert texts[-1] == "after" and state.phase == "finished"
        kinds = [(i.kind, i.text) for i in state.interventions.values()]
        assert kinds == [("restart", "wrong way"), ("guidance", "try the other one")]
        assert next(iter(state.interventions.values())).recorded.at_run == run.run_id


@pytest.mark.parametrize("how", ["interrupt", "stop run"])
async def test_a_verification_that_is_stopped_gives_no_verdict(tmp_path: Path, how: str) -> None:
    # The claim makes the run of the target command, which does not end.
    path = make(
        tmp_path,
        '[[step]]\nclaim = 0\nif_reached = "yes"\nif_refuted = "no"\n[[step]]\nsay = "after"\n',
        {"train.py": "import sys\nprint('acc 1')\nif sys.argv[1:]:\n    import forever\n"},
    )
    with Console(path) as console:
        async with recording(path):
            run = await console.until(running("--device xla"))
            if how == "interrupt":
                console.act(ev.OperatorInterrupted())
                await console.until(said)
                console.act(ev.OperatorResumed())
            else:
                console.act(ev.OperatorRequested("stop run"))
        state = console.look()
        ended = state.runs[run.run_id].ended
        assert ended is not None and ended.reason == "stopped"
        assert state.phase == "finished" and "yes" not in said(state) and "no" not in said(state)
        assert said(state)[-1] == "after"


async def test_an_interrupt_withdraws_a_question(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nask = "which way?"\n[[step]]\nsay = "after"\n')
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(pending)
            console.act(ev.OperatorInterrupted())
            await console.until(lambda s: said(s))
            assert console.state.pending_ask is None
            console.act(ev.OperatorDecided(ask.body.ask_id, "deny", "too late"))
            console.act(ev.OperatorResumed())
        state = console.look()
        assert said(state)[-1] == "after"
        assert state.asks[ask.body.ask_id].decision is None
        assert [i.kind for i in state.interventions.values()] == ["restart"]


async def test_an_answer_to_a_question_reaches_the_agent_and_is_no_intervention(
    tmp_path: Path,
) -> None:
    path = make(
        tmp_path, '[[step]]\nask = "how long?"\nif_allowed = "so {answer}"\nif_denied = "no"\n'
    )
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(pending)
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow", "64"))
        state = console.look()
        assert said(state) == ["so 64"] and not state.interventions


async def test_a_pause_holds_the_next_step(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nask = "ready?"\n[[step]]\nsay = "after"\n')
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(pending)
            console.act(
                ev.OperatorPaused("lunch"),
                ev.OperatorDecided(ask.body.ask_id, "allow"),
                ev.OperatorMessaged("m1", "during the pause"),
            )
            await console.until(lambda s: s.interventions)  # the recorder has seen all three
            assert console.look().phase == "paused"
            assert said(console.state) == []
            assert console.state.messages["m1"].delivered_ts_us is None
            console.act(ev.OperatorResumed())
        state = console.look()
        texts = said(state)
        assert len(texts) == 2 and texts[1] == "after"
        assert state.messages["m1"].delivered_ts_us is not None
        assert [i.kind for i in state.interventions.values()] == ["guidance"]


async def test_the_agent_stops_a_run_on_a_finding(tmp_path: Path) -> None:
    noisy = "import time\nprint('pt-xla-profiler: CompileTime too frequent: 21 counts during 11 steps', flush=True)\ntime.sleep(600)\n"
    path = make(
        tmp_path,
        '[[step]]\nrun = "python noisy.py"\nstop_on = "C4"\nif_finding = {C4 = "seen: {why}"}\n',
        {"noisy.py": noisy},
    )
    state = await record(path)
    run = state.attempts[0]
    assert run.ended is not None and run.ended.reason == "stopped"
    assert run.ended.text.startswith("Stopped by the agent on C4: ")
    finding = state.findings[next(iter(state.findings))]
    assert finding.run_id == run.run_id and finding.seq < (run.ended_seq or 0)
    assert said(state) == [f"seen: {finding.opened.title}"]


async def test_a_change_that_is_not_the_agents_is_seen(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        '[[step]]\nask = "go?"\n[[step]]\nrun = true\n'
        '[[step]]\nwrite = {path = "new.py", content = "x = 1\\n"}\n',
    )
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(pending)
            (path.parent / "worktree" / "extra.py").write_text("slipped in\n")
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow"))
        state = console.look()
        assert [s.body.cause for s in state.snapshots] == ["baseline", "outside", "write"]
        assert state.attempts[0].tree == state.snapshots[1].tree
        assert "extra.py" in state.snapshots[1].body.patch


async def test_no_edit_comes_in_while_a_verification_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import os, sys, time\nprint('begun', flush=True)\n"
        f"while sys.argv[1:] and not os.path.exists({str(go)!r}):\n    time.sleep(0.02)\n"
        "print('acc 1.0')\n"
    )
    path = make(
        tmp_path,
        '[[step]]\nask = "go?"\n[[step]]\nwrite = {path = "new.py", content = "x = 1\\n"}\n',
        {"train.py": code},
    )
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(pending)
            console.act(ev.OperatorRequested("verify", author="ana"))
            await console.until(running("--device xla"))
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow"))
            await console.until(lambda s: any(e.tool == "write" for e in s.transcript))
            assert not (path.parent / "worktree" / "new.py").exists()
            go.touch()
        state = console.look()
        written = next(s for s in state.snapshots if s.body.cause == "write")
        attempt, parity = state.attempts[0], state.runs_for("parity", "target")[0]
        assert attempt.tree == parity.tree == state.snapshots[0].tree
        assert attempt.ended_seq is not None and parity.ended_seq is not None
        assert written.seq > parity.ended_seq > attempt.ended_seq
        assert [m.tree for m in state.measurements] == [attempt.tree, written.tree]


async def test_what_a_run_leaves_behind_is_no_change(tmp_path: Path) -> None:
    code = "import pathlib\npathlib.Path('result.dat').write_text('1')\nprint('acc 0.9')\n"
    path = make(tmp_path, "[[step]]\nrun = true\n[[step]]\nrun = true\n", {"train.py": code})
    state = await record(path)
    assert len(state.snapshots) == 1
    assert (path.parent / "worktree" / "result.dat").exists()


async def test_a_changed_reference_is_not_run(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nsay = "hi"\n')
    await record(path)
    path2 = make_second(tmp_path)
    with Console(path2) as console:
        async with recording(path2, linger_s=60.0) as recorder:
            await console.until(lambda s: s.agent_end)
            (path2.parent / "reference" / "train.py").write_text("print('acc 1.0')\n")
            recorder._runs._ready.clear()  # type: ignore[union-attr]
            from core.recorder.command import Command
            from core.recorder.plans import Plan

            runs = recorder._runs
            assert runs is not None
            files = runs._worktree.files
            plan = Plan(
                "reference",
                Command.reference(runs._config, files),
                files.reference_cwd,
                files.baseline,
                "light",
            )
            with runs._jobs.job("recorder") as job:
                run = await runs._run(plan, job)
            assert run.ended is not None and run.ended.reason == "not started"
            assert "is not the untouched project any more: train.py differs" in run.ended.text
            console.act(ev.OperatorRequested("stop session", author="ana"))


def make_second(tmp_path: Path) -> Path:
    place = tmp_path / "second"
    place.mkdir()
    return make(place, '[[step]]\nsay = "hi"\n')


async def test_requests_of_a_console(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        '[[step]]\nrun = "python forever.py"\nif_failed = "it was stopped"\n[[step]]\nsay = "after"\n',
    )
    with Console(path) as console:
        async with recording(path, linger_s=60.0):
            run = await console.until(running("forever"))
            console.act(ev.OperatorRequested("stop run", author="ana"))
            await console.until(lambda s: s.agent_end)
            ended = console.look().runs[run.run_id].ended
            assert ended is not None and (ended.reason, ended.text) == (
                "stopped",
                "Stopped by ana.",
            )
            assert said(console.state) == ["it was stopped", "after"]
            console.act(ev.OperatorRequested("verify", author="ana"))

            def verified(s: SessionState) -> bool:
                made = s.runs_for("parity", "target")
                return bool(made and s.measurements and s.measurements[-1].seq > made[0].seq)

            await console.until(verified)
            assert [r.started.by for r in console.state.attempts][-1] == "verification"
            console.act(ev.OperatorRequested("stop session", author="ana"))
        stopped = console.bodies(ev.RecorderStopped)
        assert [b.reason for b in stopped] == ["stopped by ana"]


async def test_stop_in_order_and_go_on_where_it_was(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        '[[step]]\nsay = "one"\n[[step]]\nrun = "python forever.py"\nif_failed = "failed"\n'
        '[[step]]\nsay = "three"\n',
    )
    with Console(path) as console:
        async with recording(path) as recorder:
            run = await console.until(running("forever"))
            child = int(run.lines[0].text.split()[1])
            recorder.stop("signal SIGTERM")
        state = console.look()
        assert not alive(child)
        assert state.phase == "stopped" and state.runs[run.run_id].ended is not None
        assert [k for k in console.kinds() if not k.startswith("operator")][
            -1
        ] == "recorder.stopped"
        assert console.bodies(ev.RecorderStopped)[-1].reason == "signal SIGTERM"
        console.act(ev.OperatorMessaged("m1", "while you were away", author="ana"))

        async with recording(path):  # the step that was cut off is done again
            again = await console.until(
                lambda s: running("forever")(s) if len(s.attempts) == 2 else None
            )
            assert again.run_id != run.run_id
            console.act(ev.OperatorRequested("stop run"))
        state = console.look()
        assert state.phase == "finished"
        texts = said(state)
        assert texts.count("one") == 1 and texts[-1] == "three"
        assert not state.recoveries
        assert "goes on at step 2" in [e.text for e in state.transcript if e.kind == "started"][-1]
        assert state.messages["m1"].delivered_ts_us is not None
        made = list(state.interventions.values())
        assert [(i.kind, i.text) for i in made] == [("guidance", "while you were away")]


async def test_a_changed_script_does_not_go_on(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nsay = "one"\n[[step]]\nask = "on?"\n')
    with Console(path) as console:
        async with recording(path) as recorder:
            await console.until(pending)
            recorder.stop("test")
        (tmp_path / "agent.toml").write_text('[[step]]\nsay = "other"\n')
        state = await record(path)
    assert state.phase == "failed"
    assert isinstance(state.agent_end, ev.AgentFailed)
    assert "was changed since this session began" in state.agent_end.error
    assert state.pending_ask is None
