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
        self.tid = threading.get_native_id()  # its last step may be written by another thread
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
        self.last = set()  # ids of the modules that the last step trained
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
        """Modules called in training since the last step, else those of that step.

        Only those with parameters, the largest first; not the ones that are part of another. All
        modules ever trained would be wrong: a program may train one model after another.
        """
        called = set(self.samples) or self.last
        alive = [(self.modules[key], self.modules[key].ref()) for key in called]
        alive = [(entry, module) for entry, module in alive if module is not None]
        alive.sort(key=lambda pair: -pair[0].elements)
        modules = [module for _, module in alive]
        if len(modules) < 2:
            return modules
        inner = set()
        for module in modules:
            inner.update(id(child) for child in module.modules() if child is not module)
        return [module for module in modules if id(module) not in inner][:8]

    def take_samples(self, roots):
        """Samples that went through the largest root since the last step; starts counting anew."""
        count = self.samples.get(id(roots[0])) if roots else None
        self.last = {id(root) for root in roots}
        self.samples = {}
        return count


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
