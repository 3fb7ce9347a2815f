"""Hold a batch against the reference's: the same, padded, reordered, or another one."""

import hashlib
import itertools
import sys
from collections import Counter

from . import tensors

EQUAL = 1e-6  # relative L2 of what float32 arithmetic in another order may do to the same data
LABELS = ("label", "target", "tgt")
MAX_ROWS = 65536


class Match:
    """What a comparison found; ``detail`` is one sentence or "", ``error`` a relative L2 or None."""

    __slots__ = ("state", "leaf", "detail", "error", "feedable")

    def __init__(self, state, leaf=None, detail="", error=None, feedable=None):
        self.state, self.leaf, self.detail, self.error = state, leaf, detail, error
        self.feedable = feedable  # None, or why the reference's tensors cannot take its place


class Reference:
    """The reference's batches: ``reader`` has ``keys``, ``get`` and ``in``, ``entries`` the index's."""

    def __init__(self, reader, entries):
        self.reader = reader
        self.entries = {e["n"]: dict(e, step=e.get("step") or 0) for e in entries if _valid(e)}
        self._pads = {}
        self._rows = None

    def leaves(self, n):
        """[(path, tensor or None where only a sample was kept)] of batch ``n``."""
        found = []
        for leaf in self.entries[n]["leaves"]:
            key = "%d.%s" % (n, leaf["path"])
            found.append((leaf["path"], self.reader.get(key) if key in self.reader else None))
        return found

    def ids(self, n):
        """The indices that the reference's sampler gave for batch ``n``, or None."""
        found = self.entries[n].get("ids")
        whole = isinstance(found, list) and found and all(type(i) is int for i in found)
        return found if whole or type(found) is int else None

    def pad(self, path):
        """With what the reference pads the rows of an integer leaf, or None where it is not seen."""
        if path not in self._pads:
            seen = Counter()
            for n in self.entries:
                tensor = dict(self.leaves(n)).get(path)
                if tensor is not None and tensor.dim() == 2 and not tensor.is_floating_point():
                    for row in tensor.tolist()[:MAX_ROWS]:
                        run = len(list(itertools.takewhile(lambda v: v == row[-1], reversed(row))))  # noqa: B023
                        if 2 <= run < len(row):
                            seen[row[-1]] += run
            self._pads[path] = seen.most_common(1)[0][0] if seen else None
        return self._pads[path]

    def rows(self):
        """Digests of the rows of all batches."""
        if self._rows is None:
            self._rows = set()
            for n in self.entries:
                found = _rows([tensor for _, tensor in self.leaves(n)])
                self._rows.update(found or ())
        return self._rows


def _valid(entry):
    """Nothing that was read from a file is trusted."""
    if not isinstance(entry, dict) or type(entry.get("n")) is not int:
        return False
    if type(entry.get("step", 0)) is not int or not isinstance(entry.get("leaves"), list):
        return False
    kinds = {"path": str, "dtype": str, "sha256": str, "shape": list}
    return all(
        isinstance(leaf, dict) and all(isinstance(leaf.get(k), kinds[k]) for k in kinds)
        for leaf in entry["leaves"]
    )


def compare(mine, reference, n):
    """``mine``, [(path, host tensor)], against batch ``n`` of a ``Reference``."""
    entry = reference.entries[n]
    if _identical(mine, entry["leaves"]):
        return Match("same", error=0.0)
    own, theirs = dict(mine), reference.leaves(n)
    lost = [path for path, _ in theirs if path not in own]
    if lost:
        detail = "The reference's batch has %s; this one has %s." % (
            _listed(path for path, _ in theirs),
            _listed(own) or "no tensors",
        )
        return Match("unlike", lost[0], detail, feedable="it is made of other parts")
    sampled = [path for path, tensor in theirs if tensor is None]
    if sampled:
        detail = "%s is another one; of the reference's only a sample was kept." % _name(sampled[0])
        return Match("unlike", sampled[0], detail, feedable="only a sample was kept")
    found = [(path, _leaf(own[path], tensor)) for path, tensor in theirs]
    odd = [(path, one) for path, one in found if one[0] == "unlike"]
    if odd:
        return _unlike(own, theirs, odd, reference)
    padded = [(path, one) for path, one in found if one[0] == "padded"]
    if padded:
        return _padded(own, theirs, padded, reference)
    worst = max(one[1] for _, one in found) if found else 0.0
    others = [
        "%s is %s, the reference's %s" % (_name(p), _dtype(own[p]), _dtype(t))
        for p, t in theirs
        if own[p].dtype != t.dtype
    ]
    return Match("same", detail="; ".join(others) + "." if others else "", error=worst)


def _identical(mine, leaves):
    if [path for path, _ in mine] != [leaf["path"] for leaf in leaves]:
        return False
    for (_, tensor), leaf in zip(mine, leaves):
        if list(tensor.shape) != leaf["shape"] or _dtype(tensor) != leaf["dtype"]:
            return False
        if tensors.sha256(tensor) != leaf["sha256"]:
            return False
    return True


# --- one leaf ----------------------------------------------------------------------------------


def _leaf(mine, theirs):
    """(state, error, constants or None): ``same``, ``padded`` or ``unlike``."""
    if mine.shape == theirs.shape:
        error = _error(mine, theirs)
        return ("same" if error <= EQUAL else "unlike"), error, None
    if mine.dim() != theirs.dim() or any(a < b for a, b in zip(mine.shape, theirs.shape)):
        return "unlike", None, None
    torch = sys.modules["torch"]
    sides = [(0,) if a == b else (0, a - b) for a, b in zip(mine.shape, theirs.shape)]
    for starts in itertools.product(*sides):  # padded on the right, or on the left
        inside = tuple(slice(s, s + size) for s, size in zip(starts, theirs.shape))
        error = _error(mine[inside], theirs)
        if error > EQUAL:
            continue
        outside = torch.ones(mine.shape, dtype=torch.bool)
        outside[inside] = False
        rest = mine[outside]
        if bool((rest == rest[0]).all()):
            return "padded", error, rest[0].item()
    return "unlike", None, None


