"""The vocabulary of the event log.

Everything that happens in a session is one of the kinds below. Each kind is one frozen
dataclass (its *body*); a stored body travels in an :class:`Event`, the envelope with the
sequence number, the clocks and the place in the hash chain.

Rules of the vocabulary:

* A kind is ``noun.past_tense``; it never changes its meaning. A field may be added with a
  default; a change that old readers would misread gets a new ``VERSION``.
* Reading is tolerant: an unknown kind becomes :class:`Unknown` and survives a round trip
  unchanged, an unknown field is kept in ``extra`` of the event, a missing field takes its
  default. Writing is strict: bodies are made by their constructors.
* Bodies hold JSON values only (str, int, float, bool, None, list, dict). Text in them is
  already redacted, and is still hostile: a view cleans it before it is drawn.
"""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.body import JSON as JSON
from core.body import Body as Body
from core.kinds_people import (
    AgentAsked as AgentAsked,
)
from core.kinds_people import (
    AgentCalled as AgentCalled,
)
from core.kinds_people import (
    AgentClaimed as AgentClaimed,
)
from core.kinds_people import (
    AgentFailed as AgentFailed,
)
from core.kinds_people import (
    AgentFinished as AgentFinished,
)
from core.kinds_people import (
    AgentReturned as AgentReturned,
)
from core.kinds_people import (
    AgentSaid as AgentSaid,
)
from core.kinds_people import (
    AgentStarted as AgentStarted,
)
from core.kinds_people import (
    AgentUsed as AgentUsed,
)
from core.kinds_people import (
    BudgetReached as BudgetReached,
)
from core.kinds_people import (
    InterventionAmended as InterventionAmended,
)
from core.kinds_people import (
    InterventionRecorded as InterventionRecorded,
)
from core.kinds_people import (
    InterventionRestored as InterventionRestored,
)
from core.kinds_people import (
    InterventionVoided as InterventionVoided,
)
from core.kinds_people import (
    MarkerPlaced as MarkerPlaced,
)
from core.kinds_people import (
    OperatorAttached as OperatorAttached,
)
from core.kinds_people import (
    OperatorDecided as OperatorDecided,
)
from core.kinds_people import (
    OperatorDelivered as OperatorDelivered,
)
from core.kinds_people import (
    OperatorDetached as OperatorDetached,
)
from core.kinds_people import (
    OperatorHeartbeat as OperatorHeartbeat,
)
from core.kinds_people import (
    OperatorInterrupted as OperatorInterrupted,
)
from core.kinds_people import (
    OperatorMessaged as OperatorMessaged,
)
from core.kinds_people import (
    OperatorPaused as OperatorPaused,
)
from core.kinds_people import (
    OperatorRequested as OperatorRequested,
)
from core.kinds_people import (
    OperatorResumed as OperatorResumed,
)
from core.kinds_work import (
    CheckEvaluated as CheckEvaluated,
)
from core.kinds_work import (
    DiffTagged as DiffTagged,
)
from core.kinds_work import (
    FindingOpened as FindingOpened,
)
from core.kinds_work import (
    FindingRecategorised as FindingRecategorised,
)
from core.kinds_work import (
    FindingResolved as FindingResolved,
)
from core.kinds_work import (
    HostSampled as HostSampled,
)
from core.kinds_work import (
    LevelMeasured as LevelMeasured,
)
from core.kinds_work import (
    RecorderRecovered as RecorderRecovered,
)
from core.kinds_work import (
    RecorderStarted as RecorderStarted,
)
from core.kinds_work import (
    RecorderStopped as RecorderStopped,
)
from core.kinds_work import (
    RunElided as RunElided,
)
from core.kinds_work import (
    RunEnded as RunEnded,
)
from core.kinds_work import (
    RunOutput as RunOutput,
)
from core.kinds_work import (
    RunResult as RunResult,
)
from core.kinds_work import (
    RunResumed as RunResumed,
)
from core.kinds_work import (
    RunSampled as RunSampled,
)
from core.kinds_work import (
    RunSignalled as RunSignalled,
)
from core.kinds_work import (
    RunStalled as RunStalled,
)
from core.kinds_work import (
    RunStarted as RunStarted,
)
from core.kinds_work import (
    RunStepped as RunStepped,
)
from core.kinds_work import (
    SessionOpened as SessionOpened,
)
from core.kinds_work import (
    TreeSnapshotted as TreeSnapshotted,
)


@dataclass(frozen=True, slots=True)
class Unknown(Body):
    """A body of a kind, or a version, that this release does not know. It survives unchanged."""

    kind: str
    v: int
    data: JSON

    def payload(self) -> JSON:
        """The stored payload as it was read."""
        return dict(self.data)


