"""torch.compile off where modules are compared: compiled code calls none of them.

What is compiled computes the same as what is not, but for rounding, so the comparison is of the
program's own code.
"""

import sys

from . import forward, wrapping

_done = False


def install(torch):
    """From the first compiled function on, which is when torch has loaded its compiler."""
    wrapping.wrap(torch, "compile", "compile", None, _compiled)
    forward.watchers.append(_before_forward)


def _compiled(args, kwargs, result):
    _off()


def _before_forward(module, args, kwargs):
    if not _done and "torch._dynamo" in sys.modules:
        _off()


def _off():
    """Let what was compiled, and what will be, run as it is written."""
    global _done
    if _done:
        return
    compiler = getattr(sys.modules["torch"], "compiler", None)
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    _done = True
    if hasattr(compiler, "set_stance"):  # torch 2.6
        compiler.set_stance("force_eager")
    elif hasattr(dynamo.config, "disable"):
        dynamo.config.disable = True