def _error(mine, theirs):
    if mine.dtype != theirs.dtype and mine.is_floating_point() and mine.element_size() < 4:
        theirs = theirs.to(mine.dtype)  # rounded to half precision by the program
    return tensors.relative_l2(mine, theirs)


def _padded(own, theirs, padded, reference):
    paths = [path for path, _ in theirs]
    parts, wrong = [], None
    for path, (_, _, constant) in padded:
        usual = reference.pad(path)
        part = "%s is padded from %s to %s with %s" % (
            _name(path),
            _shape(dict(theirs)[path]),
            _shape(own[path]),
            _number(constant),
        )
        if usual is not None and usual != constant:
            part += " where the reference pads with %s" % _number(usual)
            if _is_label(path, paths, own[path]):
                wrong = wrong or path
        elif usual is None and _is_label(path, paths, own[path]):
            part += ", which the reference does not pad"
        parts.append(part)
    detail = "; ".join(parts) + "."
    error = max(one[1] for _, one in padded)
    if wrong is not None:
        return Match("unlike", wrong, detail, error, "it is of another shape")
    return Match("padded", padded[0][0], detail, error)


def _is_label(path, paths, tensor):
    last = path.rpartition(".")[2].lower()
    if last == "y" or any(word in last for word in LABELS):
        return True
    numbered = all(p.rpartition(".")[2].isdigit() for p in paths)
    return numbered and path == paths[-1] and not tensor.is_floating_point()


# --- a batch that is another one ---------------------------------------------------------------


def _unlike(own, theirs, odd, reference):
    path, (_, error, _) = odd[0]
    mine, other = own[path], dict(theirs)[path]
    if len(odd) == 1:
        detail = _other_constant(path, mine, other, reference.pad(path))
        if detail:
            return Match("unlike", path, detail, error)
    ours = _rows([own[p] for p, _ in theirs], [t for _, t in theirs])
    known = _rows([t for _, t in theirs])
    if mine.shape != other.shape:
        detail = "%s is %s, the reference's %s" % (_name(path), _shape(mine), _shape(other))
        if ours and known and len(ours) < len(known) and not Counter(ours) - Counter(known):
            detail += "; its %d rows are among the reference's %d" % (len(ours), len(known))
        fits = mine.dim() == other.dim() and mine.shape[:1] == other.shape[:1]
        why = None if fits else "it is of another shape"
        return Match("unlike", path, detail + ".", error, why)
    if ours and known and Counter(ours) == Counter(known):
        moved = sum(a != b for a, b in zip(ours, known))
        detail = "The reference's rows in another order: %d of %d are elsewhere." % (
            moved,
            len(ours),
        )
        return Match("reordered", path, detail, error)
    return Match("unlike", path, _how_much(path, mine, other, ours, reference), error)


def _other_constant(path, mine, other, usual):
    """A sentence if all that differs is the constant that rows are padded with, else None."""
    if usual is None or mine.dim() != 2 or other.dim() != 2 or mine.shape[0] != other.shape[0]:
        return None
    if mine.shape[1] < other.shape[1]:
        return None
    data = other != usual
    start = mine[:, : other.shape[1]]
    rest = start[~data]
    if not bool((start[data] == other[data]).all()) or not rest.numel():
        return None
    if not bool((rest == rest[0]).all()):
        return None
    return "%s is padded with %s, where the reference pads with %s." % (
        _name(path),
        _number(rest[0].item()),
        _number(usual),
    )


def _how_much(path, mine, other, ours, reference):
    one, two = _rows([mine], [other]), _rows([other])
    if not one or not two:
        return "%s has another value." % _name(path)
    if Counter(one) == Counter(two):
        return "The rows of %s are in another order than the rest of the batch." % _name(path)
    detail = "%s differs in %d of %d rows" % (
        _name(path),
        sum(a != b for a, b in zip(one, two)),
        len(one),
    )
    elsewhere = sum(row in reference.rows() for row in ours or ())
    if elsewhere:
        detail += "; %d of its rows are in some batch of the reference" % elsewhere
    return detail + "."


def _rows(batch, like=None):
    """A digest of each row over all tensors, or None where they have no common number of rows."""
    if not batch or any(t is None or not t.dim() or t.numel() == 0 for t in batch):
        return None
    count = batch[0].shape[0]
    if any(t.shape[0] != count for t in batch) or count > MAX_ROWS:
        return None
    digests = [hashlib.sha1() for _ in range(count)]
    for index, tensor in enumerate(batch):
        if like is not None and tensor.dtype != like[index].dtype:
            tensor = tensor.to(like[index].dtype)
        for digest, row in zip(digests, tensors.host(tensor)):
            for piece in tensors._pieces(row.contiguous()):
                digest.update(piece)
    return [digest.digest() for digest in digests]


# --- words -------------------------------------------------------------------------------------


def _dtype(tensor):
    return tensors.dtype_name(tensor)


def _name(path):
    if path.replace(".", "").isdigit():
        return "Tensor " + path
    return path or "The tensor"


def _listed(paths):
    return ", ".join(_name(path) for path in list(paths)[:10])


def _shape(tensor):
    return "x".join(map(str, tensor.shape)) or "a scalar"


def _number(value):
    return "%g" % value if isinstance(value, float) else str(value)
