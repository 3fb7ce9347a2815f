"""What a parity run computes, written down for another program to be held against.

``PILOTAGE_PROBE_CAPTURE`` names a directory. Each rank writes to ``rank<r>`` in it: weights and
buffers right before the first training forward pass, the batches (``feeding``), inputs and
outputs of every module call in that pass, and the gradients of each optimizer's first step before
any clip; ``index.json`` comes last and says what is where. At most ``PILOTAGE_PROBE_BUDGET_MB``
MiB are written; a tensor that does not fit is sampled (``tensors.sketch``), which is enough to
estimate a relative error, but not to start from or to feed.
"""

import json
import math
import os
import sys
import weakref
from _thread import get_native_id

from . import gradients, process, ranks, reading, recording, tensors

FORMAT = 1
FILES = ("weights", "batches", "forward", "gradients")
SHARE = 4  # a tensor of the forward pass takes at most this part of what is left for it

_directory = None
_budget_mb = 256
_captures = {}  # rank -> Capture


def install():
    """Read the settings; whether anything is to be captured."""
    global _directory, _budget_mb
    _directory = os.environ.get("PILOTAGE_PROBE_CAPTURE") or None
    try:
        _budget_mb = max(1, int(os.environ.get("PILOTAGE_PROBE_BUDGET_MB", "256")))
    except ValueError:
        _budget_mb = 256
    if _directory is None:
        return False
    recording.factories.append(_sink)
    gradients.takers.append(_take_gradients)
    process.at_end.append(finish)
    return True


def active():
    """Whether ``PILOTAGE_PROBE_CAPTURE`` is set and this is a parity run."""
    return _directory is not None


def current():
    """The Capture of this rank, made at the first call; None where nothing is captured."""
    if _directory is None:
        return None
    rank = recording.rank()
    if rank not in _captures:
        _captures[rank] = None  # should it fail, once is enough
        _captures[rank] = Capture(rank)
    return _captures[rank]


def finish():
    """Write each rank's index: what was captured is whole now."""
    for mine in list(_captures.values()):
        if mine is not None:
            mine.finish()


def reset_after_fork():
    """A forked child has nothing to finish of its parent's."""
    _captures.clear()


class Capture:
    """What one rank writes."""

    def __init__(self, rank):
        self.rank = rank
        self.path = os.path.join(_directory, "rank%d" % rank)
        os.makedirs(_directory, exist_ok=True)
        os.mkdir(self.path)  # FileExistsError: another process of this rank was first
        self.left = self.budget = _budget_mb * 1024 * 1024
        self.reserved = 0  # of which for gradients
        self.done = False
        self.writers = {}
        self.weights = set()  # keys of the weights that are written
        self.index = {
            "format": FORMAT,
            "rank": rank,
            "world": ranks.find(get_native_id(), True)[1] or 1,
            "steps": process.parity_steps,
            "precision": os.environ.get("PILOTAGE_PROBE_PRECISION", "own"),
            "batch_source": None,
            "why": None,
            "roots": [],
            "ties": [],
            "weights": [],
            "batches": [],
            "modules": [],
            "gradients": [],
            "aliases": {},
            "sketched": {},
            "budget_mb": _budget_mb,
            "bytes": 0,
        }

    def writer(self, file):
        """The Writer of one of ``FILES``."""
        if file not in self.writers:
            self.writers[file] = tensors.Writer(os.path.join(self.path, file + ".safetensors"))
        return self.writers[file]

    def fits(self, size, share=1):
        """Whether a tensor of ``size`` bytes is to be written whole."""
        return size <= (self.left - (self.reserved if share > 1 else 0)) // share

    def put(self, file, key, tensor, share=1):
        """Write a tensor, or a sample where it does not fit; its entry for the index."""
        size = tensors.nbytes(tensor)
        if self.fits(size, share):
            self._add(file, key, tensor)
            self.left -= size
        else:
            tensor = tensors.host(tensor)
            stride, sample = tensors.sketch(tensor)
            self.put_sketch(file, key, sample, stride, tensors.norm(tensor), tensor.numel())
        return {"key": key, "dtype": tensors.dtype_name(tensor), "shape": list(tensor.shape)}

    def put_sketch(self, file, key, sample, stride, norm, numel):
        """Write the sample of a tensor that does not fit."""
        self._add(file, "sketch." + key, sample)
        self.left -= tensors.nbytes(sample)
        self.index["sketched"][key] = {"norm": finite(norm), "numel": numel, "stride": stride}

    def _add(self, file, key, tensor):
        try:
            self.writer(file).add(key, tensor)
        except OSError:  # the disk is full: what there is of it is no capture
            self.done = True
            raise

    def note(self, why):
        """Say in the index why something is missing."""
        if why not in (self.index["why"] or ""):
            self.index["why"] = "%s %s" % (self.index["why"] or "", why)
            self.index["why"] = self.index["why"].strip()[:2000]

    def finish(self):
        """Write the index; nothing is captured from here on."""
        if self.done:
            return
        self.done = True
        for root in recording.roots.get(self.rank, ()):
            if root.blind:
                self.note("%s was called in evaluation only before the end." % root.cls)
        if not self.index["roots"]:
            self.note(
                "No module was called in training, so there are no weights. Call the model itself "
                "(not its forward) in the training loop."
            )
        elif not self.index["gradients"]:
            self.note("No optimizer made a step after a backward pass.")
        for writer in self.writers.values():
            writer.finish()
            self.index["bytes"] += writer.bytes
        path = os.path.join(self.path, "index.json")
        with open(path + ".tmp", "w") as file:
            json.dump(self.index, file)
        os.replace(path + ".tmp", path)