BODIES: dict[str, type[Body]] = {
    cls.KIND: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, Body) and cls.KIND
}


@dataclass(frozen=True, slots=True)
class Event:
    """One stored event: the body and its envelope.

    ``ts_us`` is UTC microseconds (a label), ``mono_us`` a monotonic clock that is only
    comparable within one ``boot_id`` (a measure). ``source`` is ``recorder``, ``agent``,
    ``console:<id>`` or ``importer``. ``extra`` keeps payload fields this release does not know.
    """

    seq: int
    event_id: str
    ts_us: int
    mono_us: int
    boot_id: str
    source: str
    body: Body
    run_id: str = ""
    tree: str = ""
    prev_hash: str = ""
    hash: str = ""
    extra: JSON = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind, ``noun.past_tense``."""
        return self.body.kind if isinstance(self.body, Unknown) else self.body.KIND

    @property
    def v(self) -> int:
        """The version of the kind's payload."""
        return self.body.v if isinstance(self.body, Unknown) else self.body.VERSION


@dataclass(frozen=True, slots=True)
class NewEvent:
    """What a producer hands to the log; the log adds seq, clocks and hashes.

    ``ts_us`` may be given by an importer or by a key press whose time counts; else the log
    stamps it at the append.
    """

    body: Body
    source: str
    run_id: str = ""
    tree: str = ""
    ts_us: int | None = None
    event_id: str = field(default_factory=lambda: uuid.uuid4().hex)


def encode_payload(body: Body, extra: JSON | None = None) -> str:
    """The payload as canonical JSON: sorted keys, no spaces, so that its hash is stable."""
    data = body.payload()
    if extra:
        data = {**extra, **data}
    try:
        return _dumps(data)
    except ValueError:  # NaN and infinities are no JSON; a diverged loss must be storable
        return _dumps(_finite(data))


def _dumps(data: JSON) -> str:
    text = json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    # A lone surrogate can't be stored as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _finite(value: Any) -> Any:
    """Copy of a JSON value with ``nan``, ``inf`` and ``-inf`` as those strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def decode_body(kind: str, v: int, payload: JSON) -> tuple[Body, JSON]:
    """Body and unknown fields of a stored payload.

    Never raises on strange input: what can't be read as its kind becomes :class:`Unknown`.
    """
    cls = BODIES.get(kind)
    if cls is None or v > cls.VERSION or not isinstance(payload, dict):
        return Unknown(kind, v, payload if isinstance(payload, dict) else {"value": payload}), {}
    readers = _READERS[cls]
    known: JSON = {}
    extra: JSON = {}
    for name, value in payload.items():
        reader = readers.get(name)
        if reader is None:
            extra[name] = value
            continue
        ok, known[name] = reader(value)
        if not ok:  # a stranger's file may hold anything
            return Unknown(kind, v, payload), {}
    try:
        return cls(**known), extra
    except TypeError:  # a required field is missing
        return Unknown(kind, v, payload), {}


_Reader = Callable[[Any], tuple[bool, Any]]
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _float(value: Any) -> tuple[bool, Any]:
    if isinstance(value, str) and value in _WORDS:  # see _finite
        return True, _WORDS[value]
    return isinstance(value, float | int) and not isinstance(value, bool), value


def _list_of(item: type) -> _Reader:
    return lambda value: (
        isinstance(value, list) and all(isinstance(x, item) for x in value),
        value,
    )


def _optional(reader: _Reader) -> _Reader:
    return lambda value: (True, None) if value is None else reader(value)


#: Reader by annotation: whether a stored value has the type, and the value to use.
_BY_TYPE: dict[str, _Reader] = {
    "str": lambda value: (isinstance(value, str), value),
    "int": lambda value: (isinstance(value, int) and not isinstance(value, bool), value),
    "float": _float,
    "bool": lambda value: (isinstance(value, bool), value),
    "JSON": lambda value: (isinstance(value, dict), value),
    "list[str]": _list_of(str),
    "list[int]": _list_of(int),
    "list[JSON]": _list_of(dict),
}


def _reader(annotation: str) -> _Reader:
    if annotation.endswith(" | None"):
        return _optional(_BY_TYPE[annotation.removesuffix(" | None")])
    return _BY_TYPE[annotation]


# Once per kind: asking dataclasses for each event would take most of the reading time.
_READERS: dict[type[Body], dict[str, _Reader]] = {
    cls: {f.name: _reader(str(f.type)) for f in dataclasses.fields(cls)} for cls in BODIES.values()
}
