"""Wrap the few functions of torch through which every training step passes."""

import functools
import os
import sys

from . import (
    asked,
    backends,
    clips,
    collectives,
    data,
    dropout,
    forward,
    guard,
    optimizers,
    process,
    saving,
    scaling,
    steps,
    world,
    wrapping,
)
from .threads import local
from .wrapping import untraced, wrap


def install(torch):
    """Called once, right after ``import torch``."""
    wrapping.find_compiling(torch)
    process.backend = process.backend or backends.Backend()
    process.write("torch", version=str(torch.__version__), cuda_available=_cuda(torch))
    if process.backend.name != "eager":  # TorchTPU loads itself with torch
        with guard.reporting("hook reads"):
            asked.install(torch)
    world.install(torch)
    with guard.reporting("hook backward"):
        after = steps.after_backward if process.mode == "parity" else None
        wrap(torch.Tensor, "backward", "B", steps.on_backward, after)
        wrap(torch.autograd, "backward", "B", steps.on_backward, after)
        wrap(torch.autograd, "grad", "G", steps.before_grad)
    with guard.reporting("hook forward"):
        _wrap_forward(torch.nn.Module)
    with guard.reporting("hook functional call"):
        for name in ("torch.func", "torch.nn.utils.stateless", "torch._functorch.functional_call"):
            wrap(sys.modules.get(name), "functional_call", "F", steps.before_functional)
    with guard.reporting("hook move"):
        wrap(torch.nn.Module, "_apply", "A", forward.before_apply, forward.after_apply)
    with guard.reporting("hook clip"):
        wrap_clips(torch)
    with guard.reporting("hook optimizer"):
        optimizers.install(sys.modules["torch.optim.optimizer"])
    with guard.reporting("hook zero_grad"):
        wrap(torch.optim.Optimizer, "zero_grad", "Z", steps.on_zero_grad)
        wrap(torch.nn.Module, "zero_grad", "Z", steps.on_zero_grad)
    with guard.reporting("hook schedule"):
        _wrap_schedulers(sys.modules["torch.optim.lr_scheduler"])
    with guard.reporting("hook reduce"):
        collectives.install()
    with guard.reporting("hook data"):
        data.install(torch)
    with guard.reporting("hook save"):
        saving.install(torch)
    with guard.reporting("hook scaler"):
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is not None:
                wrap(scaler, "scale", "scale", None, scaling.after_scale)
                wrap(scaler, "unscale_", "unscale", None, scaling.after_unscale)
                wrap(
                    scaler,
                    "step",
                    "scaler step",
                    scaling.before_scaler_step,
                    scaling.after_scaler_step,
                )
    if process.mode == "parity":
        with guard.reporting("dropout off"):
            dropout.off(torch)


def _cuda(torch):
    """Built with CUDA and a GPU is there; asking the driver itself would spoil a later fork."""
    return bool(torch.version.cuda) and os.path.exists("/dev/nvidiactl")


def wrap_clips(torch):
    """Also called after torch_xla, which puts a ``clip_grad_norm_`` of its own in place."""
    clips.install(torch)


def _wrap_forward(cls):
    if process.mode == "parity":
        from . import recording

        if recording.install():
            recording.wrap_forward(cls)
            return
    original = cls.__call__
    begin = forward.watched if process.mode == "parity" else forward.on_forward
    on_forward = wrapping.hook("forward")(begin)

    @functools.wraps(original)
    @untraced
    def __call__(self, *args, **kwargs):
        try:
            # First of all, for most calls are of modules within another one. Each is made with cold
            # caches, between two operators: asking anything more costs microseconds there.
            if local.in_forward:
                return original(self, *args, **kwargs)
            # Recomputation in a backward pass calls modules again: those are no forward passes.
            # torch.jit.trace would write down what we read of a tensor as the module's own.
            if (
                wrapping.compiling()
                or guard.local.busy
                or local.nest.get("B")
                or wrapping.tracing()
            ):
                return original(self, *args, **kwargs)
            local.in_forward = True
            try:
                on_forward(self, args, kwargs)
                return original(self, *args, **kwargs)
            finally:
                local.in_forward = False
        except BaseException as error:
            guard.unframe(error)
            raise

    cls.__call__ = __call__


def _wrap_schedulers(module):
    for cls in list(vars(module).values()):
        if (
            not isinstance(cls, type)
            or cls.__module__ != module.__name__
            or "step" not in vars(cls)
        ):
            continue
        wrap(cls, "step", "L", steps.on_schedule)
        # The constructor makes one step of its own; it belongs to no training step.
        if "_initial_step" in vars(cls):
            wrap(cls, "_initial_step", "L")
