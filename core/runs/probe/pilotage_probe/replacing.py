"""Put other calls in the place of the host's, where a parity run is to differ from the program.

``wrapping.wrap`` only observes. Here a call may become another one, made outside of the wall of
``guard``: its exceptions are the host's, as those of the call it asked for would be.
"""

import functools
import sys

from . import guard, wrapping
from .wrapping import unseen

# What is called instead and calls the original in turn is ``unseen``: warnings, and whoever asks for
# the caller, look past it.
FACTORIES = (
    "empty", "zeros", "ones", "full", "tensor", "as_tensor", "asarray", "arange", "range",
    "linspace", "logspace", "eye", "scalar_tensor", "empty_strided", "tril_indices",
    "triu_indices", "sparse_coo_tensor", "hann_window", "hamming_window", "blackman_window",
    "bartlett_window", "kaiser_window", "from_file", "empty_like", "zeros_like", "ones_like",
    "full_like", "rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like",
    "randint_like",
)  # fmt: skip


def replace(owner, name, choose):
    """Let ``choose(original, args, kwargs)`` say what to call instead of ``owner.name``.

    It returns (function, args, kwargs), or None for the call as it is; its own errors count as
    that. Under torch.compile, and for the probe's own calls, the original is called. A static or
    class method stays one: ``choose`` finds the class first in ``args``.
    """
    for cls in getattr(owner, "__mro__", ()):
        if name in cls.__dict__:
            static = cls.__dict__[name]
            break
    else:
        static = None
    original = getattr(owner, name, None)
    if original is None:
        return
    if isinstance(static, (classmethod, staticmethod)):
        original = static.__func__
    choose = wrapping.hook(name + " replaced")(choose)

    @functools.wraps(original, updated=())  # what says that ``wrap`` has been here stays there
    @unseen
    def wrapper(*args, **kwargs):
        if wrapping.compiling() or guard.local.busy:
            return original(*args, **kwargs)
        try:
            chosen = choose(original, args, kwargs)
            if chosen is None:
                return original(*args, **kwargs)
            function, args, kwargs = chosen
            return function(*args, **kwargs)
        except BaseException as error:
            guard.unframe(error)
            while error.__traceback__ is not None and _is_ours(error.__traceback__):
                guard.unframe(error)
            raise

    with guard.reporting("TorchScript"):
        _script_knows(original, wrapper)
    if isinstance(static, (classmethod, staticmethod)):
        wrapper = type(static)(wrapper)
    setattr(owner, name, wrapper)


def _script_knows(original, wrapper):
    """TorchScript knows torch's operators by their ids, and compiles what else it meets."""
    builtins = sys.modules.get("torch.jit._builtins")
    if builtins is not None:
        table = builtins._get_builtin_table()
        if id(original) in table:
            table[id(wrapper)] = table[id(original)]


def _is_ours(traceback):
    return traceback.tb_frame.f_code.co_filename.startswith((guard.HERE, wrapping.FILE))


def know_factories(module):
    """``torch.utils._device`` is there: it knows by identity what a default device is for.

    It compares torch's own functions, which is what ours call.
    """
    names = getattr(module, "_device_constructors", None)
    if names is None:
        return
    known = set(names())
    for function in list(known):
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
            known.add(function)
    module._device_constructors = lambda: known
