"""Rules for files that are not Python, line by line: launchers, requirements, configurations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from core.risk.rules import Rule, add

MAX_LINE = 2_000
"""Characters of a line that a pattern sees."""

OLD_PIN = add(
    Rule(
        "pinned-library",
        "C1",
        "A version is pinned",
        "torch_xla needs the torch of its own minor version (2.9 with 2.9), and a pin keeps it "
        "away.",
        "Make an environment of its own for the target, and note which versions differ from the "
        "reference's.",
    )
)
CUDA_WHEEL = add(
    Rule(
        "cuda-package",
        "C1",
        "A package or image built for CUDA",
        "It does not install, or does nothing, on a TPU host.",
        "Leave it out of the target's environment; torch for a TPU host is the CPU build.",
    )
)
OLD_PYTHON = add(
    Rule(
        "old-python",
        "C1",
        "An old Python is asked for",
        "torch_xla 2.9 has wheels for Python 3.10 to 3.13.",
        "See that the project runs on a newer one before it is migrated.",
    )
)
KERNEL_FILE = add(
    Rule(
        "kernel-file",
        "C1",
        "A file of CUDA source",
        "It can't be built or run without a GPU.",
        "Find what calls it; write that in torch operators, and compare the two.",
    )
)
LAUNCHER = add(
    Rule(
        "launcher",
        "C3",
        "A launcher that starts several processes",
        "torchrun, accelerate and deepspeed start one process a GPU; on TPU one command starts "
        "all chips of a host, and the global batch size changes with their number.",
        "Begin with one process and one chip.",
    )
)
GPU_LINE = add(
    Rule(
        "gpu-setting",
        "C2",
        "A setting for GPUs",
        "A script or configuration asks for GPUs, CUDA or NVIDIA's tools.",
        "Give the target a command and a configuration of its own without it.",
    )
)
FP16_LINE = add(
    Rule(
        "fp16-setting",
        "C5",
        "fp16 is switched on by a setting",
        "A TPU computes in bf16; fp16 with loss scaling is made for GPUs.",
        "Switch it off for the reference if it can be, and to bf16 for the target.",
    )
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a rule found; ``text`` is added to the rule's words."""

    rule: Rule
    line: int
    sure: bool = True
    text: str = ""


def scan_plain(path: str, text: str) -> Iterator[Line]:
    """What the rules find in a file, by its name."""
    kind = kind_of(path)
    if not kind:
        return
    look = {"requirements": _requirements, "shell": _shell, "settings": _settings}.get(kind)
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:MAX_LINE]
        if kind == "docker":
            yield from _docker(line, number)
        elif look is not None:
            yield from look(line, number)


def kind_of(path: str) -> str:
    """What rules a file is for: ``requirements``, ``shell``, ``settings``, ``docker`` or ""."""
    name = path.rsplit("/", 1)[-1].lower()
    if re.fullmatch(r".*require.*\.(txt|in)|environment.*\.ya?ml|conda.*\.ya?ml", name):
        return "requirements"
    if name in ("setup.cfg", "pyproject.toml", "pipfile"):
        return "requirements"
    if name.endswith((".sh", ".bash", ".slurm", ".sbatch")) or name == "makefile":
        return "shell"
    if "dockerfile" in name:
        return "docker"
    if name.endswith((".yaml", ".yml", ".toml", ".cfg", ".ini", ".conf", ".gin")):
        return "settings"
    if name.endswith(".json"):
        return "settings"
    return ""


_CUDA_PACKAGES = (
    r"apex|bitsandbytes|flash[-_]attn|xformers|triton|deepspeed|transformer[-_]engine|cupy[-\w]*|"
    r"nvidia[-\w]+|pynvml|gputil|mamba[-_]ssm|causal[-_]conv1d|auto[-_]gptq|unsloth|cudatoolkit|"
    r"pytorch-cuda|horovod|tensorrt|onnxruntime-gpu|faiss-gpu|dgl-cu\d+|spconv[-\w]*|nvitop"
)
_REQUIREMENT = re.compile(
    r"""^[\s\-"'\[]*(?P<name>[A-Za-z][\w.-]*)(?:\[[\w,. -]*\])?\s*(?P<spec>[=<>~!(^][^"'#;]*)?"""
)
_PACKAGE = re.compile(_CUDA_PACKAGES)
_FIRST = re.compile(r"(\d+)(?:\.(\d+))?")


