"""Rules for what assumes CUDA: devices, streams, mixed precision, multi-process launch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.risk.module import Module, constant, keyword
from core.risk.rules import Found, rule

_DEVICE = re.compile(r"cuda(:\d+)?")

CHOICE = (
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.cuda.current_device",
    "torch.cuda.set_device",
    "torch.cuda.get_device_name",
    "torch.cuda.get_device_capability",
    "torch.cuda.get_device_properties",
    "torch.cuda.is_bf16_supported",
    "torch.cuda.device",
)
RNG = (
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.cuda.seed",
    "torch.cuda.seed_all",
    "torch.cuda.initial_seed",
    "torch.cuda.get_rng_state",
    "torch.cuda.get_rng_state_all",
    "torch.cuda.set_rng_state",
    "torch.cuda.set_rng_state_all",
)
AUTOCAST = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")
GENERAL_AUTOCAST = ("torch.autocast", "torch.amp.autocast")
SCALERS = (
    "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler",
    "torch.amp.GradScaler",
)


@rule(
    "cuda-move",
    "C2",
    "Tensors or modules are moved to CUDA",
    "There is no CUDA device on a TPU host.",
    "Choose one device (torch_xla.device()) at the start, and move with .to(device).",
)
def cuda_move(at: Module) -> Iterator[Found]:
    for call in at.methods("cuda"):
        yield Found(call, at.torch)


@rule(
    "cuda-device",
    "C2",
    "A device is named cuda",
    "The name is valid on a GPU host only; on an XLA target the device is torch_xla.device().",
    "Take the device from one place instead of the name.",
)
def cuda_device(at: Module) -> Iterator[Found]:
    for node, text in at.strings:
        parent = at.parents.get(node)
        if isinstance(parent, ast.JoinedStr):
            if text == "cuda:" and parent.values[0] is node:
                yield Found(parent, at.torch)
        elif _DEVICE.fullmatch(text) and not _autocast(at, parent) and not _is_key(node, parent):
            yield Found(node, at.torch and not _any_word(parent))


def _autocast(at: Module, parent: ast.AST | None) -> bool:
    if isinstance(parent, ast.keyword):
        parent = at.parents.get(parent)
    return isinstance(parent, ast.Call) and at.is_a(parent.func, *GENERAL_AUTOCAST, *SCALERS)


def _any_word(parent: ast.AST | None) -> bool:
    """Whether a text stands where it may be the name of anything: in a list, in a look-up."""
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr in ("get", "pop", "add", "endswith", "startswith", "replace")
    return isinstance(parent, ast.List | ast.Set | ast.Tuple)


def _is_key(node: ast.AST, parent: ast.AST | None) -> bool:
    if isinstance(parent, ast.Subscript):
        return node is parent.slice
    return isinstance(parent, ast.Dict) and node in parent.keys


@rule(
    "device-choice",
    "C2",
    "The device is chosen by what CUDA has",
    "On a TPU host CUDA is not available, so such code silently trains on the CPU.",
    "Add the XLA device to the choice, and end with an error where it was asked for and is not "
    "there.",
)
def device_choice(at: Module) -> Iterator[Found]:
    for call in at.called(*CHOICE):
        yield Found(call)


@rule(
    "cuda-seed",
    "C2",
    "The random state of CUDA is used",
    "It says nothing about an XLA device, whose random numbers differ from CUDA's for one seed.",
    "Seed with torch.manual_seed and torch_xla.manual_seed; compare runs with dropout off.",
)
def cuda_seed(at: Module) -> Iterator[Found]:
    for call in at.called(*RNG):
        yield Found(call)
    for call in at.called("torch.Generator"):
        device = keyword(call, "device") or (call.args[0] if call.args else None)
        value = constant(device)
        if isinstance(value, str) and _DEVICE.fullmatch(value):
            yield Found(call)


@rule(
    "cuda-api",
    "C2",
    "torch.cuda is used",
    "Streams, events, memory figures and synchronisation of CUDA have no meaning on XLA; a time "
    "taken around lazy operations measures tracing, not execution.",
    "Remove it, or use torch_xla's own: torch_xla.sync(wait=True) before a time is taken, "
    "xm.get_memory_info for memory.",
)
def cuda_api(at: Module) -> Iterator[Found]:
    handled = {*CHOICE, *RNG}
    for node in at.attributes:
        names = at.resolve(node)
        if isinstance(at.parents.get(node), ast.Attribute):
            continue  # only the whole dotted name
        for name in names:
            if name.startswith("torch.cuda.") and name not in handled:
                if not name.startswith(("torch.cuda.amp", "torch.cuda.nccl")):
                    yield Found(node)
                    break
    for string, text in at.strings:
        if re.fullmatch(r"torch\.cuda\.\w+Tensor", text):
            yield Found(string, at.torch)


@rule(
    "cudnn",
    "C2",
    "Switches of cuDNN or of CUDA's matrix product",
    "They have no effect on a TPU, where a product of fp32 matrices is computed in bf16 by "
    "default.",
    "Leave them for the GPU; set the precision of the TPU on its own where numbers are compared.",
)
def cudnn(at: Module) -> Iterator[Found]:
    for node in at.attributes:
        if isinstance(at.parents.get(node), ast.Attribute):
            continue
        if at.under(node, "torch.backends.cudnn", "torch.backends.cuda"):
            yield Found(node)
    for call in at.called("torch.set_float32_matmul_precision"):
        yield Found(call)


@rule(
    "pinned-memory",
    "C2",
    "Page-locked memory for transfers to a GPU",
    "pin_memory and non_blocking do nothing for an XLA device.",
    "Leave them out there, and load ahead with torch_xla's MpDeviceLoader.",
)
def pinned_memory(at: Module) -> Iterator[Found]:
    for call in at.calls:
        for name in ("pin_memory", "non_blocking"):
            if constant(keyword(call, name)) is True:
                yield Found(keyword(call, name) or call, at.torch)
    for call in at.methods("pin_memory"):
        yield Found(call, at.torch)


@rule(
    "cuda-variables",
    "C2",
    "Environment variables of CUDA or NCCL",
    "An XLA target does not read them.",
    "Use PJRT_DEVICE and TPU_VISIBLE_CHIPS there.",
)
def cuda_variables(at: Module) -> Iterator[Found]:
    for node, text in at.strings:
        if re.fullmatch(r"CUDA_[A-Z_]+|NCCL_[A-Z_0-9]+|PYTORCH_CUDA_ALLOC_CONF", text):
            yield Found(node)


@rule(
    "nvidia-tools",
    "C2",
    "NVIDIA's tools are asked",
    "nvidia-smi and NVML are not there on a TPU host.",
    "Guard it, or read tpu-info; leave out what is only printed.",
)
def nvidia_tools(at: Module) -> Iterator[Found]:
    for node, name in at.imports:
        if name.split(".")[0] in ("pynvml", "GPUtil", "py3nvml", "nvitop", "gpustat", "nvsmi"):
            yield Found(node)
    for string, text in at.strings:
        if re.match(r"\s*nvidia-smi\b", text):
            yield Found(string)


@rule(
    "cuda-amp",
    "C2",
    "Mixed precision of CUDA",
    "Left in on XLA it gives no warning: autocast for cuda computes in fp32, and GradScaler "
    "reads two values from the device in each step.",
    "Use torch.autocast('xla', dtype=torch.bfloat16) and no GradScaler: bf16 needs no scaling.",
)
def cuda_amp(at: Module) -> Iterator[Found]:
    for call in at.called(*AUTOCAST):
        yield Found(call)
    for call in at.called(*SCALERS):
        device = call.args[0] if call.args else keyword(call, "device")
        value = constant(device)
        # A scaler is CUDA's own unless it is made for another device.
        yield Found(call, device is None or bool(_DEVICE.fullmatch(str(value))))
    for call in at.called(*GENERAL_AUTOCAST):
        device = call.args[0] if call.args else keyword(call, "device_type")
        value = constant(device)
        if isinstance(value, str) and _DEVICE.fullmatch(value):
            yield Found(call)
        elif value is None:
            yield Found(call, False, "The device type is not written here.")


@rule(
    "data-parallel",
    "C2",
    "torch.nn.DataParallel",
    "It copies the model to several GPUs of one process, which XLA devices do not support.",
    "Use torch_xla.launch with one process a chip, or SPMD.",
)
def data_parallel(at: Module) -> Iterator[Found]:
    names = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
    for call in at.called(*names, "torch.nn.parallel.data_parallel"):
        yield Found(call)


@rule(
    "nccl",
    "C2",
    "NCCL is the backend of torch.distributed",
    "NCCL connects NVIDIA GPUs.",
    "On TPU: import torch_xla.distributed.xla_backend and init_process_group('xla'), or SPMD.",
)
def nccl(at: Module) -> Iterator[Found]:
    for node, text in at.strings:
        if text == "nccl":
            yield Found(node, at.torch)


@rule(
    "compile-inductor",
    "C2",
    "torch.compile",
    "Its default backend, inductor, makes kernels for GPUs and CPUs only.",
    "Leave it out at first; then try backend='openxla'.",
)
def compile_inductor(at: Module) -> Iterator[Found]:
    for call in at.called("torch.compile"):
        backend = keyword(call, "backend")
        if backend is None or constant(backend) == "inductor":
            yield Found(call, not any(k.arg is None for k in call.keywords))
