"""The batches of the training: written down, compared with the reference's, and replaced by them.

The DataLoader that feeds the training is the one from which a batch was drawn last before the
first training forward pass, and whatever else iterates over the same data. Its batches are seen
as it hands them out: on the host, before the program moves them. In a replay each is held against
the reference's of the same number; one that is another or in another order is replaced, so that
both programs compute on the same. Where the reference's indices are known, the program's own data
set makes the batch of these indices first: if that is the reference's, only the order is another,
and that batch is what is fed. A program without a DataLoader is watched at the inputs of its
model, where nothing is replaced.
"""

import copy
import os
import sys
import weakref
from _thread import RLock

from . import capture, draws, forward, guard, matching, process, replacing, replay, tensors, trees
from .threads import everyone
from .wrapping import unseen

WANTED = {"PILOTAGE_PROBE_CAPTURE", "PILOTAGE_PROBE_REFERENCE"}
MAX_BATCHES = 1000  # of one process
MAX_KEPT = 256 * 1024 * 1024  # bytes, before it is known which loader feeds the training
MAX_IDS = 65536
TOO_EARLY = "it was drawn before it was known that this DataLoader feeds the training"

_lock = RLock()
_streams = weakref.WeakKeyDictionary()  # iterator of a DataLoader -> Stream
_ordinal = 0
_last = None  # the Stream that was drawn from last
_training = None  # the Stream that feeds the training
_number = 0  # batches of the training so far
_without_loader = None  # the module whose inputs stand for batches
_reference = None  # a matching.Reference
_index = {}  # of the reference
_inputs_seen = 0
_asked = False  # whether the reference has been looked for


class Stream:
    """One pass over a DataLoader."""

    def __init__(self, ordinal, loader):
        self.ordinal = ordinal
        self.loader = weakref.ref(loader) if loader is not None else lambda: None
        self.dataset = getattr(loader, "dataset", None)
        self.length = _length(self.dataset)
        self.batch_size = getattr(loader, "batch_size", None)
        self.count = 0
        self.ids = []  # what the sampler gave, batch by batch
        self.kept = []  # (what to call, arguments) once it proves to feed the training
        self.bytes = 0


class Drawn:
    """One batch: its number in the training, its indices, and the optimizer steps before it."""

    __slots__ = ("iterator", "stream", "number", "ids", "steps")

    def __init__(self, iterator, stream, number, ids, steps):
        self.iterator, self.stream, self.number = iterator, stream, number
        self.ids, self.steps = ids, steps


def install(torch):
    """Once; nothing where tensors are neither captured nor compared."""
    if not WANTED.intersection(os.environ):
        return
    module = sys.modules["torch.utils.data.dataloader"]
    base = module._BaseDataLoaderIter
    replacing.replace(
        base, "__init__", lambda *given: (_opened,) + (given[:1] + given[1], given[2])
    )
    replacing.replace(base, "_reset", lambda *given: (_opened,) + (given[:1] + given[1], given[2]))
    replacing.replace(base, "_next_index", lambda *given: (_index_given, given[:1] + given[1], {}))
    replacing.replace(base, "__next__", lambda *given: (_next,) + (given[:1] + given[1], given[2]))
    forward.watchers.append(_before_forward)
    for owner in (torch.Tensor, torch.autograd):
        replacing.replace(owner, "backward", lambda *given: _trains())
    process.before_step.append(lambda *given: _trains())
    process.at_end.insert(0, _end)


def _open():
    """The reference of this rank, once the rank is known."""
    global _reference, _index, _asked
    if _asked:
        return
    _asked = True
    found = replay.reference()
    if found is not None:
        _index = found.index
        if found.batches is not None:
            _reference = matching.Reference(found.batches, _index["batches"])


@unseen
def _opened(original, iterator, loader, *args, **kwargs):
    """The iterator's constructor, or its reset where workers stay: a new pass begins."""
    global _ordinal
    original(iterator, loader, *args, **kwargs)
    with guard.reporting("pass over a DataLoader"), _lock:
        known = _streams.get(iterator)
        if known is None or known.count:  # the constructor resets, too
            _ordinal += 1
            _streams[iterator] = Stream(_ordinal, loader)


@unseen
def _index_given(original, iterator):
    ids = original(iterator)
    with guard.reporting("indices"):
        stream = _streams.get(iterator)
        if stream is not None and len(stream.ids) < MAX_BATCHES:
            stream.ids.append(ids)
    return ids


@unseen
def _next(original, iterator):
    batch = original(iterator)
    with guard.reporting("batch"), _lock:
        batch = _drawn(iterator, batch)
    return batch


def _length(dataset):
    try:
        return len(dataset)
    except Exception:  # it has none
        return None


