"""State by thread: replicas may train in threads of one process, each with steps of its own."""

import threading
import weakref

_all = []


class Seen:
    """What is known of one module that was called from outside any other."""

    __slots__ = ("ref", "elements", "calls", "train", "eval")

    def __init__(self, module):
        self.ref = weakref.ref(module)  # of a module, never of a tensor: swap_tensors forbids it
        self.elements = sum(p.numel() for p in module.parameters())
        self.calls = 0  # in training
        self.train = 0  # samples
        self.eval = 0


class _Local(threading.local):
    def __init__(self):
        self.nest = {}
        self.in_forward = False
        self.state = None


local = _Local()


class Thread:
    """The training steps of one thread."""

    def __init__(self):
        self.steps = 0  # optimizer steps done
        self.open = None  # the cycle that waits for its optimizer step
        self.pending = None  # the cycle that was stepped and waits for the next backward
        self.frozen = False  # evaluating: what happens now belongs to no step
        self.modules = {}  # id -> Seen
        self.eval_now = 0  # samples of the evaluation that is under way
        self.eval_last = 0  # and of the one before
        self.samples = {}  # id -> samples forwarded in training since the last step
        self.optimizers = weakref.WeakSet()  # those described so far
        self.stack = []  # ids of optimizers in mid-step
        self.scaled = None  # (scaled loss, loss) since GradScaler.scale
        self.roots = []  # weak references to the trained modules
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

    def trained(self):
        """Modules with parameters that were called in training, the largest first."""
        alive = [(entry, entry.ref()) for entry in self.modules.values() if entry.calls]
        alive = [(entry, module) for entry, module in alive if module is not None]
        alive = [pair for pair in alive if pair[0].elements]
        alive.sort(key=lambda pair: -pair[0].elements)
        modules = [module for _, module in alive]
        inner = set()
        for module in modules:
            inner.update(id(child) for child in module.modules() if child is not module)
        return [module for module in modules if id(module) not in inner][:8]


def current():
    """The state of the calling thread."""
    if local.state is None:
        local.state = Thread()
        _all.append(local.state)
    return local.state


def everyone():
    """The states of all threads that trained or evaluated anything."""
    return list(_all)


def reset_after_fork():
    """Forget what the parent did."""
    del _all[:]
    local.state = None
    local.nest = {}
