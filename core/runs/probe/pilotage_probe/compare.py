"""Hold a training forward pass, module by module, against the one that the reference recorded.

*In place*: each module's output as it came about here. *Isolated*: the module once more, on the
inputs that it had in the reference, so that it answers for itself alone. Modules without children
are always tried; what holds others only where it differs in place, for its children are then
known to be right or wrong. Nothing of the program's is left changed: buffers, frozen parameters,
attributes and random generators are put back.
"""

import contextlib
import math
import sys

from . import naming, process, tensors, trees

LIMIT = 1e-5  # relative L2 beyond which a module that holds others is tried by itself
MAX_TRIED = 200  # of those
MAX_SAVED = 512 * 1024 * 1024  # bytes of buffers and frozen parameters put aside for one try
SHOWN = 4000
MAX_NAME = 200


def apart(mine, theirs, floor=tensors.TINY):
    """(relative L2, False, shapes differ); of unlike shapes the part that both have."""
    if tuple(mine.shape) == tuple(theirs.shape):
        return tensors.relative_l2(mine, theirs, floor), False, False
    if mine.dim() != theirs.dim():
        if mine.numel() == theirs.numel():
            return tensors.relative_l2(mine, theirs, floor), False, True
        return math.inf, False, True
    common = tuple(slice(0, min(a, b)) for a, b in zip(mine.shape, theirs.shape))
    return tensors.relative_l2(mine[common], theirs[common], floor), False, True


class _Compared:
    """One module call here and what the reference has of it."""

    def __init__(self, call, entry):
        self.call, self.entry = call, entry
        self.error = self.isolated = None
        self.sketched = self.shape_unlike = False
        self.dtype = None
        self.failed = False  # there was something to compare, and it could not be read

    def worse(self, found):
        """Take in the result of one more output."""
        error, sketched, unlike = found
        self.error = error if self.error is None else max(self.error, error)
        self.sketched = self.sketched or sketched
        self.shape_unlike = self.shape_unlike or unlike

    def record(self, name):
        """The entry of the record ``forward``."""
        return {
            "i": self.call.i,
            "name": name,
            "type": self.call.type[:MAX_NAME],
            "leaf": self.call.leaf,
            "error": _short(self.error),
            "isolated": _short(self.isolated),
            "sketched": self.sketched,
            "shape_unlike": self.shape_unlike,
            "dtype": self.dtype,
        }


def _short(number):
    return None if number is None else float("%.4g" % number)


