"""What stands in ``torch.cuda`` where CUDA runs on the CPU: the answers of one idle GPU."""

import os
import sys
from time import perf_counter
from types import SimpleNamespace

from .wrapping import unseen

NAME = "CUDA on the CPU"
CAPABILITY = (8, 0)  # of a GPU with bfloat16, so that no project refuses to start

NOTHING = (
    "synchronize", "empty_cache", "ipc_collect", "init", "set_device", "set_stream",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode",
    "_lazy_init", "_lazy_call", "_check_capability",
)  # fmt: skip
ZERO = (
    "current_device", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_cached", "max_memory_cached", "utilization", "memory_usage",
    "temperature", "power_draw", "clock_rate", "get_sync_debug_mode",
)  # fmt: skip
TRUE = ("is_available", "is_initialized", "is_bf16_supported")
FALSE = ("is_current_stream_capturing", "can_device_access_peer", "_is_in_bad_fork")
SUBMODULES = ("memory", "random", "streams")
# Asked by torch itself and by libraries all the time: counting them says nothing.
UNCOUNTED = (
    "is_initialized",
    "is_current_stream_capturing",
    "_lazy_init",
    "_lazy_call",
    "_is_in_bad_fork",
    "_check_capability",
)


class Stream:
    """Everything runs at once and in order."""

    cuda_stream = 0
    priority = 0

    def __init__(self, *args, **kwargs):
        self.device = sys.modules["torch"].device("cuda", 0)

    def synchronize(self):
        """All work is done."""

    def query(self):
        """All work is done."""
        return True

    def wait_event(self, event):
        """It has happened."""

    def wait_stream(self, stream):
        """It is done."""

    def record_event(self, event=None):
        """An event that has happened."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class Event:
    """Remembers when it was recorded."""

    def __init__(self, *args, **kwargs):
        self.at = None

    def record(self, stream=None):
        """Now."""
        self.at = perf_counter()

    def elapsed_time(self, end):
        """Milliseconds from this event to ``end``."""
        if self.at is None or end.at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end.at - self.at) * 1000.0

    def query(self):
        """It has happened."""
        return True

    def synchronize(self):
        """It has happened."""

    def wait(self, stream=None):
        """It has happened."""


class _Scope:
    """``torch.cuda.device`` and ``torch.cuda.stream`` as contexts."""

    def __init__(self, *args, **kwargs):
        self.idx, self.prev_idx = 0, 0
        self.stream = args[0] if args else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


def install(torch, note):
    """Replace the functions; ``note(name)`` is called at each call."""
    cuda = torch.cuda

    def put(name, function):
        for owner in [cuda] + [getattr(cuda, sub, None) for sub in SUBMODULES]:
            if owner is not None and hasattr(owner, name):
                setattr(owner, name, function)

    def answer(name, value):
        @unseen
        def answered(*args, **kwargs):
            if name not in UNCOUNTED:
                note("torch.cuda." + name)
            return value(*args, **kwargs)

        answered.__name__ = answered.__qualname__ = name
        put(name, answered)

    for names, value in ((NOTHING, None), (ZERO, 0), (TRUE, True), (FALSE, False)):
        for name in names:
            answer(name, lambda *args, value=value, **kwargs: value)
    for name, value in _answers(torch).items():
        answer(name, value)
    for name, cls in (("Stream", Stream), ("ExternalStream", Stream), ("Event", Event)):
        put(name, cls)
    for name in ("device", "device_of", "stream", "StreamContext"):
        put(name, _Scope)
    put("default_generators", (torch.default_generator,))
    for name in list(vars(cuda)):
        if (
            name.endswith(("Tensor", "Storage"))
            and not name.startswith("_")
            and hasattr(torch, name)
        ):
            put(name, getattr(torch, name))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        if hasattr(cuda.nvtx, name):
            setattr(cuda.nvtx, name, unseen(lambda *args, **kwargs: 0))
    for name in ("start", "stop"):
        if hasattr(cuda.profiler, name):
            setattr(cuda.profiler, name, unseen(lambda *args, **kwargs: None))


def _answers(torch):
    generator = torch.default_generator
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    properties = SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=total,
        multi_processor_count=os.cpu_count() or 1,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
    )

    def seed(number):
        generator.manual_seed(int(number))

    return {
        "device_count": lambda: 1,
        "get_device_name": lambda *args, **kwargs: NAME,
        "get_device_capability": lambda *args, **kwargs: CAPABILITY,
        "get_device_properties": lambda *args, **kwargs: properties,
        "mem_get_info": lambda *args, **kwargs: (total, total),
        "memory_stats": lambda *args, **kwargs: {},
        "memory_summary": lambda *args, **kwargs: "",
        "memory_snapshot": lambda *args, **kwargs: [],
        "list_gpu_processes": lambda *args, **kwargs: "",
        "get_arch_list": list,
        "get_gencode_flags": lambda: "",
        "manual_seed": seed,
        "manual_seed_all": seed,
        "seed": generator.seed,
        "seed_all": generator.seed,
        "initial_seed": generator.initial_seed,
        "get_rng_state": lambda *args, **kwargs: generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda state, *args, **kwargs: generator.set_state(state),
        "set_rng_state_all": lambda states: generator.set_state(list(states)[0]),
        "current_stream": lambda *args, **kwargs: Stream(),
        "default_stream": lambda *args, **kwargs: Stream(),
    }