def _requirements(line: str, number: int) -> Iterator[Line]:
    if re.match(r"\s*#", line):
        return
    if re.search(r"/cu\d{2,3}\b|[=+]cu\d{2,3}\b|torch_stable\.html", line):
        yield Line(CUDA_WHEEL, number, True, "The wheels of torch named here are for CUDA.")
    if match := re.match(r"\s*[\"']?(?:requires-)?python(?:_requires)?[\"']?\s*=+\s*(.*)", line):
        yield from _python(match[1], number)
        return
    if match := re.match(r"\s*-\s*python\s*(=.*)", line):
        yield from _python(match[1], number)
        return
    match = _REQUIREMENT.match(line)
    if match is None:
        return
    name, spec = match["name"].lower(), (match["spec"] or "").strip(" (),")
    if _PACKAGE.fullmatch(name):
        yield Line(CUDA_WHEEL, number)
    elif name in ("torch", "pytorch", "torchvision", "torchaudio"):
        if spec.startswith(("==", "=", "<", "~=")) and _FIRST.search(spec):
            yield Line(OLD_PIN, number, True, _torch_words(name, spec))
    elif name in ("transformers", "accelerate", "numpy", "lightning", "pytorch-lightning"):
        old = {"transformers": 4, "accelerate": 0, "numpy": 1, "pytorch-lightning": 1}
        version = _FIRST.search(spec)
        if version and spec.startswith(("==", "=", "<", "~=")):
            if int(version[1]) <= old.get(name, 1):
                yield Line(OLD_PIN, number, False, f"{name} of that time may not know a new torch.")


def _torch_words(name: str, spec: str) -> str:
    if name not in ("torch", "pytorch"):
        return f"{name} has to fit the torch that is used."
    version = _FIRST.search(spec)
    if version is not None and int(version[1]) < 2:
        return "torch 1.x: torch_xla of that time knows neither PJRT by default nor this release."
    return ""


def _python(spec: str, number: int) -> Iterator[Line]:
    upper = re.search(r"(?<![<>=!~])(?:<=?|==?|~=)\s*[\"']?3\.(\d+)", spec)
    if upper and int(upper[1]) <= (10 if "<" in spec and "<=" not in spec else 9):
        yield Line(OLD_PYTHON, number)


_GPU_WORDS = re.compile(
    r"\b(?:CUDA_\w+|NCCL_\w+)=|\bnvidia-smi\b|\bnvcc\b|--gpus?\b|\bcuda:\d|(?:^|[\s=])cuda(?![\w/.-])"
)
_LAUNCH = re.compile(
    r"\btorchrun\b|torch\.distributed\.(?:launch|run)\b|\baccelerate\s+launch\b"
    r"|(?:^|\s)deepspeed\s|\bhorovodrun\b|\bmpirun\b"
)
_FP16_FLAG = re.compile(
    r"--(?:fp16|half|use_fp16|amp)\b(?!\s*[= ]\s*(?:false|0|no)\b)|--mixed_precision[= ]\"?fp16",
    re.IGNORECASE,
)


def _shell(line: str, number: int) -> Iterator[Line]:
    if line.startswith("#SBATCH") and re.search(r"gres=gpu|gpus", line):
        yield Line(GPU_LINE, number)
    line = re.sub(r"(^|\s)#.*", "", line)
    if _GPU_WORDS.search(line) and not re.search(r"\bmodule\s+(?:load|add)\b", line):
        yield Line(GPU_LINE, number)
    if _LAUNCH.search(line):
        yield Line(LAUNCHER, number)
    if _FP16_FLAG.search(line):
        yield Line(FP16_LINE, number)
    if re.search(r"\bpip3?\s+install\b", line):
        words = [re.split(r"[=<>~!\[]", w.strip("\"'"))[0].lower() for w in line.split()]
        if any(_PACKAGE.fullmatch(w) for w in words) or re.search(r"[/+]cu\d{2,3}\b", line):
            yield Line(CUDA_WHEEL, number)


_KEY, _IS = r"^[-\s]*[\"']?(?:[\w.]+\.)?", r"[\"']?\s*[:=]\s*[\"']?"
_GPU_SETTING = re.compile(
    _KEY + rf"(?:device\w*{_IS}(?:cuda|gpu)"
    rf"|(?:accelerator|backend|dist_backend){_IS}(?:gpu|cuda|nccl)"
    rf"|(?:gpus|num_gpus|n_gpu|gpu_ids){_IS}\[?-?[1-9])",
    re.IGNORECASE,
)
_FP16_SETTING = re.compile(
    _KEY + rf"(?:(?:fp16|use_fp16|half){_IS}(?:true|yes|on)\b"
    rf"|mixed_precision{_IS}fp16|precision{_IS}16\b)",
    re.IGNORECASE,
)
_AMP_SETTING = re.compile(_KEY + rf"(?:amp|use_amp){_IS}(?:true|yes|on)\b", re.IGNORECASE)


def _settings(line: str, number: int) -> Iterator[Line]:
    if re.match(r"\s*(?:[#;]|//)", line):
        return
    if _GPU_SETTING.search(line):
        yield Line(GPU_LINE, number)
    if _FP16_SETTING.search(line):
        yield Line(FP16_LINE, number)
    elif _AMP_SETTING.search(line):
        yield Line(FP16_LINE, number, False)


def _docker(line: str, number: int) -> Iterator[Line]:
    if re.match(r"\s*FROM\s+\S*(?:nvidia|cuda|cudnn)", line, re.I):
        yield Line(CUDA_WHEEL, number, True, "The image is made for NVIDIA's driver.")
    elif not line.lstrip().startswith("#"):
        yield from _shell(line, number)
