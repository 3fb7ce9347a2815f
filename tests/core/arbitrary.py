"""Hypothesis strategies for logs of arbitrary events, the unlikely and the hostile included."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from core import events as ev
from core.events import BODIES, Event
from tests.core.scene import T0, healthy

_IDS = st.sampled_from(["x1", "x2", "x3"])
#: What a session's configuration may hold where a table is expected.
_CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from(
            [
                {"kind": "xla-cpu", "command": "a", "chips": 1},
                {"kind": "tpu-v5e-1"},
                {"chips": "x"},
                3,
            ]
        ),
        "metric": st.sampled_from([{"pattern": "(a)"}, {"pattern": "("}, {"pattern": 1}, []]),
        "criteria": st.sampled_from([{"goal_points": 2}, {"goal_points": "x"}, {"y": 1}, None]),
        "prices": st.sampled_from([{"target": "tpu-v5e"}, {"override": 1, "target": "x"}, "x"]),
        "operator": st.sampled_from([{"rate_usd_per_hour": 50}, {"rate_usd_per_hour": "x"}, 1]),
    },
)
#: What a stranger's process may have written into a field.
JUNK = st.sampled_from(
    [
        *(None, 0, 1, 2, 40, -1, 0.5, 1e300, "nan", "inf", "x", True, 10**400, "B C(1) S"),
        *([], {}, [1], [None], ["a"], [{}], [{"lr": 1}], {"xla:0": 5}, {"cpu": 5}, [["a", "b"]]),
    ]
)
_FIELDS = (
            "n", "loss", "grad_norm", "grad_norm_after", "update_norm", "params_changed", "groups",
            "signature", "compiles", "executes", "transfers", "fallbacks", "devices", "parameters",
            "tied", "norms", "names", "cls", "orphaned", "steps", "eval_last", "samples", "pid",
            "rank", "compile_s", "rss_mb", "clips", "grad_norms", "replaced", "dtypes", "loss_source",
)  # fmt: skip
#: Probe records: the right fields with any values.
_RECORD = st.fixed_dictionaries(
    {"k": st.sampled_from(["step", "model", "optimizer", "finish", "xla", "moved"])},
    optional=dict.fromkeys(_FIELDS, JUNK),
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.sampled_from(["", "a", "t1", "allow", "deny", "stopped"]) | st.text(max_size=5),
    "int": st.integers(-1, 5),
    "float": st.floats(0, 1e6) | st.just(float("nan")),
    "bool": st.booleans(),
    "JSON": st.dictionaries(st.sampled_from(["text", "kind", "z"]), st.text(max_size=3)),
    "list[str]": st.lists(st.text(max_size=5), max_size=3),
    "list[int]": st.lists(st.integers(0, 9), max_size=3),
    "list[JSON]": st.lists(st.dictionaries(st.text(max_size=2), st.integers()), max_size=3),
}


#: Fields whose values decide what a rule does.
_WORDS: dict[str, list[Any]] = {
    "purpose": ["reference", "attempt", "parity"],
    "of": ["", "reference", "target"],
    "command": ["a", "b", "'"],
    "exit_code": [0, 1, None],
    "check": ["L0.exit", "L1.clip", "L3.metric", "x"],
    "level": [-1, 0, 1, 3, 4, 9],
    "state": ["pass", "fail", "not run", "waived", "x"],
}


_KINDS = sorted(BODIES.values(), key=lambda c: c.KIND)
#: Kinds that the rules look at; drawn more often, so that runs come with records and ends.
_RULED: list[type[ev.Body]] = [
    ev.SessionOpened,
    ev.TreeSnapshotted,
    ev.RunStarted,
    ev.RunStepped,
    ev.RunSignalled,
    ev.RunEnded,
    ev.RunOutput,
    ev.CheckEvaluated,
    ev.FindingOpened,
]


@st.composite
def bodies(draw: st.DrawFn) -> ev.Body:
    """A body of any kind; ids come from a small pool, so that events refer to each other."""
    cls = draw(st.sampled_from(_KINDS) | st.sampled_from(_RULED))
    fields: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        spec = str(f.type).removesuffix(" | None")
        if str(f.type).endswith(" | None") and draw(st.booleans()):
            fields[f.name] = None
        elif f.name == "config":
            fields[f.name] = draw(_CONFIG)
        elif f.name == "records":
            fields[f.name] = draw(st.lists(_RECORD, max_size=6))
        elif f.name in _WORDS:
            fields[f.name] = draw(st.sampled_from(_WORDS[f.name]))
        elif f.name.endswith("_id"):
            fields[f.name] = draw(_IDS)
        else:
            fields[f.name] = draw(_VALUES[spec])
    return cls(**fields)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log of such events, some of kinds that this release does not know."""
    unknown = st.builds(ev.Unknown, st.just("future.happened"), st.just(1), st.just({"a": 1}))
    events: list[Event] = []
    seq = now = 0
    for body in draw(st.lists(bodies() | unknown, max_size=30)):
        seq += draw(st.integers(1, 3))
        now += draw(st.integers(0, 10**7))
        run_id = draw(_IDS)
        events.append(Event(seq, f"e{seq}", T0 + now, now, "b", "test", body, run_id, "t1"))
    return events


@st.composite
def damaged(draw: st.DrawFn) -> list[Event]:
    """A healthy session, some of whose records had fields overwritten or removed."""
    log = healthy().events
    places = [
        record
        for event in log
        if isinstance(event.body, ev.RunStepped | ev.RunSignalled)
        for record in event.body.records
    ]
    for _ in range(draw(st.integers(1, 6))):
        # All of a run's records are as likely as one: a probe that is wrong is wrong every time.
        chosen = draw(st.sampled_from(places))
        name = draw(st.sampled_from(sorted(chosen)))
        value = draw(JUNK | st.just(...))
        alike = [r for r in places if r.get("k") == chosen.get("k")]
        for record in alike if draw(st.booleans()) else [chosen]:
            if value is ...:
                record.pop(name, None)
            else:
                record[name] = value
            record.setdefault("k", "step")
    return log
