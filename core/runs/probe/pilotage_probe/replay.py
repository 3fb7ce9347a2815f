"""Start from the weights of a reference and be compared with what it computed (parity mode).

``PILOTAGE_PROBE_REFERENCE`` names a directory that ``capture`` has written in a run of the program
this one is to compute the same as. Before the first training forward pass of each root its weights
are compared with the reference's and, where they differ, replaced by them; ``compare`` then holds
the pass, module by module, against the recorded one, and here the first gradients. The files come
from elsewhere and are not trusted: what cannot be used is said in the records, and the program is
left as it is.
"""

import json
import math
import os

from . import capture, compare, gradients, naming, process, recording, tensors
from .threads import everyone

MAX_INDEX = 64 * 1024 * 1024  # bytes
MAX_NAMES = 500  # of one list in a record
# A gradient that nearly cancels out (of a bias before a normalisation) is rounding noise: its error
# is taken relative to at least this part of the mean size of all gradients.
FLOOR = 1e-2

_directory = None
_references = {}  # rank -> Reference
_told = {}  # rank -> why there is none


def install():
    """Read the settings; whether anything is to be compared."""
    global _directory
    _directory = os.environ.get("PILOTAGE_PROBE_REFERENCE") or None
    if _directory is None:
        return False
    recording.factories.append(_sink)
    gradients.takers.append(_compare_gradients)
    process.at_end.append(_finish)
    return True


def reference():
    """The reference directory of this rank, opened at the first call; None where there is none."""
    if _directory is None:
        return None
    rank = recording.rank()
    if rank not in _references:
        try:
            from . import merging

            _references[rank] = merging.opened(_directory, rank)
        except Exception as error:  # whatever stands there
            _references[rank] = None
            _told[rank] = _sentence(error)
    return _references[rank]


def _sentence(error):
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (
        "The reference's tensors in %s cannot be used (%s); record the reference again."
        % (_directory, (text or type(error).__name__)[:300])
    )[:490]


def _finish():
    """A program in which no root was trained says so."""
    if any(not root.blind for several in recording.roots.values() for root in several):
        return
    if not any(thread.steps for thread in everyone()):
        return  # a launcher
    process.write(
        "start",
        roots=0,
        matched=0,
        loaded=False,
        why="No module was called in training, so nothing was compared. Call the model itself (not "
        "its forward) in the training loop.",
    )


