"""Install what lets two programs be compared: one world for both (parity mode), CUDA on the CPU."""

import os

from . import finder, guard, process

_parts = []


def install(torch):
    """Once, right after torch; nothing in light mode on the devices that the program asks for."""
    cuda_on_cpu = os.environ.get("PILOTAGE_PROBE_CUDA") == "cpu"
    if process.mode != "parity" and not cuda_on_cpu:
        return
    from . import precision

    # A later one is asked first: a draw for CUDA becomes one on the CPU, then one in float32.
    if process.mode == "parity":
        from . import draws, feeding

        _install(draws, torch)
        _install(feeding, torch)
    _install(precision, torch)
    if cuda_on_cpu:
        from . import cuda_redirect

        _install(cuda_redirect, torch)
    finder.watch("torch.utils._device", _default_devices)


def _default_devices(module):
    from . import replacing

    replacing.know_factories(module)
    for part in _parts:
        if hasattr(part, "watch_contexts"):
            part.watch_contexts(module)


def xla_loaded():
    """torch_xla is there."""
    for part in _parts:
        if hasattr(part, "watch_xla"):
            with guard.reporting("hook " + part.__name__):
                part.watch_xla()


def _install(part, torch):
    _parts.append(part)
    with guard.reporting("hook " + part.__name__):
        part.install(torch)
