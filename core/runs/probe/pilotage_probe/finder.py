"""Call back once a module of the host's has been imported, without importing it ourselves."""

import sys
import threading

from . import guard

_callbacks = {}
_searching = threading.local()


def watch(name, callback):
    """Call ``callback(module)`` right after ``name`` has been executed (now, if it already was)."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    _callbacks[name] = callback
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Lets the other finders find, and hooks the loader they return."""

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
                _hook(spec.loader, _callbacks.pop(name))
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


def _hook(loader, callback):
    original = loader.exec_module

    def exec_module(module):
        original(module)
        with guard.reporting("import hook"):
            callback(module)

    # On the instance: the loader keeps its type, which packages look at to find their resources.
    loader.exec_module = exec_module
