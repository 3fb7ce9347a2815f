"""Which parameter or module of this program is which one of the reference's, by their names.

A name here is ``<root>.<name>``, such as ``0.blocks.1.up.weight``: the root is the number of the
module that was called from outside, in the order of the first training forward passes.
"""

import json
import os

# Parts of a path that wrappers put between a module and its parent.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module")


def canonical(path):
    """A path of ``named_modules`` without what wrappers put into it."""
    if "_" not in path:
        return path
    return ".".join(part for part in path.split(".") if part not in WRAPPERS)


def renames():
    """Pairs (prefix in the reference, prefix here) that the operator states, longest first."""
    try:
        given = json.loads(os.environ.get("PILOTAGE_PROBE_RENAME") or "{}")
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    pairs = [(old, new) for old, new in given.items() if isinstance(new, str)]
    return sorted(pairs, key=lambda pair: -len(pair[0]))


def renamed(name, pairs):
    """A name of the reference's (without its root) as it is called here."""
    for old, new in pairs:
        if name == old:
            return new
        if not old or old.endswith(".") or name.startswith(old + "."):
            if name.startswith(old):
                rest = name[len(old) :]
                return new + rest if new else rest.lstrip(".")
    return name


def split(key):
    """(root, name) of a key."""
    root, _, name = key.partition(".")
    return root, name


def _bare(key):
    name = split(key)[1]
    while name.startswith("module."):  # of DataParallel, saved into the names
        name = name[7:]
    return name


def match(own, reference, roots, fits=None):
    """{own key: reference key} of as many as can be told apart.

    ``roots``: {own root: reference root}, as texts. ``fits(own, reference)``: whether they may be
    one (by their shapes). In order: the same name in the same root; the same name after what the
    operator renames; the same name in whatever root; one name that ends with the other, where
    there is only one such pair.
    """
    fits = fits or (lambda mine, theirs: True)
    left = dict.fromkeys(reference)
    found = {}

    def take(pairs):
        """Accept candidate pairs whose two sides occur once."""
        mine, theirs = {}, {}
        for a, b in pairs:
            mine.setdefault(a, []).append(b)
            theirs.setdefault(b, []).append(a)
        for a, several in mine.items():
            if len(several) == 1 and len(theirs[several[0]]) == 1:
                found[a] = several[0]
                left.pop(several[0], None)

    pairs = renames()
    for rename in (False, True) if pairs else (False,):
        by_place = {}
        for key in left:
            root, name = split(key)
            by_place[root, renamed(name, pairs) if rename else name] = key
        for key in own:
            root, name = split(key)
            place = by_place.get((roots.get(root), name))
            if key not in found and place in left:
                found[key] = place
                del left[place]
    for strip in (lambda key: renamed(_bare(key), pairs),):
        by_name = {}
        for key in left:
            by_name.setdefault(strip(key), []).append(key)
        take(
            (key, other)
            for key in own
            if key not in found
            for other in by_name.get(_bare(key), ())
            if fits(key, other)
        )
    ends = {}  # every ending of a name of the reference's -> keys
    whole = {}
    for key in left:
        name = renamed(_bare(key), pairs)
        whole.setdefault(name, []).append(key)
        for end in _endings(name):
            ends.setdefault(end, []).append(key)
    candidates = []
    for key in own:
        if key in found:
            continue
        name = _bare(key)
        longer = [other for other in ends.get(name, ()) if fits(key, other)] if name else []
        if not longer:
            for end in _endings(name):
                longer = [other for other in whole.get(end, ()) if end and fits(key, other)]
                if longer:
                    break
        candidates += [(key, other) for other in longer]
    take(candidates)
    return found


def _endings(name):
    """``b.c`` and ``c`` of ``a.b.c``."""
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(1, len(parts))]


def of_modules(weights):
    """{own module: reference module} that follows from matched parameters, as keys."""
    found = {}
    for mine, theirs in weights.items():
        a, b = mine.rpartition("."), theirs.rpartition(".")
        if a[2] == b[2]:
            found.setdefault(a[0], b[0])
    return found
