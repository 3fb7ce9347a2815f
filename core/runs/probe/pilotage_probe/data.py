"""Passes over DataLoaders: how many batches and samples, in which order, for what.

Nothing of Python's is added to a batch but the first of each pass: how many there were is read from
the iterator when it goes, and the indices are counted by ``itertools``. The sampler is asked for
the same items at the same time as without us, so no random number is drawn earlier or later.

What a pass was for shows in what came first after it had begun: forward passes in training, or in
evaluation. That is looked at when a pass begins or ends, and where training turns to evaluation or
back: never in a step.
"""

import functools
import itertools
import operator
import sys
import threading
import weakref
from _thread import allocate_lock
from collections import deque

from . import guard, hashing, process, threads
from .wrapping import MARK, hook, marked, unseen, wrap

MAX_RECORDED = 256  # passes of one process; a program may begin one in each step
MAX_WAITING = 64  # passes that are over and whose role is not known

count = 0  # passes begun
_live = {}  # id(iterator) -> Pass
_passes = []  # that are not written yet
_loaders = {}  # id(loader) -> (reference to it, its number)
_lock = allocate_lock()


class Pass:
    """One iterator of a DataLoader."""

    __slots__ = (
        "ref",
        "number",
        "fields",
        "start",
        "role",
        "over",
        "used_up",
        "sums",
        "counted",
        "here",
    )

    def __init__(self, iterator, number):
        self.ref = weakref.ref(iterator)
        self.number = number
        self.fields = {}
        self.start = _activity()
        self.role = None
        self.here = threading.current_thread() is threading.main_thread()
        self.over = False
        self.used_up = False  # the sampler has no more
        self.counted = None  # indices in the sampler's first item; None: they are not counted
        self.sums = deque(maxlen=1)  # indices in those after it


def install(torch):
    """Wrap what every DataLoader iterator passes through: its making, its reset and its end."""
    module = sys.modules.get("torch.utils.data.dataloader")
    if module is None:
        return
    base = module._BaseDataLoaderIter
    wrap(base, "__init__", "data", None, _opened)
    wrap(base, "_reset", "data reset", _before_reset, _after_reset)
    for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        _watch_end(getattr(module, name))


def _watch_end(cls):
    original = cls.__dict__.get("__del__")
    if original is None:
        cls.__del__ = unseen(lambda self: _gone(self))
        return
    if marked(original):
        return

    @functools.wraps(original)
    @unseen
    def __del__(self):
        _gone(self)
        try:
            original(self)
        except BaseException as error:
            guard.unframe(error)
            raise

    setattr(__del__, MARK, original)
    cls.__del__ = __del__


# --- the beginning ---------------------------------------------------------------------------


def _opened(args, kwargs, result):
    iterator = args[0]
    _begin(iterator, args[1] if len(args) > 1 else kwargs.get("loader"))


def _before_reset(args, kwargs):
    """Workers that stay end a pass with this, and begin the next one with the same iterator."""
    known = _live.get(id(args[0]))
    if known is not None and known.ref() is args[0] and not _of_constructor(args, kwargs):
        del _live[id(args[0])]
        _close(known, args[0])


def _after_reset(args, kwargs, result):
    iterator = args[0]
    if not _of_constructor(args, kwargs):
        _begin(iterator, args[1] if len(args) > 1 else kwargs.get("loader"))
        return
    known = _live.get(id(iterator))
    if known is not None and known.ref() is iterator:
        _spy(iterator, known)  # it has made another iterator of the sampler


def _of_constructor(args, kwargs):
    return bool(args[2] if len(args) > 2 else kwargs.get("first_iter"))


def _begin(iterator, loader):
    global count
    settle()
    count += 1
    if count > MAX_RECORDED or loader is None:
        return
    known = Pass(iterator, count)
    _describe(known, iterator, loader)
    _live[id(iterator)] = known
    _passes.append(known)
    _spy(iterator, known)
    iterator._next_data = _first_batch(weakref.ref(iterator), known)


def _describe(known, iterator, loader):
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler).__name__ == "BatchSampler" or sampler is None:
        sampler = getattr(loader, "sampler", None)
    iterable = not _is_map(iterator)
    known.fields.update(
        loader=_number(loader),
        dataset_len=None if iterable else _length(loader.dataset),
        batch_size=_whole(getattr(loader, "batch_size", None))
        or _whole(getattr(getattr(loader, "batch_sampler", None), "batch_size", None)),
        drop_last=bool(getattr(loader, "drop_last", False)),
        sampler=None if iterable else type(sampler).__name__,
        workers=_whole(getattr(loader, "num_workers", None)),
        iterable=iterable,
    )


def _is_map(iterator):
    return getattr(iterator, "_dataset_kind", None) == 0  # torch's _DatasetKind.Map


def _number(loader):
    known = _loaders.get(id(loader))
    if known is None or known[0]() is not loader:
        known = _loaders[id(loader)] = (weakref.ref(loader), len(_loaders) + 1)
    return known[1]


def _whole(value):
    return value if type(value) is int else None


def _length(value):
    try:
        return _whole(len(value))
    except Exception:  # one that has none
        return None


# --- the sampler -----------------------------------------------------------------------------