class Sink:
    """Compares one root's pass; see ``recording``."""

    def __init__(self, reference, root, start):
        self.reference, self.root = reference, root
        self.start = start  # writes the record of the weights, where it is held back
        self.held = self.why = None  # what the record of the pass is to say
        self.done = []  # [_Compared] in the order in which the modules end
        self.kept = []  # [(_Compared, key, tensor, stride)] until the device has synchronised
        self.tried = []  # [(_Compared, [(key, tensor)])] of isolated runs, likewise
        self.extra = []
        self.entries = {}
        self.expected = []
        self.names = {}
        self._expect()

    def _expect(self):
        """The reference's calls of this root by (name, how often it was called before)."""
        number = self.reference.root_of(self.root)
        names = set()
        for entry in self.reference.index["modules"]:
            name, root = entry.get("name"), entry.get("root")
            if not isinstance(name, str) or not isinstance(entry.get("outputs"), list):
                continue
            key = "%s.%s" % (root, name) if name else "%s" % root
            nth = entry.get("nth")
            self.entries.setdefault((key, nth if type(nth) is int else 0), entry)
            names.add(key)
            if str(root) == number:
                self.expected.append((key, name))
        own = []
        module = self.root.ref()
        if module is not None:
            own = [
                "%d.%s" % (self.root.index, naming.canonical(path))
                if path
                else str(self.root.index)
                for path, _ in module.named_modules()
            ]
        roots = {str(self.root.index): number}
        found = naming.match(own, names, roots)
        by_weights = naming.of_modules(self.reference.matched)
        found.update({a: b for a, b in by_weights.items() if a in own and b in names})
        self.names = found

    def inputs(self, call):
        """See ``recording.Recording.before``."""

    def outputs(self, call, found):
        """See ``recording.Recording.after``."""
        key = "%d.%s" % (self.root.index, call.name) if call.name else str(self.root.index)
        entry = self.entries.get((self.names.get(key), call.nth))
        if entry is None:
            self.extra.append(call.name)
            call.module = call.skeleton = None
            return
        mine = _Compared(call, entry)
        self.done.append(mine)
        for path, leaf in self._pairs(found, entry["outputs"]):
            mine.dtype = mine.dtype or tensors.dtype_name(leaf)
            if not process.backend.lazy(leaf):
                self._compare(mine, path, leaf)
            else:
                self._keep(mine, path, leaf)

    def _pairs(self, found, entries):
        """[(key, tensor)]: outputs by path; in order where the paths are others."""
        stated = [
            (e["path"], e["key"])
            for e in entries
            if isinstance(e, dict)
            and isinstance(e.get("path"), str)
            and isinstance(e.get("key"), str)
        ]
        by_path = dict(stated)
        if len(stated) == len(found) and not all(path in by_path for path, _ in found):
            return [(key, tensor) for (_, key), (_, tensor) in zip(stated, found)]
        return [(by_path[path], tensor) for path, tensor in found if path in by_path]

    def _compare(self, mine, key, tensor):
        try:
            mine.worse(self.reference.error("forward", key, tensor))
        except (KeyError, ValueError, OSError):
            mine.failed = True

    def _keep(self, mine, key, tensor):
        """In the device's graph: a copy, or the sample that there is one of in the reference."""
        tensor = tensor.detach()
        try:
            sampled = key in self.reference.index["sketched"]
            stride = self.reference.stride(key) if sampled else None
        except ValueError:
            mine.failed = True
            return
        kept = tensor.clone() if stride is None else tensor.reshape(-1)[::stride].clone()
        self.kept.append((mine, key, kept, stride))

    def enqueue(self):
        """See ``recording.Recording.end``: modules by themselves, in the same graph."""
        with _unchanged_generators():
            for mine in self.done:
                if mine.call.leaf and mine.call.module._parameters:
                    self._try(mine)
        return bool(self.kept or self.tried)

    def settle(self, recorded):
        """Everything is computed: compare what was kept."""
        kept, self.kept = self.kept, []
        while kept:
            mine, key, tensor, stride = kept.pop(0)
            host = process.backend.read([tensor])[0]
            del tensor
            if stride is None:
                self._compare(mine, key, host)
            else:
                self._compare_sample(mine, key, host)
        self._settle_tried()
        self._try_others()
        for mine in self.done:
            mine.call.module = mine.call.skeleton = None
        self._write(recorded)

    def _compare_sample(self, mine, key, sample):
        try:
            theirs, _ = self.reference.look("forward", key)
            if sample.numel() != theirs.numel():
                mine.worse((math.inf, True, True))
            else:
                mine.worse((tensors.relative_l2(sample, theirs), True, False))
        except (KeyError, ValueError, OSError):
            mine.failed = True

    def _try_others(self):
        """What holds other modules, or has no parameters, and differs in place."""
        wrong = [
            mine
            for mine in self.done
            if mine.error is not None and mine.error > LIMIT and mine.isolated is None
        ][:MAX_TRIED]
        if not wrong:
            return
        with _unchanged_generators():
            for mine in wrong:
                self._try(mine)
        if self.tried:
            process.backend.synchronise()
            self._settle_tried()

    def _settle_tried(self):
        tried, self.tried = self.tried, []
        while tried:
            mine, outputs = tried.pop(0)
            hosts = [(key, process.backend.read([tensor])[0]) for key, tensor in outputs]
            self._isolated(mine, hosts)

    def _isolated(self, mine, outputs):
        found = None
        for key, tensor in outputs:
            try:
                error = self.reference.error("forward", key, tensor)[0]
            except (KeyError, ValueError, OSError):
                return
            found = error if found is None else max(found, error)
        mine.isolated = found

    # --- a module by itself --------------------------------------------------------------------

    def _try(self, mine):
        """Run a module on the reference's inputs; on a lazy device it is only noted down here."""
        call = mine.call
        given = self._inputs(call, mine.entry.get("inputs"))
        if given is None:
            return
        try:
            with _unchanged(call.module), _autocast(call.autocast):
                result = call.module.forward(*given[0], **given[1])
                pairs = self._pairs(trees.leaves(result), mine.entry["outputs"])
                lazy = any(process.backend.lazy(tensor) for _, tensor in pairs)
                if lazy:
                    self.tried.append((mine, [(k, t.detach().clone()) for k, t in pairs]))
                else:
                    self._isolated(mine, pairs)
        except Exception:  # the module does not take them; it answers in place alone
            mine.isolated = None

    def _inputs(self, call, entries):
        """(args, kwargs) with the reference's tensors, or None where they are not all there."""
        if call.skeleton is None or not isinstance(entries, list):
            return None
        holes = trees.holes(call.skeleton)
        pairs = self._pairs([(hole.path, hole) for hole in holes], entries)
        if len(pairs) != len(holes) or len(entries) != len(holes) or not holes:
            return None
        values = {}
        for key, hole in pairs:
            try:
                tensor, stride = self.reference.look("forward", key)
            except (KeyError, ValueError, OSError):
                return None
            if stride is not None or tensor.dim() != len(hole.shape):
                return None
            if hole.dtype != tensor.dtype and not _castable(hole.dtype, tensor.dtype):
                return None
            values[id(hole)] = tensor.to(hole.dtype).to(hole.device)
        return trees.filled(call.skeleton, lambda hole: values[id(hole)])

    # --- the records -----------------------------------------------------------------------------

    def _write(self, recorded):
        seen = {self.names.get(key) for key in self._own_names()}
        missing = [name for key, name in self.expected if key not in seen]
        compared = [mine for mine in self.done if mine.error is not None]
        why = None
        if not self.entries:
            why = (
                "The reference recorded no forward pass. %s"
                % (str(self.reference.index.get("why") or "")[:300])
            )
        elif any(mine.failed for mine in self.done):
            why = "Some of the reference's outputs could not be read from its files."
        self.held = {
            "modules": [mine.record(self._shown(mine.call.name)) for mine in self.done],
            "compared": len(compared),
            "uncompared": len(self.done) - len(compared) + recorded.skipped,
            "missing": [self._shown(name) for name in dict.fromkeys(missing)],
            "extra": [self._shown(name) for name in dict.fromkeys(self.extra)],
        }
        self.why = why
        if not self.root.blind:
            self.confirm()

    def _shown(self, name):
        """A module's name in records: with its root's number where there are several."""
        if self.reference.single(self.root):
            return name[:MAX_NAME]
        return ("%d.%s" % (self.root.index, name) if name else str(self.root.index))[:MAX_NAME]

    def _own_names(self):
        for mine in self.done:
            name = mine.call.name
            yield "%d.%s" % (self.root.index, name) if name else str(self.root.index)

    def confirm(self):
        """The pass was of the training: write what was held back."""
        if self.start is not None:
            self.start()
            self.start = None
        if self.held is None:
            return
        total, held = self.reference.passes, self.held
        self.held = None
        for name, limit in (("modules", SHOWN), ("missing", 500), ("extra", 500)):
            total[name] = (total[name] + held[name])[:limit]
        for name in ("compared", "uncompared"):
            total[name] += held[name]
        total["why"] = total["why"] or self.why
        total["roots"] += 1
        process.write("forward", **total)


