"""Call back once a module of the host's has been imported, without importing it ourselves."""

import sys
from _thread import _local as _LocalBase

from . import guard

_callbacks = {}
_searching = _LocalBase()


def watch(name, callback):
    """Call ``callback(module)`` right after ``name`` has been executed (now, if it already was)."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    _callbacks[name] = callback
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def missed():
    """Modules that were imported without a call back: the host has changed ``sys.meta_path``.

    One that is being imported right now is not missed.
    """
    found = []
    for name in _callbacks:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None and not getattr(spec, "_initializing", False):
            found.append(name)
    return found


class _Finder:
    """Lets the other finders find, and hooks the loader they return.

    A search is no import (``importlib.util.find_spec`` asks too), so the call back stays until
    the module has been executed.
    """

    def find_spec(self, name, path=None, target=None):
        if name not in _callbacks or getattr(_searching, "active", False):
            return None
        _searching.active = True
        try:
            spec = _search(name, path, target)
        finally:
            _searching.active = False
        if spec is not None and spec.loader is not None:
            with guard.reporting("finder"):
                _hook(spec.loader, name)
        return spec


def _search(name, path, target):
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if find is None or isinstance(finder, _Finder):
            continue
        spec = find(name, path, target)
        if spec is not None:
            return spec
    return None


def _hook(loader, name):
    original = loader.exec_module

    def exec_module(module):
        try:
            original(module)
        except BaseException as error:
            guard.unframe(error)
            raise
        _executed(loader, name, module)

    # On the instance: the loader keeps its type, which packages look at to find their resources.
    loader.exec_module = exec_module


def _executed(loader, name, module):
    with guard.reporting("import hook"):
        loader.__dict__.pop("exec_module", None)
        callback = _callbacks.pop(name, None)
        if callback is not None:
            callback(module)
