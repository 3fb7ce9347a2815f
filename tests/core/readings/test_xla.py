"""XLA's own signals: what torch_xla 2.9.0 really printed, older lines, and hostile text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.readings.xla import (
    CompileMemory,
    CompileReport,
    CounterSignal,
    MetricSignal,
    ProfilerWarning,
    Signal,
    StepMetrics,
    XlaReader,
    read_xla,
)
from core.readings.xla_signals import quantity_of, seconds_of

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> list[Signal]:
    return read_xla((RECORDED / name).read_text(encoding="utf-8").splitlines())


def metrics(signals: list[Signal]) -> dict[str, MetricSignal]:
    return {s.name: s for s in signals if isinstance(s, MetricSignal)}


def test_the_true_values_are_read_from_a_report_that_rounds_up() -> None:
    """Against ``met.metric_data`` of the same moment, in nanoseconds and bytes."""
    text = (RECORDED / "report_and_data.txt").read_text(encoding="utf-8")
    found = metrics(read_xla(text.splitlines()))
    data = re.findall(r"^DATA (\w+) (\d+) ([0-9.]+)", text, re.MULTILINE)
    assert len(data) == len(found) == 13
    assert "150ms967.211us" in text and ("CompileTime", "4", "149967211.0") in data
    for name, count, total in data:
        scale = 1e-9 if found[name].unit == "s" else 1
        assert found[name].total_samples == int(count)
        assert found[name].accumulator == pytest.approx(float(total) * scale, rel=1e-9, abs=1e-12)


def test_a_whole_report_is_read() -> None:
    signals = recorded("report.txt")
    assert {type(s) for s in signals} == {MetricSignal, CounterSignal}
    compile_time = metrics(signals)["CompileTime"]
    assert (compile_time.total_samples, compile_time.unit) == (4, "s")
    assert compile_time.accumulator == pytest.approx(0.305399556)
    assert dict(compile_time.percentiles)[50] == pytest.approx(0.096641610)
    assert "Accumulator: 305ms399.556us" in compile_time.text
    inbound = metrics(signals)["InboundData"]
    assert (inbound.accumulator, inbound.unit) == (48.0, "B")
    counters = {s.name: s for s in signals if isinstance(s, CounterSignal)}
    assert counters["MarkStep"].value == 3
    assert counters["aten::nonzero"].fallback
    assert not counters["aten::_local_scalar_dense"].fallback
    assert not counters["MarkStep"].fallback


def test_the_debug_blocks_say_why_and_from_where() -> None:
    signals = recorded("debug_level_2.txt")
    blocks = [s for s in signals if isinstance(s, CompileReport)]
    assert [b.kind for b in blocks].count("compilation") == 4
    assert [b.kind for b in blocks].count("execution") == 6
    first = blocks[0]
    assert (first.cause, first.cause_kind, first.complete) == ("user torch_xla.sync", "sync", True)
    assert (first.inputs, first.outputs) == (6, 8)
    assert first.graph_hash == "fe5707b120d9a7d2a520e1167fca7fa0"
    assert first.frames[0].function == "sync" and first.frames[0].installed
    assert str(first.user_frame) == "step (/home/user/project/train.py:13)"
    assert blocks[2].cause_kind == "value read"
    assert str(blocks[2].user_frame) == "main (/home/user/project/train.py:24)"
    memory = [s for s in signals if isinstance(s, CompileMemory)]
    assert len(memory) == 4
    assert dict(memory[0].sizes_gb)["intermediate_tensor"] == 0.0
    assert memory[0].computation_hash == "46cfc3b9dfdd8f2106900b26c477aa5"


def test_a_metrics_file_is_one_signal_a_step() -> None:
    steps = recorded("metrics_file.txt")
    assert all(isinstance(s, StepMetrics) for s in steps)
    assert [s.step for s in steps if isinstance(s, StepMetrics)] == [0, 1]
    last = steps[-1]
    assert isinstance(last, StepMetrics)
    compile_time = last.metric("CompileTime")
    assert compile_time is not None and compile_time.total_samples == 3
    assert last.counter("MarkStep") == 2


def test_a_step_is_told_as_soon_as_its_block_is_over() -> None:
    reader, steps_at = XlaReader(), []
    text = (RECORDED / "metrics_file.txt").read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines()):
        steps_at += [number for s in reader.feed(line) if isinstance(s, StepMetrics)]
    blank = [i for i, line in enumerate(text.splitlines()) if not line]
    assert steps_at[0] == blank[0]


def test_the_summary_of_operators_that_are_not_lowered() -> None:
    uses = [s for s in recorded("debug.txt") if isinstance(s, ProfilerWarning)]
    assert [(u.kind, u.count) for u in uses] == [("unlowered use", n) for n in (26, 13, 13)]
    assert uses[0].ops == ("xla_fallback",)
    assert str(uses[1].frames[0]) == "main (/home/user/project/train.py:23)"


def test_the_summary_in_a_debug_file_has_no_prefix() -> None:
    lines = (RECORDED / "debug.txt").read_text(encoding="utf-8").splitlines()
    summary = [li.removeprefix("WARNING:pt-xla-profiler:") for li in lines if "profiler:" in li]
    assert read_xla(summary) == recorded("debug.txt")[-3:]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02m41s307ms512.250us", 101.30651225),  # 1 min 41.3 s, printed with a minute too many
        ("11m20s640ms", 679.64),
        ("01s464ms176.869us", 1.464176869),
        ("02d01h00m00s000ms000.000us", 2 * 86400 + 3600),
        ("000.295us", 2.95e-7),
        ("150ms967.211us", 0.149967211),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(0, 4 * 86400 * 10**9))
def test_every_duration_is_read_back_as_it_was(ns: int) -> None:
    """The printing is that of ``MetricFnTime``: each part rounded, its whole part taken off."""
    text, rest, started = "", float(ns), False
    for suffix, scale, width, digits in (
        ("d", 86400e9, 2, 0),
        ("h", 3600e9, 2, 0),
        ("m", 60e9, 2, 0),
        ("s", 1e9, 2, 0),
        ("ms", 1e6, 3, 0),
        ("us", 1e3, 7, 3),
    ):
        part = rest / scale
        if part >= 1 or started or suffix == "us":
            text += f"{part:0{width}.{digits}f}{suffix}"
            rest -= int(part) * scale
            started = True
    assert seconds_of(text) == pytest.approx(ns * 1e-9, rel=1e-6, abs=2e-9)


def test_quantities_of_other_units() -> None:
    assert quantity_of("1.50KB") == (1536.0, "B")
    assert quantity_of("205") == (205.0, "")
    assert quantity_of("120.00") == (120.0, "")
    assert quantity_of("1.64e+06 / second") == (1.64e6, "")
    assert quantity_of("many") is None
    assert quantity_of("") is None


def test_lines_of_the_older_dialect() -> None:
    lines = [
        "pt-xla-profiler: CompileTime too frequent: 37 counts during 15 steps",
        "pt-xla-profiler: TransferFromServerTime too frequent: 96 counts during 40 steps",
        "pt-xla-profiler: CompileTime too slow: longest instance took 02m41s307ms512.250us. Please",
        "pt-xla-profiler: ExecuteTime too slow: longest instance took 45s000ms000.000us. Please",
        "pt-xla-profiler: Op(s) not lowered: aten::unique_dim, aten::sgn.out,  Please open an issue",
        "pt-xla-profiler: Following metrics too frequent: XrtCompaction (12 counts), XrtEvict (40 counts), during 100 steps.",
        "pt-xla-profiler: something new",
    ]
    found = [s for s in read_xla(lines) if isinstance(s, ProfilerWarning)]
    assert [(w.kind, w.metric) for w in found] == [
        ("too frequent", "CompileTime"),
        ("too frequent", "TransferFromDeviceTime"),
        ("too slow", "CompileTime"),
        ("too slow", "ExecuteTime"),
        ("not lowered", ""),
        ("too frequent", "XrtCompaction"),
        ("too frequent", "XrtEvict"),
        ("other", ""),
    ]
    assert found[0].per_step == pytest.approx(37 / 15)
    assert found[2].seconds == pytest.approx(101.30651225)
    assert found[4].ops == ("aten::unique_dim", "aten::sgn.out")


def test_old_names_of_metrics_become_new_ones() -> None:
    found = metrics(
        read_xla(
            [
                "Metric: SyncTensorsGraphSize",
                "  TotalSamples: 205",
                "  Percentiles: 1%=640; 50%=7010; 99%=15900",
                "Metric: TransferFromServerTime",
                "  TotalSamples: 128",
            ]
        )
    )
    graph = found["TensorsGraphSize"]
    assert (graph.printed, graph.total_samples, graph.accumulator) == (
        "SyncTensorsGraphSize",
        205,
        None,
    )
    assert dict(graph.percentiles) == {1: 640.0, 50: 7010.0, 99: 15900.0}
    assert found["TransferFromDeviceTime"].total_samples == 128


def test_what_was_cut_gives_what_it_has() -> None:
    report = ["Metric: CompileTime", "  TotalSamples: 17"]
    (metric,) = read_xla(report)
    assert isinstance(metric, MetricSignal)
    assert (metric.total_samples, metric.accumulator) == (17, None)
    (counter,) = read_xla(["Counter: aten::nonzero"])
    assert isinstance(counter, CounterSignal) and counter.value is None and counter.fallback
    lines = (RECORDED / "debug_level_2.txt").read_text(encoding="utf-8").splitlines()
    (block,) = read_xla(lines[:10])
    assert isinstance(block, CompileReport)
    assert not block.complete and block.cause_kind == "sync" and len(block.frames) == 1


def test_a_metric_of_another_program_is_none() -> None:
    assert read_xla(["Metric: accuracy", "improved", "Counter: visits", "Value of things"]) == []


def test_processes_that_write_at_once_are_kept_apart() -> None:
    lines = (RECORDED / "report.txt").read_text(encoding="utf-8").splitlines()[3:60]
    mixed = [f"[default{rank}]: {line}" for line in lines for rank in (0, 1)]
    found = read_xla(mixed)
    alone = read_xla(lines)
    for rank in (0, 1):
        mine = [s for s in found if s.source == f"[default{rank}]:"]
        assert [getattr(s, "name", "") for s in mine] == [getattr(s, "name", "") for s in alone]


_BITS = st.sampled_from(
    (RECORDED / "debug_level_2.txt").read_text(encoding="utf-8").splitlines()[:40]
    + (RECORDED / "metrics_file.txt").read_text(encoding="utf-8").splitlines()[:40]
    + (RECORDED / "debug.txt").read_text(encoding="utf-8").splitlines()[-22:]
)


@given(st.lists(_BITS | st.text(max_size=60) | st.builds(str.__add__, st.text(max_size=9), _BITS)))
def test_no_text_breaks_the_reader(lines: list[str]) -> None:
    for signal in read_xla(lines):
        assert isinstance(signal, Signal)


@pytest.mark.parametrize(
    "line",
    [
        "Metric: " * 250,
        "pt-xla-profiler: Op(s) not lowered: " + "aten::x, " * 300,
        "pt-xla-profiler: Following metrics too frequent: " + "X (1 counts), " * 300,
        "Compilation Analysis:   " + "f (" * 700,
        "Compilation Analysis: " * 100,
        "  Percentiles: " + "1%=" * 700,
        " " * 5000 + "Value: 3",
        "1" * 5000,
    ],
    ids=lambda line: line[:24].strip(),
)
def test_long_lines_take_no_time(line: str) -> None:
    """A pattern that backtracks would need hours for one of them: the test has a limit."""
    reader = XlaReader()
    for _ in range(100):
        reader.feed(line)
    reader.close()


def test_memory_is_bounded_whatever_comes() -> None:
    reader = XlaReader()
    for i in range(5_000):
        reader.feed(f"[rank{i}]: Metric: Name{i}")
        reader.feed(f"[rank{i}]: Compilation Analysis: Compilation Cause")
        reader.feed(f"Compilation Analysis:   f (a.py:{i})")
    assert len(reader._sources) <= 65