class Reference:
    """One rank's capture: ``index``, and the files in it as Readers (None where there is none)."""

    def __init__(self, directory, rank):
        place = os.path.join(directory, "rank%d" % rank)
        if not os.path.exists(place):
            others = [name for name in os.listdir(directory) if name.startswith("rank")]
            if others != ["rank0"]:
                raise ValueError("there is no directory rank%d in it" % rank)
            place = os.path.join(directory, "rank0")
        path = os.path.join(place, "index.json")
        if not os.path.exists(path):
            raise ValueError(
                "it has no index.json, so the run that wrote it did not come to its end"
            )
        if os.path.getsize(path) > MAX_INDEX:
            raise ValueError("index.json is too large")
        with open(path, "rb") as file:
            try:
                index = json.loads(file.read(MAX_INDEX).decode("utf-8"))
            except (ValueError, RecursionError):
                index = None
        if not isinstance(index, dict) or index.get("format") != capture.FORMAT:
            raise ValueError("index.json is none that this version can read")
        self.index = index
        for name, kind in (
            ("roots", list),
            ("ties", list),
            ("weights", list),
            ("batches", list),
            ("modules", list),
            ("gradients", list),
            ("aliases", dict),
            ("sketched", dict),
        ):
            if not isinstance(index.get(name), kind):
                index[name] = kind()
        for name in ("weights", "modules", "gradients"):
            index[name] = [entry for entry in index[name] if isinstance(entry, dict)]
        self.roots = [str(cls) for cls in index["roots"]]
        self.taken = {}  # root of the reference -> root here
        files = {}
        for file in capture.FILES:
            path = os.path.join(place, file + ".safetensors")
            files[file] = tensors.Reader(path) if os.path.exists(path) else None
        self.weights, self.batches = files["weights"], files["batches"]
        self.forward, self.gradients = files["forward"], files["gradients"]
        self.names = {}  # every name of a weight -> key under which it is stored
        for entry in index["weights"]:
            if isinstance(entry.get("key"), str):
                self.names[entry["key"]] = entry["key"]
        for group in index["ties"]:
            if isinstance(group, list) and all(isinstance(name, str) for name in group):
                stored = [name for name in group if name in self.names]
                for name in group:
                    if stored:
                        self.names.setdefault(name, self.names[stored[0]])
        self.kinds = {
            e["key"]: e.get("kind") for e in index["weights"] if isinstance(e.get("key"), str)
        }
        self.matched = {}  # key of a weight here -> name in the reference
        self.started = set()  # roots here whose weights are in the record
        self.loaded = {}  # root here -> the record of when its weights were replaced
        # The records of weights and of the forward pass, of all roots so far.
        self.start = {
            "roots": 0,
            "matched": 0,
            "missing": [],
            "extra": [],
            "renamed": 0,
            "unlike_shape": [],
            "dtype_unlike": [],
            "natural_error": None,
            "worst": None,
            "loaded": False,
            "why": None,
        }
        self.passes = {
            "roots": 0,
            "modules": [],
            "compared": 0,
            "uncompared": 0,
            "missing": [],
            "extra": [],
            "why": None,
        }

    def single(self, root):
        """Whether names need no number of their root."""
        return len(self.roots) <= 1 and root.index == 0

    def root_of(self, root):
        """The number of the reference's root that a root here is, as text, or None."""
        for theirs, mine in self.taken.items():
            if mine == root.index:
                return str(theirs)
        free = [n for n in range(len(self.roots)) if n not in self.taken]
        same = [n for n in free if self.roots[n] == root.cls]
        chosen = same or [n for n in free if n == root.index]
        if root.index in same:
            chosen = [root.index]
        if not chosen:
            return None
        self.taken[chosen[0]] = root.index
        return str(chosen[0])

    def look(self, file, key):
        """(tensor, None) or (sample, stride) of what is stored under a key.

        KeyError where nothing is.
        """
        reader = getattr(self, file)
        if reader is None:
            raise KeyError(key)
        alias = self.index["aliases"].get(key)
        if isinstance(alias, str):
            key = alias
        if key in reader:
            return reader.get(key), None
        return reader.get("sketch." + key), self.stride(key)

    def stride(self, key):
        """Of a sample; ValueError where the index does not say."""
        entry = self.index["sketched"].get(key)
        stride = entry.get("stride") if isinstance(entry, dict) else None
        if type(stride) is not int or stride < 1:
            raise ValueError("the stride of the sample %.80r is not stated" % key)
        return stride

    def shape(self, file, key):
        """The shape of what is stored whole, or None."""
        reader = getattr(self, file)
        return reader.shape(key) if reader is not None and key in reader else None

    def error(self, file, key, mine, floor=tensors.TINY):
        """(relative L2, sketched, shapes differ) of a tensor here to the stored one."""
        theirs, stride = self.look(file, key)
        if stride is not None:
            sample = tensors.sampled(mine, stride)
            if sample.numel() != theirs.numel():
                return math.inf, True, True
            return tensors.relative_l2(sample, theirs, floor), True, False
        return compare.apart(mine, theirs, floor)


# --- weights ---------------------------------------------------------------------------------


def _sink(root):
    theirs = reference()
    if theirs is None:
        if root.index == 0:
            why = _told.get(root.rank)
            process.write("start", roots=1, matched=0, loaded=False, why=why)
        return None
    return compare.Sink(theirs, root, _start(theirs, root))


