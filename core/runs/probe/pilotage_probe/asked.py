"""Look on where the program itself reads a scalar of a lazy device: light mode reads none.

Installed once such a device's package is there, so that other programs pay nothing. ``float(t)``
is not among them: its warning for tensors that require a gradient names the Python frame that
calls it, which would then be ours.
"""

import functools
import sys

from . import beat, guard, process, reading, wrapping
from .threads import current
from .wrapping import MARK, marked, unseen

READS = ("item", "tolist", "cpu")
MAX_FRAMES = 30


def install(torch):
    """Wrap the methods of ``torch.Tensor``; not where values are read by ourselves anyway."""
    if process.reads:
        return
    plain = (torch.Tensor, torch.nn.Parameter)
    for name in READS:
        _wrap(torch.Tensor, name, plain)


def _wrap(cls, name, plain):
    original = getattr(cls, name)
    if marked(original):
        return
    note = wrapping.hook("read by the program")(_note)

    @functools.wraps(original)
    @unseen
    def read(self, *args, **kwargs):
        try:
            result = original(self, *args, **kwargs)
            # The type first: what a subclass does when it is asked anything is the host's.
            if type(self) in plain and not self.is_cpu and not _traced():
                note(self, result)
            return result
        except BaseException as error:
            guard.unframe(error)
            raise

    setattr(read, MARK, original)
    setattr(cls, name, read)


def _traced():
    return wrapping.compiling() or wrapping.tracing()


def _note(tensor, result):
    if not process.backend.lazy(tensor):
        return
    _remember_where()
    if tensor.numel() != 1:
        return
    while isinstance(result, list) and len(result) == 1:  # tolist of a tensor of shape (1,)
        result = result[0]
    if isinstance(result, sys.modules["torch"].Tensor):
        result = result.item()
    if isinstance(result, (bool, int, float)):
        reading.told(tensor, float(result))


def _remember_where():
    """The program's own line that reads: the step's record names the last one."""
    thread = current()
    if thread.frozen:
        return
    frame, left = sys._getframe(1), MAX_FRAMES
    while frame is not None and left:
        code = frame.f_code
        if beat.is_users(code.co_filename):
            thread.read_at = (code.co_filename, frame.f_lineno, code.co_name)
            return
        frame, left = frame.f_back, left - 1
