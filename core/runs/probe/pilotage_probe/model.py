"""What the trained model is: parameters, ties, dtypes, devices."""

import gc

MAX_NAMES = 2000
LIGHT_ELEMENTS = 16 * 1024 * 1024  # at most this many elements are copied in light mode


def unwrap(module):
    """The user's module inside DistributedDataParallel, DataParallel and torch.compile."""
    seen = 0
    while seen < 8:
        kind = type(module).__name__
        if kind in ("DistributedDataParallel", "DataParallel"):
            module = module.module
        elif kind == "OptimizedModule":
            module = module._orig_mod
        else:
            break
        seen += 1
    return module


def named(roots):
    """Every (name, parameter), shared parameters under each of their names."""
    several = len(roots) > 1
    found = []
    for index, root in enumerate(roots):
        prefix = "%d." % index if several else ""
        for path, module in unwrap(root).named_modules(remove_duplicate=False):
            for name, parameter in module._parameters.items():
                # Of lazy modules: without a shape until their first call.
                if parameter is not None and "Uninitialized" not in type(parameter).__name__:
                    found.append((prefix + (path + "." if path else "") + name, parameter))
    return found


def unique(pairs):
    """The pairs without the second and later names of a parameter."""
    seen, kept = set(), []
    for name, parameter in pairs:
        if id(parameter) not in seen:
            seen.add(id(parameter))
            kept.append((name, parameter))
    return kept


def ties(pairs):
    """Groups of names that are one and the same parameter."""
    groups = {}
    for name, parameter in pairs:
        groups.setdefault(id(parameter), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _count(pairs, key):
    counts = {}
    for _, parameter in pairs:
        word = key(parameter)
        counts[word] = counts.get(word, 0) + parameter.numel()
    return counts


def describe(roots):
    """Fields of the record ``model``; counts are numbers of elements, a tied one counted once."""
    pairs = named(roots)
    single = unique(pairs)
    trained = [(name, p) for name, p in single if p.requires_grad]
    classes = [type(unwrap(root)).__name__ for root in roots]
    return {
        "root": classes[0] if classes else None,
        "roots": classes,
        "parameters": sum(p.numel() for _, p in single),
        "tensors": len(single),
        "trainable": sum(p.numel() for _, p in trained),
        "tied": ties(pairs)[:100],
        "dtypes": _count(single, lambda p: str(p.dtype).replace("torch.", "")),
        "devices": _count(trained, lambda p: str(p.device)),
        "names": [name for name, _ in single[:MAX_NAMES]],
        "shapes": [list(p.shape) for _, p in single[:MAX_NAMES]],
        "norms": None,
        "frozen": [name for name, p in single if not p.requires_grad][:MAX_NAMES],
    }


def placed(module):
    """What ``Module._apply`` (``.to``, ``.cuda``, ``.half``) may change: names, ids, devices."""
    pairs = named([module])
    return {
        # Strong references: an id may otherwise be given to a new tensor before we compare.
        "parameters": [parameter for _, parameter in pairs],
        "ties": ties(pairs)[:100],
        "devices": _count(unique(pairs), lambda p: str(p.device)),
    }


def moved(module, before):
    """Fields of the record ``moved``, or None where every parameter is still the same object."""
    after = placed(module)
    replaced = sum(a is not b for a, b in zip(after["parameters"], before["parameters"]))
    if not replaced and after["ties"] == before["ties"]:
        return None
    return {
        "root": type(unwrap(module)).__name__,
        "replaced": replaced,
        "ties_before": before["ties"],
        "ties_after": after["ties"],
        "devices_before": before["devices"],
        "devices_after": after["devices"],
    }


def budget(pairs):
    """Of (name, parameter) pairs those that light mode reads: the first up to a stated budget."""
    left, kept = LIGHT_ELEMENTS, []
    for name, parameter in pairs:
        if parameter.numel() <= left:
            left -= parameter.numel()
            kept.append((name, parameter))
    return kept


def number(value):
    """A hyperparameter as a JSON value; a tensor only if reading it is free."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [number(item) for item in value]
    if getattr(getattr(value, "device", None), "type", None) == "cpu" and value.numel() == 1:
        return value.item()
    return None


HYPERPARAMETERS = (
    "lr",
    "weight_decay",
    "betas",
    "eps",
    "momentum",
    "dampening",
    "nesterov",
    "alpha",
    "rho",
    "amsgrad",
    "maximize",
    "max_grad_norm",  # of optimizers that clip by themselves
)


def describe_optimizer(optimizer):
    """Fields of the record ``optimizer``, but for how many of its tensors are orphaned."""
    groups, devices, total = [], {}, 0
    for group in optimizer.param_groups:
        entry = {key: number(group[key]) for key in HYPERPARAMETERS if key in group}
        entry["n_tensors"] = len(group["params"])
        entry["n_elements"] = sum(p.numel() for p in group["params"])
        groups.append(entry)
        for parameter in group["params"]:
            total += 1
            device = str(parameter.device)
            devices[device] = devices.get(device, 0) + parameter.numel()
    return {
        "cls": type(optimizer).__name__,
        "groups": groups[:100],
        "devices": devices,
        "tensors": total,
    }


def state_tensors(optimizer):
    """How many tensors with a dimension its state holds: momenta and their like, no counters."""
    return sum(
        1
        for state in list(optimizer.state.values())
        if isinstance(state, dict)
        for value in state.values()
        if getattr(value, "shape", None)
    )


def owners(torch, roots):
    """Living modules that have one of these somewhere below them (a look at every object)."""
    living = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    found = list(roots)
    inside = {id(root) for root in roots}
    grown = True
    while grown:
        grown = False
        for module in living:
            children = module.__dict__.get("_modules") or {}
            if id(module) not in inside and any(id(c) in inside for c in children.values()):
                inside.add(id(module))
                found.append(module)
                grown = True
    return found[len(roots) :]


def rates(optimizer):
    """Per group, the hyperparameters that schedules change."""
    found = []
    for group in optimizer.param_groups[:100]:
        rate, decay = group.get("lr"), group.get("weight_decay")
        found.append(
            {
                "lr": rate if type(rate) is float else number(rate),
                "weight_decay": decay if type(decay) is float else number(decay),
            }
        )
    return found


def norm(tensors):
    """The 2-norm of host tensors taken together, in double precision; None for none."""
    if not tensors:
        return None
    return sum(value * value for value in norms(tensors)) ** 0.5


def norms(tensors):
    """The 2-norm of each host tensor, in double precision."""
    import torch

    return [float(torch.linalg.vector_norm(_wide(torch, tensor))) for tensor in tensors]


def _wide(torch, tensor):
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double()


def difference(new, old):
    """What changed a host tensor, in double precision; complex numbers as pairs."""
    import torch

    return _wide(torch, new) - _wide(torch, old)