def _spy(iterator, known):
    """Let the sampler's items pass by: the first one is looked at, the others are counted in C."""
    if not _is_map(iterator) or type(iterator).__module__ != "torch.utils.data.dataloader":
        return
    items = iterator._sampler_iter
    parts = [_first_item(items, known)]
    if iterator._auto_collation:
        passed, measured = itertools.tee(items)
        sums = itertools.accumulate(map(operator.length_hint, measured))
        pairs = zip(passed, map(known.sums.append, sums))
        parts.append(map(operator.itemgetter(0), pairs))
    else:
        parts.append(items)
    parts.append(_end_of_items(known))
    iterator._sampler_iter = itertools.chain(*parts)


@unseen
def _first_item(items, known):
    try:
        item = next(items)
    except StopIteration:
        return
    except BaseException as error:
        guard.unframe(error)
        raise
    _look_at_item(known, item)
    yield item


def _end_of_items(known):
    known.used_up = True
    return
    yield


@hook("first indices")
def _look_at_item(known, item):
    if type(item) not in (list, tuple):
        return
    known.counted = len(item)
    known.fields["first_ids"] = hashing.of_indices(item)
    known.fields["in_order"] = hashing.in_order(item)


# --- the first batch -------------------------------------------------------------------------


def _first_batch(ref, known):
    """Stands in for the iterator's ``_next_data`` until its first call."""

    @unseen
    def _next_data():
        iterator = ref()
        try:
            if iterator.__dict__.get("_next_data") is _next_data:
                del iterator._next_data
            batch = iterator._next_data()
        except BaseException as error:
            guard.unframe(error)
            raise
        _look_at_batch(known, batch)
        return batch

    return _next_data


@hook("first batch")
def _look_at_batch(known, batch):
    known.fields["first"], known.fields["rows"] = hashing.of_batch(sys.modules["torch"], batch)


# --- the end ---------------------------------------------------------------------------------


def _gone(iterator):
    """From ``__del__``, at any time: only notes how far it came. Never raises."""
    try:
        known = _live.pop(id(iterator), None)
        if known is not None:
            _close(known, iterator)
            _settle()
    except Exception:  # the interpreter is ending, or the iterator was never whole
        pass


def _close(known, iterator):
    known.over = True
    fields = known.fields
    batches = getattr(iterator, "_num_yielded", 0)
    sent = getattr(iterator, "_send_idx", batches)  # to workers, ahead of what was handed out
    fields["batches"] = batches
    if fields["iterable"]:
        fields["complete"] = _ended(iterator)
        return
    fields["complete"] = sent == batches and (known.used_up or _all_were_handed_out(iterator))
    if known.counted is None:
        return
    size = fields["batch_size"]
    if sent == batches:
        fields["samples"] = known.counted + (known.sums[0] if known.sums else 0)
    elif size is not None and type(iterator._index_sampler).__name__ == "BatchSampler":
        fields["samples"] = batches * size


def _ended(iterator):
    """True where an iterable data set has come to its end, None where that is not known."""
    working = getattr(iterator, "_workers_status", None)
    if working is not None:
        return None if any(working) else True
    return getattr(getattr(iterator, "_dataset_fetcher", None), "ended", None) or None


def _all_were_handed_out(iterator):
    """The program counts the batches itself, and does not ask for one more."""
    sampler = iterator._index_sampler
    if not type(sampler).__module__.startswith("torch.utils.data"):
        return False  # what a length costs is not known
    return _length(sampler) == iterator._num_yielded


# --- what it was for -------------------------------------------------------------------------


def _activity():
    """(trained, evaluated, backward passes) so far, in any thread: loaders have their own."""
    trained = evaluated = backwards = 0
    for thread in threads.everyone():
        backwards += thread.backwards
        evaluated += sum(thread.blind.values())
        for module in list(thread.modules.values()):
            trained += module.train + module.calls
            evaluated += module.eval
    return trained, evaluated, backwards


def _role(start, now):
    trained, evaluated, backwards = (b - a for a, b in zip(start, now))
    if trained and not evaluated:
        return "train"
    if evaluated and not trained and not backwards:
        return "eval"
    if backwards:  # a frozen model is trained in evaluation mode
        return "train"
    return "eval" if evaluated else None


def settle():
    """Find the roles of passes for which something has happened, and write those that are over."""
    if not _passes or not _lock.acquire(False):
        return
    try:
        now = None
        for known in _passes:
            if known.role is None:
                now = now or _activity()
                known.role = _role(known.start, now)
        over = [known for known in _passes if known.over]
        late = len(over) - MAX_WAITING
        for index, known in enumerate(over):
            # A loader's own thread is ahead of the training. In the program's own, a pass to its
            # end with nothing done on the way was for something else.
            idle = known.here and known.fields.get("complete")
            if known.role is not None or idle or index < late:
                _passes.remove(known)
                _write(known)
    finally:
        _lock.release()


_settle = hook("data")(settle)


def _write(known):
    process.write("data", iterator=known.number, role=known.role, **known.fields)


def finish():
    """Write what is not written yet: the process ends."""
    for known in list(_live.values()):
        iterator = known.ref()
        if iterator is not None:
            with guard.reporting("data"):
                _close(known, iterator)
    _live.clear()
    settle()
    for known in _passes:
        if known.over:
            _write(known)
    del _passes[:]


def reset_after_fork():
    """The parent's passes are the parent's."""
    global count, _lock
    count = 0
    _lock = allocate_lock()
    _live.clear()
    _loaders.clear()
    del _passes[:]
