"""Wrap the few functions of torch through which every training step passes.

Each wrapper calls the original exactly once, with the arguments it was given, and lets the
original's exceptions through. Where torch.compile is tracing, the wrappers are transparent.
"""

import functools
import sys

from . import backends, guard, process, steps
from .threads import local

MARK = "_pilotage_probe"


def _never():
    return False


compiling = _never


def wrap(owner, name, kind, before=None, after=None):
    """Replace ``owner.name``; of nested calls of one ``kind`` only the outermost is observed."""
    original = getattr(owner, name, None)
    if original is None or MARK in getattr(original, "__dict__", {}):
        return
    before = before and guard.hook(kind + " before")(before)
    after = after and guard.hook(kind + " after")(after)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        if compiling() or guard.busy() or local.nest.get(kind):
            return original(*args, **kwargs)
        local.nest[kind] = True
        try:
            if before is not None:
                before(args, kwargs)
            result = original(*args, **kwargs)
            if after is not None:
                after(args, kwargs, result)
            return result
        finally:
            local.nest[kind] = False

    setattr(wrapper, MARK, original)
    setattr(owner, name, wrapper)


def install(torch):
    """Called once, right after ``import torch``."""
    global compiling
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
    process.backend = process.backend or backends.Backend()
    process.write("torch", version=str(torch.__version__), cuda_available=_cuda(torch))
    with guard.reporting("hook backward"):
        wrap(torch.Tensor, "backward", "B", before=steps.on_backward, after=steps.after_backward)
        wrap(torch.autograd, "backward", "B", before=steps.on_backward, after=steps.after_backward)
    with guard.reporting("hook forward"):
        _wrap_forward(torch.nn.Module)
    with guard.reporting("hook move"):
        wrap(torch.nn.Module, "_apply", "A", before=steps.before_apply, after=steps.after_apply)
    with guard.reporting("hook clip"):
        wrap_clips(torch)
    with guard.reporting("hook optimizer"):
        _hook_optimizer(sys.modules["torch.optim.optimizer"])
    with guard.reporting("hook zero_grad"):
        wrap(torch.optim.Optimizer, "zero_grad", "Z", before=steps.on_zero_grad)
        wrap(torch.nn.Module, "zero_grad", "Z", before=steps.on_zero_grad)
    with guard.reporting("hook schedule"):
        _wrap_schedulers(sys.modules["torch.optim.lr_scheduler"])
    with guard.reporting("hook reduce"):
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None:
            wrap(distributed, "all_reduce", "R", after=steps.on_reduce)
    with guard.reporting("hook scaler"):
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is not None:
                wrap(scaler, "scale", "scale", after=steps.after_scale)
    if process.mode == "parity":
        with guard.reporting("dropout off"):
            _dropout_off(torch)


def _cuda(torch):
    """Built with CUDA and a GPU is there; asking the driver itself would spoil a later fork."""
    import os

    return bool(torch.version.cuda) and os.path.exists("/dev/nvidiactl")


def wrap_clips(torch):
    """Also called after torch_xla, which puts a ``clip_grad_norm_`` of its own in place."""
    for module in (torch.nn.utils, sys.modules.get("torch.nn.utils.clip_grad")):
        if module is not None:
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                wrap(module, name, "C", before=steps.before_clip, after=steps.after_clip)


def _wrap_forward(cls):
    original = cls.__call__
    on_forward = guard.hook("forward")(steps.on_forward)

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        # Recomputation in a backward pass calls modules again: those are no forward passes.
        if compiling() or local.in_forward or guard.busy() or local.nest.get("B"):
            return original(self, *args, **kwargs)
        local.in_forward = True
        try:
            on_forward(self, args, kwargs)
            return original(self, *args, **kwargs)
        finally:
            local.in_forward = False

    cls.__call__ = __call__


def _hook_optimizer(module):
    before = guard.hook("step before")(steps.before_step)
    after = guard.hook("step after")(steps.after_step)
    if hasattr(module, "register_optimizer_step_post_hook"):

        def pre_hook(optimizer, args, kwargs):
            if not compiling():
                before(optimizer)

        def post_hook(optimizer, args, kwargs):
            if not compiling():
                after(optimizer)

        module.register_optimizer_step_pre_hook(pre_hook)
        module.register_optimizer_step_post_hook(post_hook)
        return
    # torch 1.13: wrap each class's step when its first instance is made.
    original = module.Optimizer.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        with guard.reporting("hook step"):
            _wrap_step(type(self), before, after)

    module.Optimizer.__init__ = __init__


def _wrap_step(cls, before, after):
    original = cls.__dict__.get("step")
    if original is None:
        if cls.__mro__[1] is not object and hasattr(cls.__mro__[1], "step"):
            _wrap_step(cls.__mro__[1], before, after)
        return
    if MARK in original.__dict__:
        return

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        before(self)
        result = original(self, *args, **kwargs)
        after(self)
        return result

    setattr(step, MARK, original)
    cls.step = step


def _wrap_schedulers(module):
    for cls in list(vars(module).values()):
        if (
            not isinstance(cls, type)
            or cls.__module__ != module.__name__
            or "step" not in vars(cls)
        ):
            continue
        wrap(cls, "step", "L", before=steps.on_schedule)
        # The constructor makes one step of its own; it belongs to no training step.
        if "_initial_step" in vars(cls):
            wrap(cls, "_initial_step", "L")


def _dropout_off(torch):
    functional = torch.nn.functional
    for name in (
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "feature_alpha_dropout",
    ):
        if hasattr(functional, name):
            _pass_through(functional, name)
    original = getattr(functional, "scaled_dot_product_attention", None)
    if original is not None:

        @functools.wraps(original)
        def attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

        functional.scaled_dot_product_attention = attention


def _pass_through(functional, name):
    original = getattr(functional, name)

    @functools.wraps(original)
    def dropout(input, *args, **kwargs):
        return input

    setattr(functional, name, dropout)