def _castable(mine, theirs):
    return (
        mine.is_floating_point == theirs.is_floating_point and mine.is_complex == theirs.is_complex
    )


@contextlib.contextmanager
def _unchanged_generators():
    """Random numbers drawn inside are drawn again outside."""
    torch = sys.modules["torch"]
    state = torch.get_rng_state()
    cuda = getattr(torch, "cuda", None)
    on_cuda = cuda is not None and cuda.is_available() and cuda.is_initialized()
    devices = cuda.get_rng_state_all() if on_cuda else None
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    python = random.getstate() if random is not None else None
    arrays = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if devices is not None:
            cuda.set_rng_state_all(devices)
        if python is not None:
            random.setstate(python)
        if arrays is not None:
            numpy.set_state(arrays)


@contextlib.contextmanager
def _unchanged(module):
    """Copies stand in for buffers and frozen parameters; attributes are put back afterwards."""
    torch = sys.modules["torch"]
    children = list(module.modules())
    aside = [t for child in children for t in child._buffers.values() if t is not None]
    aside += [p for child in children for p in child._parameters.values() if _frozen(p)]
    if sum(tensors.nbytes(tensor) for tensor in aside) > MAX_SAVED:
        raise ValueError("too much to put aside")
    attributes = [(child.__dict__, dict(child.__dict__)) for child in children]
    contents = [
        (value, value.copy())
        for _, saved in attributes
        for value in saved.values()
        if isinstance(value, (dict, list, set))
    ]
    copies = {}

    def copy(tensor):
        if id(tensor) not in copies:
            copies[id(tensor)] = (tensor, tensor.detach().clone())
        return copies[id(tensor)][1]

    try:
        for child in children:
            for name, tensor in list(child._buffers.items()):
                if tensor is not None:
                    child._buffers[name] = copy(tensor)
            for name, tensor in list(child._parameters.items()):
                if _frozen(tensor):
                    made = torch.nn.Parameter(copy(tensor), requires_grad=False)
                    child._parameters[name] = made
        with torch.no_grad():
            yield
    finally:
        for value, saved in contents:
            _restore(value, saved)
        for own, saved in attributes:
            _restore(own, saved)


def _restore(value, saved):
    """Give a dict, list or set the items back that it had, if it has others now."""
    same = len(value) == len(saved)
    if isinstance(value, dict):
        missing = object()
        if same and all(value.get(key, missing) is item for key, item in saved.items()):
            return
        value.clear()
        value.update(saved)
    elif isinstance(value, list):
        value[:] = saved
    else:
        value.clear()
        value.update(saved)


def _frozen(parameter):
    return parameter is not None and not parameter.requires_grad


@contextlib.contextmanager
def _autocast(states):
    """The autocasts that were on when the module was called."""
    torch = sys.modules["torch"]
    with contextlib.ExitStack() as stack:
        for device, dtype in states or ():
            stack.enter_context(torch.autocast(device, dtype=dtype))
        yield