# --- a batch is drawn ----------------------------------------------------------------------------


def _drawn(iterator, batch):
    global _last, _number
    stream = _streams.get(iterator)
    if stream is None:
        return batch
    _open()
    number, stream.count = stream.count, stream.count + 1
    ids = stream.ids[number] if number < len(stream.ids) else None
    steps = sum(thread.steps for thread in everyone())
    if _training is None and _without_loader is not None or _number >= MAX_BATCHES:
        return batch  # a loader that comes in mid-training is for something else
    if _training is not None:
        if stream.dataset is not _training.dataset:
            return batch
        number, _number = _number, _number + 1
        drawn = Drawn(iterator, stream, number, ids, steps)
        return _seen(drawn, batch, lambda call, *given: call(*given), None)
    _last = stream
    likely = _reference is None or _is_likely(stream)

    def later(call, *given):
        stream.kept.append((call, given))

    drawn = Drawn(iterator, stream, number, ids, steps)
    return _seen(drawn, batch, later, None if likely else TOO_EARLY)


def _is_likely(stream):
    """Whether it iterates over what the reference's training does, as far as can be told."""
    loader = _index.get("loader")
    loader = loader if isinstance(loader, dict) else {}
    if stream.length is not None and loader.get("dataset_len") is not None:
        return stream.length == loader["dataset_len"]
    return stream.ordinal == min(_reference.entries.items())[1].get("iterator")


def _seen(drawn, batch, do, why_not):
    stream, number = drawn.stream, drawn.number
    leaves = trees.leaves(batch)
    if capture.active():
        copies = [(path, tensors.host(t).clone()) for path, t in leaves]
        stream.bytes += sum(tensors.nbytes(t) for _, t in copies)
        if stream is _training or stream.bytes <= MAX_KEPT:
            do(_write, "loader", number, drawn, copies, drawn.steps)
    if _index.get("batch_source") != "loader" or _reference is None:
        return batch
    if number not in _reference.entries:
        return batch
    match = matching.compare(_hosts(batch), _reference, number)
    fed, given = False, batch
    if match.state in ("unlike", "reordered"):
        remade = None
        if match.state == "unlike":
            match, remade = _other_order(drawn, match)
        why_not = why_not or (None if remade is not None else match.feedable)
        if why_not is None:
            given, why_not = (remade, None) if remade is not None else _fed(batch, number)
            fed = why_not is None
    else:
        why_not = None
    do(_say, "loader", number, match, fed, why_not)
    return given


def _hosts(batch):
    return [(path, tensors.host(tensor)) for path, tensor in trees.leaves(batch)]


def _other_order(drawn, match):
    """(Match, the program's own batch of the reference's indices), or (Match, None)."""
    ids, kind = _reference.ids(drawn.number), getattr(drawn.iterator, "_dataset_kind", None)
    own = _whole(drawn.ids)
    if ids is None or kind != 0 or own == ids:  # 0: torch's _DatasetKind.Map
        return match, None
    if type(own) is not type(ids) or isinstance(own, list) and len(own) != len(ids):
        return match, None  # a part of the batch: the size of this program's is its own
    try:
        iterator, module = drawn.iterator, sys.modules["torch.utils.data.dataloader"]
        fetcher = module._DatasetKind.create_fetcher(
            kind,
            iterator._dataset,
            iterator._auto_collation,
            iterator._collate_fn,
            iterator._drop_last,
        )
        batch = draws.fetch(fetcher, ids)
    except Exception as error:  # the data set has no such index, or is in another process
        match.detail += " The reference's indices bring no batch here (%s)." % type(error).__name__
        return match, None
    own = matching.compare(_hosts(batch), _reference, drawn.number)
    if own.state in ("same", "padded"):
        match.state = "reordered"
        match.detail = (
            "Other samples, for the order is another: those of the reference's indices are the same "
            "here. %s" % own.detail
        )
        return match, batch
    match.detail = "Even of the reference's indices: %s" % own.detail
    match.leaf, match.error = own.leaf, own.error
    return match, None


def _whole(ids):
    """Indices as they can be written: numbers of samples, at most ``MAX_IDS``."""
    if type(ids) is int:
        return ids
    if isinstance(ids, (list, tuple)) and len(ids) <= MAX_IDS:
        found = [int(i) for i in ids if hasattr(i, "__index__")]
        return found if len(found) == len(ids) else None
    return None


def _say(source, number, match, fed, why_not):
    detail = match.detail
    if why_not is not None:
        detail += " The reference's was not put in its place: %s." % why_not
    process.write(
        "batch",
        n=number,
        source=source,
        state=match.state,
        leaf=match.leaf,
        detail=detail.strip() or None,
        error=match.error,
        fed=fed,
    )