def _start(theirs, root):
    """Compare the weights of a root with the reference's, and take over what differs.

    Returns the function that writes the record, called here already unless it is to wait.
    """
    record = {"matched": 0, "loaded": False, "why": None}
    for key in [k for k in theirs.matched if naming.split(k)[0] == str(root.index)]:
        del theirs.matched[key]  # of a pass that failed, or was blind
    try:
        if theirs.weights is None:
            raise ValueError("it holds no weights: %s" % (theirs.index.get("why") or "")[:200])
        _compare_weights(theirs, root, record)
    except Exception as error:  # a file that is cut off or lies
        record["why"] = _sentence(error)
    before = theirs.loaded.get(root.index)
    if before is not None and not record["why"]:  # in a blind pass: its own weights were those
        for name in ("natural_error", "worst", "loaded"):
            record[name] = before[name]
    elif record["loaded"]:
        theirs.loaded[root.index] = record

    def write():
        if root.index not in theirs.started:
            theirs.started.add(root.index)
            _add(theirs.start, record)
            process.write("start", **theirs.start)

    if root.blind:
        return write
    write()
    return None


def _add(total, record):
    """Take the record of one more root into that of all."""
    blocked = total["why"] or record["why"]
    for name in ("matched", "renamed"):
        total[name] += record.get(name) or 0
    for name in ("missing", "extra", "unlike_shape", "dtype_unlike"):
        total[name] = (total[name] + record.get(name, []))[:MAX_NAMES]
    errors = [e for e in (total["natural_error"], record.get("natural_error")) if e is not None]
    if record.get("natural_error") is not None and record["natural_error"] == max(errors):
        total["worst"] = record.get("worst") or total["worst"]
    total["natural_error"] = max(errors) if errors else None
    total["loaded"] = not blocked and (record["loaded"] or total["loaded"])
    total["why"] = blocked
    total["roots"] += 1


def _compare_weights(theirs, root, record):
    found = root.tensors()
    process.backend.synchronise()
    here = {key: tensor for key, tensor, _ in found}
    kinds = {key: kind for key, _, kind in found}
    number = theirs.root_of(root)

    def fits(mine, name):
        shape = theirs.shape("weights", theirs.names[name])
        return shape is None or shape == tuple(here[mine].shape)

    free = [name for name in theirs.names if name not in theirs.matched.values()]
    matched = naming.match(list(here), free, {str(root.index): number}, fits)
    theirs.matched.update(matched)
    missing, extra = _unmatched(theirs, root, number, matched, here, kinds)
    unlike_shape, dtype_unlike, samples, apart = [], [], [], {}
    worst, error, done = None, 0.0, set()
    for key, name in matched.items():
        tensor, stored = here[key], theirs.names[name]
        # A buffer that no checkpoint holds is the program's own to compute, and may be wrong.
        if id(tensor) in done or kinds[key] == "cache":
            continue
        done.add(id(tensor))
        shape = theirs.shape("weights", stored)
        if shape is not None and shape != tuple(tensor.shape):
            unlike_shape.append(key)
            continue
        mine = process.backend.read([tensor])[0]
        if shape is None:
            samples.append(key)
        elif theirs.weights.dtype(stored) != tensors.dtype_name(mine):
            dtype_unlike.append(key)
        apart[key] = theirs.error("weights", stored, mine)[0]
        if worst is None or apart[key] > error:
            worst, error = key, max(error, apart[key])
    single = theirs.single(root)

    def shown(names):
        return [naming.split(n)[1] if single else n for n in names[:MAX_NAMES]]

    record.update(
        matched=len(matched),
        missing=shown(missing),
        extra=shown(extra),
        renamed=sum(naming.split(a)[1] != naming.split(b)[1] for a, b in matched.items()),
        unlike_shape=shown(unlike_shape),
        dtype_unlike=shown(dtype_unlike),
        natural_error=error if apart else None,
        worst=shown([worst])[0] if worst is not None and error else None,
    )
    if missing or extra or unlike_shape:
        record["why"] = _why(missing, extra, unlike_shape)
        return
    if not any(apart.values()):
        return
    unlike = [key for key in apart if apart[key]]
    unloadable = [key for key in unlike if key in samples]
    if unloadable:
        record["why"] = (
            "The reference's budget for tensors held only samples of %d weights, %s first, so they "
            "could not be taken over: record the reference with a larger budget."
            % (len(unloadable), shown(unloadable)[0])
        )[:490]
        return
    for key in unlike:
        value = theirs.weights.get(theirs.names[matched[key]])
        here[key].data.copy_(value.to(here[key].dtype))
    process.backend.synchronise()
    record["loaded"] = True


