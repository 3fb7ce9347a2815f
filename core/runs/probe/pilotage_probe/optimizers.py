"""See every optimizer's ``step``, whatever its class, by wrapping the class it is defined in.

torch 2 has global hooks around ``step``, but they see neither what it returns nor that it raised,
and run twice where a subclass's ``step`` calls its parent's. torch 1.13 has none.
"""

import functools
import types

from . import guard, reading, stepping, wrapping
from .threads import current
from .wrapping import MARK, marked, unseen


def install(module):
    """Wrap the constructor in ``torch.optim.optimizer``, and what stands in for it."""

    def made(args, kwargs, result):
        optimizer = args[0]
        _wrap_step(type(optimizer))
        reading.made.add(optimizer)

    def grown(args, kwargs, result):
        known = current().known.get(args[0])
        if known is not None:
            known.stale = True

    cls = module.Optimizer
    wrapping.wrap(cls, "__init__", "optimizer", None, made)
    wrapping.wrap(cls, "__setstate__", "optimizer", None, made)  # unpickled or copied
    wrapping.wrap(cls, "add_param_group", "group", None, grown)


def _wrap_step(cls):
    for owner in cls.__mro__:
        if "step" in owner.__dict__:
            break
    else:
        return
    original = owner.__dict__["step"]
    if not isinstance(original, types.FunctionType) or marked(original):
        return
    before = wrapping.hook("step before")(stepping.before_step)
    after = wrapping.hook("step after")(stepping.after_step)
    failed = wrapping.hook("step failed")(stepping.failed_step)

    @functools.wraps(original)
    @unseen
    def step(self, *args, **kwargs):
        if wrapping.compiling():
            return original(self, *args, **kwargs)
        try:
            if guard.local.busy:
                return original(self, *args, **kwargs)
            args, kwargs = before(self, args, kwargs) or (args, kwargs)
            try:
                result = original(self, *args, **kwargs)
            except BaseException:
                failed(self)
                raise
            after(self, result)
            return result
        except BaseException as error:
            guard.unframe(error)
            raise

    setattr(step, MARK, original)
    owner.step = step
