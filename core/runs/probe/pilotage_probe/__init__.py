"""The probe: watches a PyTorch training program from inside, without an edit of its code.

Standard library only, Python 3.8 and newer, torch 1.13 and newer. It imports neither torch nor
torch_xla itself: it waits until the program does. What it sees goes as JSON lines to
``$PILOTAGE_PROBE_OUT/<pid>.jsonl``; ``core.runs.records`` describes the records.

Two modes, by ``PILOTAGE_PROBE_MODE``:

``light``
    Never causes a compile, and reads nothing from a lazy device (XLA, TorchTPU): a loss is known
    where the program reads it itself. With ``PILOTAGE_PROBE_READS=sparse`` it does read there, after
    the program itself has synchronised: losses in the first steps and each tenth, parameters at
    the steps of ``cycle.is_sparse``; what that cost is in the record ``finish``. Parameters on the
    host or a GPU are read at these steps, too.
``parity``
    Reads everything at each step, turns dropout off, and ends the process with exit code 0 when
    ``PILOTAGE_PROBE_STEPS`` optimizer steps are done. On an XLA device it synchronises by itself.
    Random numbers are the same in each run and on each device (``draws``); batches and weights may
    be another run's (``feeding``, ``replay``), and half precision may be refused (``precision``).

With ``PILOTAGE_PROBE_CUDA=cpu``, in either mode, what is asked of CUDA is done on the CPU in float32
(``cuda_redirect``).
"""

VERSION = "2"


def start():
    """Begin to watch this process; called once by ``sitecustomize``."""
    from . import finder, guard, process

    with guard.reporting("start"):
        process.begin()
        finder.watch("torch", _torch_loaded)
        finder.watch("torch_xla", _torch_xla_loaded)
        finder.watch("torch_tpu", _torch_tpu_loaded)
        finder.watch("safetensors.torch", _safetensors_loaded)


def _torch_loaded(module):
    from . import exits, guard, torch_hooks

    torch_hooks.install(module)
    with guard.reporting("hook end"):
        exits.install()


def _torch_xla_loaded(module):
    from . import xla_hooks

    xla_hooks.install(module)


def _safetensors_loaded(module):
    from . import guard, saving

    with guard.reporting("hook safetensors"):
        saving.install_safetensors(module)


def _torch_tpu_loaded(module):
    from . import tpu_hooks

    tpu_hooks.install(module)
