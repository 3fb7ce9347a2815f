"""What the run pane says beside a run's numbers: stalls, memory, its metric, output not kept."""

from __future__ import annotations

from pathlib import Path

from core import events as ev
from core.events import NewEvent
from core.state_parts import Run
from tests.tui.driving import Console, cockpit
from tests.tui.session_events import START_US
from tui.panes.run_notes import stall_words
from tui.wording import size


def running(c: Console) -> str:
    """The run that is under way."""
    state = c.screen.feed.state
    return next(run.run_id for run in state.runs.values() if run.running)


async def gone(c: Console, words: str) -> None:
    """Wait until ``words`` are not on the screen any more."""
    await c.until(lambda: words not in c.text(), f"{words!r} to go from\n{c.text()}")


async def test_a_stalled_run_says_since_when_and_where_until_it_moves(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        run_id = running(c)
        stall = ev.RunStalled(904, 900, "loading", 41, "compile", False, "train.py:40")
        c.append(NewEvent(stall, "recorder", run_id, "", START_US + 600_000_000))
        await c.shows("stalled ", "last step 41", "compile at train.py:40")
        c.append(NewEvent(ev.RunResumed(950), "recorder", run_id))
        await gone(c, "stalled ")


async def test_memory_metric_and_output_not_kept_are_shown(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        run_id = running(c)
        c.append(
            NewEvent(ev.RunSampled(1536.0, 4), "recorder", run_id),
            NewEvent(
                ev.RunElided(1_200_000, 900 * 2**20, "limit", "The limit was reached."),
                "recorder",
                run_id,
            ),
            NewEvent(ev.HostSampled(note="There is no TPU on this machine."), "recorder", run_id),
        )
        await c.shows(
            "mem 1.5 GB", "1,200,000 lines (900 MB) not in the log: The limit w",
            "There is no TPU on this machine.",
        )  # fmt: skip
        c.append(
            NewEvent(ev.RunEnded("exited", 0, "", 70.0, 2048.0), "recorder", run_id),
            NewEvent(ev.RunResult("test accuracy", 0.9351, "line 90"), "recorder", run_id),
        )
        await c.shows("peak mem 2.0 GB", "test accuracy 0.9351")


async def test_a_metric_that_was_not_found_says_why(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        run_id = running(c)
        c.append(
            NewEvent(
                ev.RunResult("acc", None, problem="No line matches the pattern."),
                "recorder",
                run_id,
            )
        )
        await c.shows("No line matches the pattern.")


async def test_ranks_stand_before_their_lines_and_can_be_read_alone(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running", size=(120, 40)) as c:
        run_id = running(c)
        c.append(
            NewEvent(ev.RunOutput("stdout", ["from nought"], "0"), "recorder", run_id),
            NewEvent(ev.RunOutput("stdout", ["from one"], "1"), "recorder", run_id),
        )
        await c.shows("0│from nought", "1│from one", "2 ranks")
        await c.press("3", "o")
        await c.shows("rank 0 of 2", "from nought")
        await gone(c, "from one")


def test_a_compile_that_goes_on_is_said_to_be_alive() -> None:
    run = Run("r1", 1, 0, "", ev.RunStarted(1, "attempt", "x"))
    run.stalled = ev.RunStalled(900, 900, doing="compile", alive=True)
    run.stalled_ts_us = 1_000_000
    assert stall_words(run, 61_000_000) == "no output 16:00 · compile · still at work"


def test_sizes_are_written_in_the_largest_unit_that_fits() -> None:
    assert [size(n) for n in (0, 65_536, 12 * 2**20, 1.44 * 2**30, 34 * 2**30)] == [
        "0 KB", "64 KB", "12 MB", "1.4 GB", "34 GB",
    ]  # fmt: skip
