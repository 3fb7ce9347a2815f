"""Values of the host's tensors, without making it compute what it would not have computed."""

import sys
import weakref

from . import model, process
from .cycle import is_sparse
from .threads import current, outermost

# Where values may be read by ourselves, a loss is read in the first steps, in each tenth (on a lazy
# device a read costs up to 20 % of a 5 ms step), and where steps are so slow that it is lost in the
# noise.
LOSS_EVERY = 10
SLOW_STEP_S = 0.05
NOT_READ = "the program did not read it"
EAGER = ("cuda", "mps", "xpu", "hip")  # where a copy of a scalar is an asynchronous kernel

# Every optimizer that was made: whose parameters another one's are not.
made = weakref.WeakSet()


def parity():
    """Whether this is a parity run, in which everything is read."""
    return process.mode == "parity"


# --- scalars, held until they can be read ----------------------------------------------------


class Held:
    """A scalar on a device, to be read later."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor, version):
        self.tensor, self.version = tensor, version


class Asked:
    """A scalar on a lazy device that we do not read: its number is known once the program reads it.

    The tensor itself is not held on XLA: that would make it an output of the program's graph.
    """

    __slots__ = ("identity", "kept", "number")

    def __init__(self, tensor):
        self.identity, self.number = process.backend.identity(tensor), None
        self.kept = tensor if process.backend.keeps else None


def told(tensor, number):
    """The program has read this lazy scalar: its own read is all that light mode needs."""
    asked = current().asked
    if asked:
        identity = process.backend.identity(tensor)
        for item in asked:
            if item.identity == identity:
                item.number = number


def hold(value):
    """A number at once, a Held or an Asked for a scalar that is not on the host, else None.

    Where values may be read by ourselves, a lazy scalar is held as it is, at every step and whether
    it is read or not: what is held is an output of the compiled graph, and a graph that differs
    between steps is compiled again.
    """
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, sys.modules["torch"].Tensor) or value.numel() != 1:
        return None
    if value.is_cpu:
        number = value.item()
        return None if isinstance(number, complex) else float(number)
    if value.is_complex() or value.device.type == "meta":
        return None
    if value.device.type in EAGER:
        return Held(value.detach().clone(), None)
    if not process.reads and process.backend.lazy(value):
        item = Asked(value)
        if item.identity is not None:
            current().asked.append(item)
        return item
    return Held(value, _version(value))


def _version(tensor):
    try:
        return tensor._version
    except RuntimeError:  # tensors of inference mode have none
        return None


def value(item):
    """A held scalar as a float, or None if reading it would compute something or it has changed."""
    if item is None or isinstance(item, float):
        return item
    if isinstance(item, Asked):
        return item.number
    tensor = item.tensor
    if item.version is not None and _version(tensor) != item.version:
        return None  # an in-place operation has changed it since
    if not process.backend.readable(tensor):
        return None
    return float(process.backend.read([tensor if lazy([tensor]) else tensor.detach()])[0])


def waits(item):
    """Whether a held scalar is not computed yet, but will be at the host's next sync."""
    return isinstance(item, Held) and not process.backend.readable(item.tensor)


def written(parameters):
    """A function that says whether any of these lazy parameters has been written to since.

    Of what was written nothing is known: the same value again counts, too.
    """
    parameters = [p for p in parameters if process.backend.lazy(p)]
    before = [process.backend.identity(p) for p in parameters]
    if not before or None in before:
        return lambda: None
    return lambda: before != [process.backend.identity(p) for p in parameters]


def lazy(tensors):
    """Whether any of these is on a device where operations are only noted down."""
    return any(process.backend.lazy(tensor) for tensor in tensors)


# --- which parameters ------------------------------------------------------------------------


def modules(roots):
    """The living modules behind entries of ``threads``."""
    return [module for module in (entry.ref() for entry in roots) if module is not None]


def held(optimizer):
    """The parameters of an optimizer's groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def roots_of(thread, optimizer):
    """Entries of the modules whose parameters an optimizer holds.

    Where it holds none of any module's (it was made before a move replaced them) they are the
    modules called since the last step. With ``functional_call`` they can't be known.
    """
    if thread.functional:
        return []
    own = {id(p) for p in held(optimizer)}
    alive = [entry for entry in thread.modules.values() if entry.ref() is not None]
    owners = [e for e in alive if any(id(p) in own for _, p in model.named([e.ref()]))]
    now = [entry for entry in owners if entry.mark == thread.steps]
    return outermost(now or owners) or thread.called()


def trained(optimizer, roots):
    """(name, parameter) of what a step of this optimizer should change, shared ones once.

    Those of the modules that require a gradient, without those that only another optimizer
    holds; the optimizer's own where no module was seen.
    """
    pairs = [(name, p) for name, p in model.unique(model.named(modules(roots))) if p.requires_grad]
    if optimizer is None:
        return pairs
    mine = held(optimizer)
    if not pairs:
        return model.unique([("", p) for p in mine if p.requires_grad])
    own = {id(p) for p in mine}
    if any(id(p) in own for _, p in pairs):
        others = {id(p) for o in list(made) if o is not optimizer for p in held(o)} - own
        pairs = [(name, p) for name, p in pairs if id(p) not in others]
    return pairs


def norms_by_id(parameters):
    """id -> 2-norm of the gradient, for those that have one (parity mode: it synchronises)."""
    parameters = [p for p in parameters if p.grad is not None]
    process.backend.synchronise()
    read = process.backend.read([p.grad for p in parameters])
    return {id(p): norm for p, norm in zip(parameters, model.norms(read))}


def all_gradient_norms(thread):
    """``norms_by_id`` of everything that any optimizer might step now."""
    pairs = trained(None, thread.recently())
    parameters = [p for _, p in pairs]
    if thread.functional or not parameters:
        parameters = [p for o in list(made) for p in held(o)]
    return norms_by_id(parameters)


def changed(before, after):
    """Whether gradients differ between two readings of ``norms_by_id``, where both have them."""
    if not before or not after:
        return False
    return any(
        abs(after[key] - norm) > 1e-6 * max(abs(norm), abs(after[key]))
        for key, norm in before.items()
        if key in after
    )


# --- parameters before and after a step ------------------------------------------------------


def compare(cycle, before, after):
    """Norms of the parameters after the step and of what the step changed."""
    updates = [model.difference(new, old) for new, old in zip(after, before)]
    cycle.param_norm = model.norm(after)
    cycle.update_norm = model.norm(updates)
    cycle.norm_elements = sum(tensor.numel() for tensor in after)
    cycle.changed = None if cycle.update_norm is None else cycle.update_norm != 0
    if parity():
        cycle.update_norms = model.norms(updates)


def snapshot(step, parameters):
    """Copies of lazy parameters as they are after a step, or None if any is not computed yet."""
    if not all(process.backend.readable(p) for p in parameters):
        return None
    return step, [id(p) for p in parameters], process.backend.read(parameters)


def after_sync(thread, cycle):
    """Right after the program's own sync its parameters are real: copy them, sparsely."""
    if not process.reads or not (is_sparse(cycle.n) or is_sparse(cycle.n + 1)):
        return
    parameters = [p for _, p in model.budget(trained(cycle.owner(), cycle.roots))]
    if not lazy(parameters):
        return
    before, thread.snapshot = thread.snapshot, snapshot(cycle.n, parameters)
    if before is None or thread.snapshot is None or not is_sparse(cycle.n):
        return
    step, identities, old = before
    if step == cycle.n - 1 and identities == thread.snapshot[1]:
        compare(cycle, old, thread.snapshot[2])