def _write(source, number, drawn, leaves, steps):
    """Into this rank's capture; ``steps``: optimizer steps made when the batch was drawn."""
    mine = capture.current()
    if mine is None or mine.done:
        return
    index = mine.index
    index["batch_source"] = source
    entry = {"n": number, "iterator": None, "step": steps, "ids": None, "leaves": []}
    if drawn is not None:
        stream = drawn.stream
        entry["iterator"], entry["ids"] = stream.ordinal, _whole(drawn.ids)
        index["loader"] = {"dataset_len": stream.length, "batch_size": stream.batch_size}
    for path, tensor in leaves:
        leaf = mine.put("batches", "%d.%s" % (number, path), tensor)
        leaf.update(path=path, sha256=tensors.sha256(tensor))
        entry["leaves"].append(leaf)
    index["batches"].append(entry)


# --- the reference's in its place ------------------------------------------------------------------


def _fed(batch, number):
    """(the batch with the reference's tensors, None), or (the batch, why not)."""
    table, own = {}, dict(trees.leaves(batch))
    for path, tensor in _reference.leaves(number):
        mine = own[path]
        tensor = tensor.to(device=mine.device, dtype=mine.dtype)
        table[path] = (
            tensor.pin_memory() if mine.device.type == "cpu" and mine.is_pinned() else tensor
        )
    try:
        return _filled(batch, "", table), None
    except Exception as error:  # a container of the host's that cannot be made again
        return batch, "a %s could not be filled (%s)" % (type(batch).__name__, error)


def _filled(value, path, table):
    if isinstance(value, sys.modules["torch"].Tensor):
        return table.get(path, value)
    children = trees._children(value)
    if not children:
        return value
    filled = [(part, _filled(child, trees._join(path, part), table)) for part, child in children]
    if all(new is old for (_, new), (_, old) in zip(filled, children)):
        return value
    items = [new for _, new in filled]
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    made = copy.copy(value)
    if isinstance(value, list):
        made[:] = items
    elif hasattr(value, "__setitem__"):
        for part, new in filled:
            made[part] = new
    else:  # a dataclass
        for part, new in filled:
            object.__setattr__(made, part, new)
    return made


# --- the forward pass, and the end -----------------------------------------------------------------


def _trains():
    """What was drawn last feeds the training: a training forward or backward pass, or a step."""
    global _training, _number
    if _training is not None or _last is None:
        return
    with _lock:
        if _training is None:
            _training, _number = _last, _last.count
            for call, given in _training.kept:
                with guard.reporting("first batches"):
                    call(*given)
            for stream in list(_streams.values()):
                stream.kept = []


def _before_forward(module, args, kwargs):
    global _without_loader
    if not module.training or not sys.modules["torch"].is_grad_enabled():
        return
    _open()
    _trains()
    with _lock:
        wanted = _index.get("batch_source") == "root" or _training is None
        if wanted and _without_loader is None and any(True for _ in module.parameters()):
            _without_loader = weakref.ref(module)
        if _without_loader is not None and _without_loader() is module:
            _inputs(module, args, kwargs)


def _inputs(module, args, kwargs):
    """No DataLoader: what the model is given."""
    global _inputs_seen
    number, _inputs_seen = _inputs_seen, _inputs_seen + 1
    if number >= MAX_BATCHES:
        return
    found = trees.leaves(trees.arguments(module, args, kwargs))
    if any(process.backend.lazy(t) for _, t in found):
        process.backend.synchronise()
    hosts = list(zip([p for p, _ in found], process.backend.read([t for _, t in found])))
    if capture.active() and _training is None:
        _write("root", number, None, hosts, sum(thread.steps for thread in everyone()))
    if _index.get("batch_source") == "root" and _reference and number in _reference.entries:
        _say("root", number, matching.compare(hosts, _reference, number), False, None)


def _end():
    """Say which batches of the reference this program has not drawn."""
    if _reference is None:
        return
    source = _index.get("batch_source")
    done = _number if source == "loader" else _inputs_seen
    steps = sum(thread.steps for thread in everyone())
    for number, entry in sorted(_reference.entries.items()):
        # One that the reference drew in its last steps may have been ahead of what it needed.
        if number >= done and entry["step"] < min(steps, process.parity_steps) - 1:
            if _training is None and source == "loader":
                detail = (
                    "The training draws from no torch.utils.data.DataLoader; the reference does."
                )
            else:
                detail = "The reference has drawn %d batches by then, this program %d." % (
                    number + 1,
                    done,
                )
            _say(source, number, matching.Match("missing", detail=detail), False, None)
