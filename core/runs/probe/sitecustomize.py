"""Start the probe in this Python process, then run the ``sitecustomize`` that this file shadows.

Python's ``site`` imports a module of this name at every start. Nothing here may stop the host
program: whatever goes wrong in the probe is reported by the probe and swallowed, whatever goes
wrong in the shadowed ``sitecustomize`` takes the course it would have taken without us.
"""

import os as _os
import sys as _sys

_here = _os.path.dirname(_os.path.realpath(__file__))

if _os.environ.get("PILOTAGE_PROBE_OUT"):
    try:
        import pilotage_probe as _probe

        _probe.start()
    except (Exception, SystemExit):  # a broken or unreadable copy must not cost the run
        pass


def _shadowed_spec():
    # Not importlib.util: it loads a dozen modules that a small program never needs.
    from _frozen_importlib_external import PathFinder

    rest = [p for p in _sys.path if _os.path.realpath(p or ".") != _here]
    return PathFinder.find_spec("sitecustomize", rest)


_spec = _shadowed_spec()
if _spec is not None and _spec.loader is not None:
    from _frozen_importlib import module_from_spec as _module_from_spec

    _module = _module_from_spec(_spec)
    _sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
