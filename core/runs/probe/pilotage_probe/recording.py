"""The first training forward pass of each root, module call by module call (parity mode).

A root is a module that the program calls from outside any other. What is seen goes to *sinks*:
``capture`` writes it to files, ``compare`` compares it with what the reference wrote. On a device
that computes at once a sink takes each tensor as it comes by; on a lazy one it keeps a copy that
is computed with everything else in one synchronisation after the pass.

Where the weights are trained without a backward pass (a zeroth-order optimizer) the first pass of
a module in training mode without gradients may be the one, or an evaluation before the training;
so may one with gradients in evaluation mode. Such a *blind* pass is recorded, and one in training
mode with gradients takes its place.
"""

import functools
import sys
import weakref
from _thread import get_native_id

from . import forward, guard, model, naming, process, ranks, trees, wrapping
from .threads import current, local
from .wrapping import untraced

MAX_CALLS = 4000  # of modules in one forward pass

factories = []  # functions of (Root) -> a sink or None
roots = {}  # rank -> [Root]
_numbers = {}  # rank -> calls numbered so far, of all its roots


class Root:
    """A module called from outside, in the order of the first training forward passes."""

    def __init__(self, index, module, rank):
        inner = model.unwrap(module)
        self.index, self.rank = index, rank
        self.ref = weakref.ref(inner)
        self.cls = type(inner).__name__
        self.blind = False  # see above
        self.sinks = []

    def tensors(self):
        """[(key, tensor, kind)]: ``parameter``, ``buffer`` or ``cache`` (not saved), with ties."""
        found = []
        root = self.ref()
        for path, module in _named_modules(root):
            prefix = "%d.%s" % (self.index, path + "." if path else "")
            for name, tensor in module._parameters.items():
                if tensor is not None and "Uninitialized" not in type(tensor).__name__:
                    found.append((prefix + name, tensor, "parameter"))
            unsaved = getattr(module, "_non_persistent_buffers_set", ())
            for name, tensor in module._buffers.items():
                if tensor is not None and "Uninitialized" not in type(tensor).__name__:
                    kind = "cache" if name in unsaved else "buffer"
                    found.append((prefix + name, tensor, kind))
        return found


def _named_modules(root):
    """Every (canonical path, module), a module that has several paths under each."""
    if root is None:
        return
    for path, module in root.named_modules(remove_duplicate=False):
        yield naming.canonical(path), module


class Call:
    """One call of a module in the forward pass."""

    __slots__ = ("i", "name", "nth", "module", "type", "leaf", "skeleton", "autocast", "tensors")

    def __init__(self, i, name, nth, module):
        self.i, self.name, self.nth = i, name, nth  # nth: calls of this module before this one
        self.module, self.type = module, type(module).__name__
        self.leaf = not module._modules
        self.skeleton = self.autocast = None
        self.tensors = []  # [(path, tensor)] of the inputs, for sinks; let go after the call


class Recording:
    """A forward pass under way."""

    def __init__(self, root):
        self.root = root
        self.names = {}
        for path, module in _named_modules(root.ref()):
            self.names.setdefault(id(module), path)
        self.counts = {}
        self.begun = self.skipped = 0

    def before(self, module, args, kwargs):
        """A module is about to run; its Call, or None."""
        name = self.names.get(id(module))
        if name is None:
            return None  # a wrapper, or a module that is no part of the root
        if self.begun >= MAX_CALLS:
            self.skipped += 1
            return None
        nth = self.counts.get(name, 0)
        self.counts[name] = nth + 1
        number = _numbers.get(self.root.rank, 0)
        _numbers[self.root.rank] = number + 1
        call = Call(number, name, nth, module)
        self.begun += 1
        torch = sys.modules["torch"]
        try:
            call.skeleton = trees.skeleton(args, kwargs, module)
        except trees.NotPlain:
            pass
        call.autocast = _autocast(torch)
        call.tensors = trees.leaves(trees.arguments(module, args, kwargs))
        with torch.no_grad():
            for sink in self.root.sinks:
                with guard.reporting("recording inputs"):
                    sink.inputs(call)
        call.tensors = []
        return call

    def after(self, call, result):
        """It has returned."""
        if call is None:
            return
        found = trees.leaves(result)
        with sys.modules["torch"].no_grad():
            for sink in self.root.sinks:
                with guard.reporting("recording outputs"):
                    sink.outputs(call, found)

    def end(self):
        """The forward pass is over: one synchronisation for all that was kept, then the rest."""
        lazy = False
        with sys.modules["torch"].no_grad():
            for sink in self.root.sinks:
                with guard.reporting("recording"):
                    lazy = bool(sink.enqueue()) or lazy
            if lazy:
                process.backend.synchronise()
            for sink in self.root.sinks:
                with guard.reporting("recording"):
                    sink.settle(self)