def finite(number):
    """A number for JSON, which has none for NaN and the infinities."""
    return number if number is not None and math.isfinite(number) else None


# --- weights and the forward pass ----------------------------------------------------------------


def _sink(root):
    mine = current()
    if mine is None or mine.done:
        return None
    try:
        return _Sink(mine, root)
    except Exception as error:
        mine.note("The weights of %s could not be written: %s." % (root.cls, error))
        raise


class _Sink:
    """Writes one root; what ran without gradients is kept until it proves to be the training."""

    def __init__(self, mine, root):
        self.mine, self.root = mine, root
        self.modules = []
        self.later = []  # [(function, arguments)] until a pass without gradients is confirmed
        self.kept = []  # [(key, tensor)] on a lazy device, until it has synchronised
        self.kept_bytes = 0
        self.seen = {}  # id -> (weak reference, version, key) of tensors that have a key
        self._weights()

    def _do(self, function, *arguments):
        if self.root.blind:
            self.later.append((function, arguments))
        else:
            function(*arguments)

    def _weights(self):
        groups, order = {}, []
        found = self.root.tensors()
        if reading.lazy([tensor for _, tensor, _ in found]):
            process.backend.synchronise()
        for key, tensor, kind in found:
            if id(tensor) in groups:
                groups[id(tensor)].append(key)
                continue
            groups[id(tensor)] = [key]
            order.append((key, tensor, kind))
        for key, tensor, kind in order:
            lazy = process.backend.lazy(tensor)
            host = process.backend.read([tensor])[0] if lazy or self.root.blind else tensor
            self._do(self._weight, key, host, kind, tensor.requires_grad)
        ties = [group for group in groups.values() if len(group) > 1]
        self._do(self._begun, ties)

    def _weight(self, key, tensor, kind, trained):
        if key in self.mine.weights:
            return  # the first forward pass failed, this is another
        self.mine.weights.add(key)
        entry = self.mine.put("weights", key, tensor)
        entry["norm"] = finite(tensors.norm(tensor))
        entry["kind"] = kind
        self.mine.index["weights"].append(entry)
        if trained:
            self.mine.reserved += tensors.nbytes(tensor)

    def _begun(self, ties):
        index = self.mine.index
        index["roots"] += ["?"] * (self.root.index + 1 - len(index["roots"]))
        index["roots"][self.root.index] = self.root.cls
        index["ties"] += [group for group in ties if group not in index["ties"]]
        self.mine.reserved = min(self.mine.reserved, self.mine.left // 2)

    def inputs(self, call):
        """See ``recording.Recording.before``."""
        entries = [self._leaf("in", call, path, tensor) for path, tensor in call.tensors]
        self.modules.append(
            {
                "i": call.i,
                "name": call.name,
                "nth": call.nth,
                "type": call.type,
                "leaf": call.leaf,
                "root": self.root.index,
                "inputs": entries,
                "outputs": None,
            }
        )

    def outputs(self, call, found):
        """See ``recording.Recording.after``; modules are listed in the order in which they end."""
        for at in range(len(self.modules) - 1, -1, -1):
            if self.modules[at]["i"] == call.i:
                module = self.modules.pop(at)
                module["outputs"] = [self._leaf("out", call, p, tensor) for p, tensor in found]
                self.modules.append(module)
                return

    def _leaf(self, side, call, path, tensor):
        key = "%s.%d" % (side, call.i) + ("." + path if path else "")
        entry = {
            "path": path,
            "key": key,
            "dtype": tensors.dtype_name(tensor),
            "shape": list(tensor.shape),
        }
        version = reading._version(tensor)
        reference, known_version, known = self.seen.get(id(tensor), (None, None, None))
        if reference is not None and reference() is tensor and known_version == version:
            entry["key"] = known
            self._do(self.mine.index["aliases"].__setitem__, key, known)
            return entry
        try:
            self.seen[id(tensor)] = (weakref.ref(tensor), version, key)
        except TypeError:
            pass
        if process.backend.lazy(tensor):
            self._keep(key, tensor)
        elif self.root.blind:
            self._do(self._put, key, tensors.host(tensor).clone())
        else:
            self._put(key, tensor)
        return entry

    def _put(self, key, tensor):
        self.mine.put("forward", key, tensor, SHARE)

    def _keep(self, key, tensor):
        """A copy in the device's graph; a sample of it where the whole would not fit."""
        torch = sys.modules["torch"]
        size = tensors.nbytes(tensor)
        if self.mine.fits(size * SHARE + self.kept_bytes):
            self.kept_bytes += size
            self.kept.append((key, tensor.detach().clone(), None))
            return
        flat = tensor.detach().reshape(-1)
        stride = max(1, -(-flat.numel() // tensors.SKETCH))
        norm = torch.linalg.vector_norm(flat.float())
        self.kept.append((key, flat[::stride].clone(), (stride, norm, flat.numel())))

    def enqueue(self):
        """See ``recording.Recording.end``."""
        return bool(self.kept)

    def settle(self, recorded):
        """Everything is computed: write what was kept."""
        kept, self.kept = self.kept, []
        while kept:
            key, tensor, sampled = kept.pop(0)
            host = process.backend.read([tensor])[0]
            del tensor
            if sampled is None:
                self._do(self._put, key, host)
            else:
                stride, norm, numel = sampled
                norm = float(process.backend.read([norm])[0])
                sample = tensors.sampled(host, 1)
                self._do(self.mine.put_sketch, "forward", key, sample, stride, norm, numel)
        self.seen.clear()
        self._do(self._listed, recorded.skipped)

    def _listed(self, skipped):
        self.mine.index["modules"] += [m for m in self.modules if m["outputs"] is not None]
        if skipped:
            self.mine.note("%d module calls beyond the first ones were left out." % skipped)

    def confirm(self):
        """What was kept of a pass without gradients is of the training."""
        later, self.later = self.later, []
        for function, arguments in later:
            function(*arguments)


# --- gradients -----------------------------------------------------------------------------------


def _take_gradients(step, pairs, why):
    """Of an optimizer's first step; ``pairs``: (key, parameter, function that reads its gradient)."""
    mine = current()
    if mine is None or mine.done:
        return
    if why:
        mine.note(why)
        return
    written = {entry["key"] for entry in mine.index["gradients"]}
    for key, _, read in pairs:
        gradient = read()
        if gradient is None or key in written:
            continue
        entry = mine.put("gradients", key, gradient)
        mine.reserved = max(0, mine.reserved - tensors.nbytes(gradient))
        entry["norm"], entry["step"] = finite(tensors.norm(gradient)), step
        mine.index["gradients"].append(entry)