def _unmatched(theirs, root, number, matched, here, kinds):
    """Names that only one side has, without buffers that are not saved either."""
    taken = {theirs.names[name] for name in theirs.matched.values()}
    mine = {id(here[key]) for key in matched}
    extra = [
        key
        for key, tensor in here.items()
        if key not in matched and kinds[key] != "cache" and id(tensor) not in mine
    ]
    missing = [
        stored
        for stored in dict.fromkeys(theirs.names.values())
        if naming.split(stored)[0] == number
        and stored not in taken
        and theirs.kinds.get(stored) != "cache"
    ]
    return missing, extra


def _why(missing, extra, unlike_shape):
    def some(names):
        return ", ".join(naming.split(name)[1] for name in names[:3])

    parts = []
    if missing:
        parts.append("%d only in the reference (%s)" % (len(missing), some(missing)))
    if extra:
        parts.append("%d only here (%s)" % (len(extra), some(extra)))
    if unlike_shape:
        parts.append("%d of another shape (%s)" % (len(unlike_shape), some(unlike_shape)))
    return (
        "The weights were not taken over from the reference, because they differ: %s. Give modules "
        "the names and shapes they have there, or say in pilotage.toml what was renamed: "
        '[parity] rename = {"name in the reference" = "name here"}.' % "; ".join(parts)
    )[:490]


# --- gradients -------------------------------------------------------------------------------


def _compare_gradients(step, triples, why):
    """Of an optimizer's first step, against the reference's first step of the same parameters."""
    theirs = reference()
    if theirs is None:
        return
    record = {"n": step, "errors": {}, "missing": [], "extra": [], "why": why}
    if not why:
        try:
            _gradients(theirs, triples, record)
        except Exception as error:
            record["why"] = _sentence(error)
    said = ("errors", "missing", "extra", "uncompared", "why")
    if any(record.get(name) for name in said):  # a method without gradients has none to compare
        process.write("gradients", **record)


def _gradients(theirs, triples, record):
    stored = {}
    squares = elements = 0.0
    for entry in theirs.index["gradients"]:
        key, norm, shape = entry.get("key"), entry.get("norm"), entry.get("shape")
        if not isinstance(key, str) or not isinstance(shape, list):
            continue
        norm = float(norm) if isinstance(norm, (int, float)) else math.inf
        stored[key] = norm
        count = math.prod(n for n in shape if type(n) is int)
        if math.isfinite(norm):
            squares, elements = squares + norm * norm, elements + count
    typical = math.sqrt(squares / elements) if elements else 0.0

    def shown(key):
        root, name = naming.split(key)
        return name if len(theirs.roots) <= 1 and root == "0" else key

    uncompared = 0
    for key, parameter, read in triples:
        name = theirs.matched.get(key)
        place = theirs.names.get(name)
        if place is None:
            uncompared += 1
            continue
        gradient = read()
        if gradient is None:
            if stored.get(place):
                record["missing"].append(shown(key))
            continue
        if place not in stored:
            if bool((gradient != 0).any()):
                record["extra"].append(shown(key))
            continue
        floor = max(FLOOR * typical * math.sqrt(parameter.numel()), tensors.TINY)
        record["errors"][shown(key)] = theirs.error("gradients", place, gradient, floor)[0]
    worst = max(record["errors"], key=record["errors"].get, default=None)
    record.update(
        worst=worst,
        error=record["errors"].get(worst),
        uncompared=uncompared,
        missing=record["missing"][:MAX_NAMES],
        extra=record["extra"][:MAX_NAMES],
    )


def reset_after_fork():
    """A forked child opens files of its own."""
    _references.clear()
    _told.clear()
