"""Copies of the trained weights that the program keeps beside them (parity mode).

An average of the weights (EMA, SWA) or a momentum encoder follows what is trained, and is what is
evaluated or saved in the end, while no step, loss or gradient shows whether it follows as it should.
At the end of a parity run copies are looked for: modules of the same parameters, and tables or
lists of such tensors that the program's own objects, globals and locals hold. Of each the distance
to the trained weights is written: relative L2 over all tensors.
"""

import gc
import sys
import types

from . import naming, process, recording

MOST = 16  # copies
ALIKE = 0.9  # of the names of the trained weights, for a table of tensors
TABLES = (dict, list, tuple)
OWN = ("pilotage_probe", "torch", "torch_xla", "builtins", "collections")


def install():
    """Once; in every parity run."""
    process.at_end.append(_write)


def _write():
    """The distance of each copy from the weights that it is a copy of."""
    roots = [root for several in recording.roots.values() for root in several if not root.blind]
    wanted = [(root, found) for root in roots if (found := _trained(root))]
    if not wanted:
        return
    held, copies = _held(), []
    for root, live in wanted:
        own, seen = {id(t) for t in live.values()}, set()
        for name, tensors in held:
            pairs = _pairs(live, tensors)
            key = tuple(id(copy) for _, copy in pairs)
            if not pairs or key in seen or len(copies) >= MOST or own.intersection(key):
                continue
            seen.add(key)
            distance = _distance(pairs)
            if distance:  # else another name of the weights themselves, or not followed yet
                copies.append({"root": root.index, "name": name, "distance": distance})
    if copies:
        process.write("copies", n=process.parity_steps, copies=copies)


def _trained(root):
    """{name: parameter} of what is trained of a root, each once."""
    found, seen = {}, set()
    for key, tensor, kind in root.tensors():
        if kind != "parameter" or not tensor.requires_grad or id(tensor) in seen:
            continue
        if tensor.is_floating_point() and tensor.numel():
            seen.add(id(tensor))
            found[naming.split(key)[1]] = tensor
    return found


# --- what the program holds --------------------------------------------------------------------


def _held():
    """[(name, {name: tensor} or [tensor])] of all modules and of all tables of tensors."""
    torch = sys.modules["torch"]
    found = []
    for item in gc.get_objects():
        kind = type(item)
        if issubclass(kind, torch.nn.Module):
            found.append((kind.__name__, dict(item.named_parameters())))
        of = str(getattr(kind, "__module__", "")).partition(".")[0]
        if of not in OWN and not issubclass(kind, (type, types.ModuleType)):
            found += _tables(kind.__name__, getattr(item, "__dict__", None))
    found += _tables("__main__", getattr(sys.modules.get("__main__"), "__dict__", None))
    frame = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in OWN:
            found += _tables(frame.f_code.co_name, dict(frame.f_locals))
        frame = frame.f_back
    return found


def _tables(name, values, depth=0):
    found = []
    if type(values) is not dict and not isinstance(values, dict):
        return found
    for key, value in list(values.items())[:1000]:
        if not isinstance(value, TABLES) or str(key) in ("_parameters", "_buffers", "_modules"):
            continue
        label = "%s.%s" % (name, key)
        items = list(value.values()) if isinstance(value, dict) else list(value)
        if _are_tensors(items):
            found.append((label[:100], value))
        elif isinstance(value, dict) and depth < 1:
            found += _tables(label, value, depth + 1)
    return found


def _are_tensors(items):
    torch = sys.modules["torch"]
    return bool(items) and all(isinstance(item, torch.Tensor) for item in items[:20])


def _pairs(live, tensors):
    """[(trained weight, its copy)], empty where these tensors are none."""
    found = _paired(live, tensors)
    if found or not isinstance(tensors, dict):
        return found
    first = next(iter(live)).split(".")
    for depth in range(len(first) - 1, 0, -1):  # of a part of the root, if that is all it trains
        prefix = ".".join(first[:depth]) + "."
        if all(name.startswith(prefix) for name in live):
            return _paired({name[len(prefix) :]: t for name, t in live.items()}, tensors)
    return []


def _paired(live, tensors):
    torch = sys.modules["torch"]
    if isinstance(tensors, dict):
        bare = {_bare(str(name)): tensor for name, tensor in tensors.items()}
        pairs = [(t, bare[name]) for name, t in live.items() if name in bare]
        enough = len(pairs) >= ALIKE * len(live)
    else:
        pairs, enough = list(zip(live.values(), tensors)), len(tensors) == len(live)
    if not enough or not pairs:
        return []
    for weight, copy in pairs:
        if not isinstance(copy, torch.Tensor) or copy.shape != weight.shape:
            return []
        if not copy.is_floating_point() or copy.device.type == "meta":
            return []
    return pairs


def _bare(name):
    while name.startswith("module."):
        name = name[len("module.") :]
    return naming.canonical(name)


def _distance(pairs):
    """Relative L2 of all copies together to the weights, read one by one."""
    apart = size = 0.0
    if not all(process.backend.readable(tensor) for pair in pairs for tensor in pair):
        process.backend.synchronise()
    with sys.modules["torch"].no_grad():
        for weight, copy in pairs:
            mine = process.backend.read([weight.detach()])[0].double()
            other = process.backend.read([copy.detach()])[0].double()
            apart += float((mine - other).square().sum())
            size += float(mine.square().sum())
    return (apart / size) ** 0.5 if size else None
