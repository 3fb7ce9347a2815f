"""State by thread: replicas may train in threads of one process, each with steps of its own."""

import threading
import weakref
from collections import deque

from . import process

_all = []


class Seen:
    """What is known of one module that was called from outside any other."""

    __slots__ = ("ref", "elements", "first", "calls", "train", "eval", "mark", "start")

    def __init__(self, module):
        self.ref = weakref.ref(module)  # of a module, never of a tensor: swap_tensors forbids it
        try:
            self.elements = sum(p.numel() for p in module.parameters())
        except ValueError:  # lazy modules have parameters without a shape before their first call
            self.elements = 1
        self.first = next(
            map(id, module.parameters()), None
        )  # a wrapper's is that of what it wraps
        self.calls = 0  # in training
        self.train = 0  # samples
        self.eval = 0
        self.mark = -1  # steps of this thread at the last call in training
        self.start = 0  # samples before the first call since the last step


class Known:
    """What is known of one optimizer that has stepped."""

    __slots__ = (
        "ref",
        "index",
        "steps",
        "roots",
        "taken",
        "tensors",
        "orphaned",
        "trained",
        "stale",
        "ids",
        "cover",
    )

    def __init__(self, index, optimizer):
        self.ref = weakref.ref(optimizer)
        self.index = index  # 1, 2, ... in the order of their first steps in this thread
        self.steps = 0
        self.roots = []  # Seen of the modules it trains, the largest first
        self.taken = (None, 0)  # (id(Seen), its training samples) when this optimizer last stepped
        self.tensors = None  # how many tensors of these modules it trains
        self.orphaned = None
        self.trained = None  # elements that require a gradient, as last described
        self.ids = None  # of what it trains; compared, never followed
        self.cover = {}  # clip calls that are known to cover just these
        self.stale = True  # must be described (again) before its next step


class _Local(threading.local):
    def __init__(self):
        self.nest = {}
        self.in_forward = False
        self.state = None


local = _Local()


class Thread:
    """The training steps of one thread."""

    def __init__(self):
        self.tid = threading.get_native_id()  # its last step may be written by another thread
        self.steps = 0  # optimizer steps done
        self.backwards = 0  # backward passes begun
        self.skipped = 0  # steps that a GradScaler skipped since the last step
        self.skipped_all = 0
        self.open = None  # the cycle that waits for its optimizer step
        self.pending = None  # the cycle that was stepped and waits for the next backward
        self.late = []  # records that wait for a sync of the host's before they are written
        self.frozen = False  # evaluating: what happens now belongs to no step
        self.modules = {}  # id -> Seen
        self.eval_now = 0  # samples of the evaluation that is under way
        self.eval_last = 0  # and of the one before
        self.eval_train = 0  # of all evaluated samples those that met a module in training mode
        self.blind = {}  # id -> samples forwarded without gradients, before any backward pass
        self.functional = False  # torch.func.functional_call was used since the last step
        self.optimizers = 0  # how many have stepped, the forgotten ones too
        self.known = weakref.WeakKeyDictionary()  # optimizer -> Known
        self.latest = None  # the Known that stepped last
        self.stack = []  # ids of optimizers in mid-step, the outermost first
        self.scaled = []  # (scaled loss, loss) from GradScaler.scale, not yet used
        self.scaler = None  # a reference to that scaler
        self.scaler_at = None  # (steps, skipped_all) when GradScaler.step began
        self.clipped = None  # the parameters that are being clipped
        self.clips_at = None  # (cycle, number of clips) when a module's own clipping began
        self.norm = None  # (result, norm type) of the last torch.nn.utils.get_total_norm
        self.grad_call = None  # (loss, ids of inputs) of the last torch.autograd.grad
        self.asked = deque(maxlen=32)  # scalars whose numbers are known if the program reads them
        self.read_at = None  # (file, line, function) of the program's last read of the device
        self.snapshot = None  # (step, [id], [host tensor]): parameters after that step
        self.base = None  # counters at the start of the step
        self.since = None  # monotonic start of the step
        self.placed = None  # what a module was like before the move that is under way

    def seen(self, module):
        """The entry of a module, made at its first call."""
        entry = self.modules.get(id(module))
        if entry is None or entry.ref() is not module:
            entry = self.modules[id(module)] = Seen(module)
        return entry

    def called(self):
        """Entries of the modules called in training since the last step, the largest first.

        Not of those that are part of another.
        """
        found = [e for e in self.modules.values() if e.mark == self.steps and e.ref() is not None]
        return outermost(found)

    def recently(self):
        """Entries of the modules trained now: called since the last step, else by any step."""
        found = self.called()
        if found:
            return found
        return outermost(
            [entry for known in self.known.values() for entry in known.roots if entry.ref()]
        )


def outermost(entries):
    """Without those that are part of another; the largest first, at most 8."""
    entries = sorted(entries, key=lambda entry: -entry.elements)
    if len(entries) > 1:
        inner = set()
        for entry in entries:
            module = entry.ref()
            inner.update(id(child) for child in module.modules() if child is not module)
        entries = [entry for entry in entries if id(entry.ref()) not in inner]
    kept = []
    for entry in entries:
        if entry not in kept:
            kept.append(entry)
    return kept[:8]


def current():
    """The state of the calling thread."""
    if local.state is None:
        local.state = Thread()
        _all.append(local.state)
        process.trains()
    elif not process.beating:  # it ended before a fork
        process.trains()
    return local.state


def everyone():
    """The states of all threads that trained or evaluated anything."""
    return list(_all)


def reset_after_fork():
    """Forget what the parent did."""
    del _all[:]
    local.state = None
    local.nest = {}