def _autocast(torch):
    """(device type, dtype) of the autocasts that are on: ``replay`` enters them again."""
    found = []
    for device in ("cuda", "cpu", "xla"):
        try:
            on = torch.is_autocast_enabled(device)
            dtype = torch.get_autocast_dtype(device) if on else None
        except (TypeError, RuntimeError, AttributeError):  # before torch 2.4
            on = device == "cuda" and torch.is_autocast_enabled()
            on = on or (device == "cpu" and torch.is_autocast_cpu_enabled())
            dtype = None
            if on:
                ask = "get_autocast_%s_dtype" % ("gpu" if device == "cuda" else device)
                dtype = getattr(torch, ask)()
        if on:
            found.append((device, dtype))
    return tuple(found)


def install():
    """Find out what is to be recorded, and for whom; whether anything is."""
    from . import capture, copies, eager, gradients, replay

    with guard.reporting("hook tensors"):
        if any([capture.install(), replay.install()]):
            process.before_clip.append(gradients.before_clip)
            process.before_step.append(gradients.before_step)
            eager.install(sys.modules["torch"])
            copies.install()
            return True
    return False


# --- which forward passes ----------------------------------------------------------------------


def rank():
    """The rank of this thread or process, 0 where it has none."""
    return ranks.find(get_native_id(), True)[0] or 0


def begin(module):
    """The Recording that the pass which begins now is to have, or None."""
    torch = sys.modules["torch"]
    thread = current()
    entry = thread.modules.get(id(module))
    if entry is None or entry.ref() is not module or not entry.elements:
        return None
    grad = torch.is_grad_enabled() or bool(thread.stack)
    if not (module.training or grad):
        return None
    grad = grad and module.training
    if not grad and thread.backwards:
        return None
    mine = roots.setdefault(rank(), [])
    inner = model.unwrap(module)
    known = [root for root in mine if root.ref() is inner]
    if known and (not known[0].blind or not grad):
        return None
    if known:
        root = known[0]
    else:
        root = Root(len(mine), module, rank())
        mine.append(root)
    root.blind = not grad
    root.sinks = []
    for make in factories:
        with guard.reporting("recording"):
            sink = make(root)
            if sink is not None:
                root.sinks.append(sink)
    return Recording(root)


def confirm(of_rank, held):
    """An optimizer steps for the first time: what ran blind is its training after all.

    ``held``: ids of its parameters, None for those of any root.
    """
    for root in living(of_rank):
        if root.blind and (held is None or any(id(p) in held for p in root.ref().parameters())):
            root.blind = False
            for sink in root.sinks:
                with guard.reporting("recording"):
                    sink.confirm()


def living(of_rank):
    """The roots of a rank so far."""
    return [root for root in roots.get(of_rank, ()) if root.ref() is not None]


def forget(root):
    """A pass that failed was none."""
    mine = roots.get(root.rank, [])
    if mine and mine[-1] is root:
        mine.pop()


# --- the hook ----------------------------------------------------------------------------------


def _begin(module, args, kwargs):
    forward.watched(module, args, kwargs)
    with guard.reporting("recording"):
        local.recording = begin(module)


def _before(module, args, kwargs):
    return local.recording.before(module, args, kwargs)


def _after(call, result):
    local.recording.after(call, result)


def _end():
    recording, local.recording = local.recording, None
    recording.end()


def wrap_forward(cls):
    """Stands in for ``torch_hooks._wrap_forward`` where tensors are captured or compared."""
    original = cls.__call__
    on_begin, on_end = wrapping.hook("forward")(_begin), wrapping.hook("forward end")(_end)
    before, after = wrapping.hook("call before")(_before), wrapping.hook("call after")(_after)
    local.recording = None

    @functools.wraps(original)
    @untraced
    def __call__(self, *args, **kwargs):
        try:
            if local.in_forward:
                if getattr(local, "recording", None) is None or guard.local.busy:
                    return original(self, *args, **kwargs)
                call = before(self, args, kwargs)
                result = original(self, *args, **kwargs)
                if call is not None:
                    after(call, result)
                return result
            if (
                wrapping.compiling()
                or guard.local.busy
                or local.nest.get("B")
                or wrapping.tracing()
            ):
                return original(self, *args, **kwargs)
            local.in_forward = True
            try:
                local.recording = None
                on_begin(self, args, kwargs)
                if local.recording is None:
                    return original(self, *args, **kwargs)
                try:
                    call = before(self, args, kwargs)
                    result = original(self, *args, **kwargs)
                except BaseException:
                    forget(local.recording.root)
                    raise
                if call is not None:
                    after(call, result)
                on_end()
                return result
            finally:
                local.in_forward = False
                local.recording = None
        except BaseException as error:
            guard.unframe(error)
            raise

    cls.__call__ = __call__


def reset_after_fork():
    """A forked child records nothing that its parent has begun."""
    roots.clear()
    _numbers.clear()
    for name in ("capture", "replay"):
        sys.modules["%s.%s" % (__package__, name)].reset_after_fork()
