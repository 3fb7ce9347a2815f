"""Nested values of the host: the tensors in them, each under its path, and the same shape refilled.

A path is dotted: keys of mappings, indexes of sequences, fields of dataclasses; arguments of a
module come under the names that its ``forward`` gives them. A lone tensor has the path ``""``.
"""

import sys
from collections.abc import Mapping

MAX_DEPTH = 6
MAX_LEAVES = 64  # tensors of one value
MAX_PART = 80  # characters of one part of a path


class NotPlain(Exception):
    """A value holds something that cannot be made again without the host's own code."""


class Hole:
    """Where a tensor stood."""

    __slots__ = ("path", "dtype", "device", "shape")

    def __init__(self, path, tensor):
        self.path, self.dtype, self.device = path, tensor.dtype, tensor.device
        self.shape = tuple(tensor.shape)


def _join(path, part):
    part = str(part)[:MAX_PART]
    return "%s.%s" % (path, part) if path else part


def _children(value):
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    fields = getattr(type(value), "__dataclass_fields__", None)
    if isinstance(fields, dict):
        return [(name, getattr(value, name, None)) for name in fields]
    return []


def leaves(value):
    """[(path, tensor)] in order, at most ``MAX_LEAVES``."""
    found = []
    _collect(sys.modules["torch"].Tensor, value, "", 0, found)
    return found


def _collect(kind, value, path, depth, found):
    if len(found) >= MAX_LEAVES:
        return
    if isinstance(value, kind):
        found.append((path, value))
    elif depth < MAX_DEPTH and value is not None:
        for part, child in _children(value)[:1000]:
            _collect(kind, child, _join(path, part), depth + 1, found)


_names = {}  # function -> names of its positional parameters


def arguments(module, args, kwargs):
    """The arguments of a call by name: positional ones as ``forward`` names them, else by index."""
    function = getattr(module.forward, "__func__", module.forward)
    names = _names.get(function)
    if names is None:
        names = _names[function] = _parameters(module.forward)
    given = {}
    for index, value in enumerate(args):
        given[names[index] if index < len(names) else str(index)] = value
    given.update(kwargs)
    return given


def _parameters(function):
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range)


def skeleton(args, kwargs, module):
    """(args, kwargs) with a ``Hole`` for each tensor. Raises NotPlain where that cannot be."""
    torch = sys.modules["torch"]
    constants = _CONSTANTS + (torch.dtype, torch.device, torch.Size)
    names = list(arguments(module, args, {}))
    made = tuple(_emptied(torch, constants, v, names[i], 0) for i, v in enumerate(args))
    return made, {k: _emptied(torch, constants, v, str(k)[:MAX_PART], 0) for k, v in kwargs.items()}


def _emptied(torch, constants, value, path, depth):
    if isinstance(value, torch.Tensor):
        return Hole(path, value)
    if isinstance(value, constants):
        return value
    if depth < MAX_DEPTH:
        if type(value) in (list, tuple):
            parts = [
                _emptied(torch, constants, v, _join(path, i), depth + 1)
                for i, v in enumerate(value)
            ]
            return type(value)(parts)
        if type(value) is dict:
            return {
                k: _emptied(torch, constants, v, _join(path, k), depth + 1)
                for k, v in value.items()
            }
    raise NotPlain(type(value).__name__)


def holes(value):
    """The holes of a skeleton in order."""
    if isinstance(value, Hole):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [hole for part in value for hole in holes(part)]
    return []


def filled(value, fill):
    """A skeleton with ``fill(hole)`` in the place of each hole."""
    if isinstance(value, Hole):
        return fill(value)
    if type(value) in (list, tuple):
        return type(value)([filled(part, fill) for part in value])
    if type(value) is dict:
        return {key: filled(part, fill) for key, part in value.items()}
    return value
