"""The commands of reference and target, made from the entry that was found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from core.init.entries import missing, text_of
from core.init.facts import Entry
from core.init.script import Option, Script, Scripts

_DEVICE = re.compile(r"(?:cuda|gpu)(?::\d+)?")
_OTHERS = ("cpu", "auto")
_GPU_ENV = re.compile(r"CUDA_\w+|NCCL_\w+|PYTORCH_CUDA_ALLOC_CONF|ACCELERATE_\w+|NVIDIA_\w+")
_GPU_FLAGS = {"--use_cpu", "--no_cuda", "--no-cuda", "--use-cpu", "--cpu"}
_FP16 = {"--fp16", "--half", "--use_fp16"}


@dataclass(slots=True)
class Command:
    """A command with its environment; ``notes`` are sentences for its comment, ``edits`` those
    that ask for an edit before it runs. ``words`` are without ``cd`` and launcher."""

    text: str = ""
    words: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)


SWITCH = "USE_TORCH_XLA"
"""transformers and accelerate train on XLA wherever torch_xla is installed, unless this is 0."""


def reference_command(entry: Entry, scripts: Scripts, gpu: bool) -> Command:
    """The command as the project has it, for the machine at hand: ``gpu`` is whether it has one."""
    made = Command(env=dict(entry.env))
    if uses_xla_by_itself(entry, scripts):
        made.env[SWITCH] = "0"
        made.notes.append(
            f"{SWITCH}=0 keeps transformers and accelerate off XLA, which they take where torch_xla "
            "is installed: the reference would not be one."
        )
    words = list(entry.words)
    script = scripts.get(entry.script) if entry.script else None
    if script is not None and script.parser == "HfArgumentParser" and len(words) <= 3:
        words += _hf_options(script, made)
    if not gpu:
        words = _without_gpu(words, made)
    launcher = _launcher(entry, gpu, made)
    given = replace(entry, words=tuple(words))
    made.edits += [f"{name} is required and not given here" for name in missing(given, scripts)]
    made.edits += [f"{word} is not known" for word in entry.open]
    if not entry.script:
        made.edits.append(f"{words[1] if len(words) > 1 else words[0]} is not in the project")
    made.words = words
    made.text = _text(entry.cwd, launcher, words)
    return made


def target_command(entry: Entry, reference: Command, scripts: Scripts) -> Command:
    """The same for the target: one process, and the device where a place for it is known."""
    made = Command()
    words = list(reference.words)
    made.env = {k: v for k, v in reference.env.items() if not _GPU_ENV.fullmatch(k)}
    itself = made.env.pop(SWITCH, None) is not None
    made.env["PJRT_DEVICE"] = "CPU"
    if entry.launcher:
        made.notes.append(
            f"{entry.launcher[0]} starts a process a GPU: on TPU one command starts all chips."
        )
    words = [w for w in words if w not in _GPU_FLAGS]
    script = scripts.get(entry.script) if entry.script else None
    device = _device_option(script)
    words, changed = _with_device(words, "xla")
    if "accelerator" in changed:
        made.notes.append(f"{changed}. Lightning takes it on a TPU host only, not for xla-cpu.")
    elif changed:
        made.notes.append(f"{changed}: the code has to learn what that means.")
    elif device is not None:
        words += [device.name, "xla"]
        choices = [str(c) for c in device.choices if c is not None]
        known = (
            "" if not choices or "xla" in choices else f", whose choices are {', '.join(choices)}"
        )
        where = f"{script.path}:{device.line}" if script else "the script"
        made.notes.append(f"{device.name} is an option of {where}{known}: teach it xla.")
    elif itself:
        made.notes.append(
            "The same command: transformers and accelerate take the XLA device by themselves."
        )
    else:
        made.notes.append(
            "The same command: nothing on its command line names a device. The migration decides "
            "how the code gets one."
        )
    made.text = _text(entry.cwd, [], words)
    made.edits = list(reference.edits)
    return made


def uses_xla_by_itself(entry: Entry, scripts: Scripts) -> bool:
    """Whether the program trains through transformers or accelerate."""
    near = scripts.closure(entry.script) if entry.script else []
    return any(s.framework in ("transformers Trainer", "accelerate") for s in near)


def _text(cwd: str, launcher: list[str], words: list[str]) -> str:
    line = words if not launcher else [*launcher, *words[1:]]
    if launcher and words[1:2] == ["-m"] and launcher[0] == "python":
        line = [*launcher, "--module", *words[2:]]
    text = text_of(tuple(line))
    return f"cd {text_of((cwd,))} && {text}" if cwd else text


def _launcher(entry: Entry, gpu: bool, made: Command) -> list[str]:
    """The launcher for the machine at hand: one process where there is no GPU for more."""
    launcher = list(entry.launcher)
    if not launcher or gpu:
        if entry.processes and entry.processes > 1:
            made.notes.append(
                f"{entry.processes} processes: compare with as many chips, or the global batch "
                "size differs."
            )
        return launcher
    if launcher[0] in ("accelerate", "deepspeed"):
        made.notes.append(f"Without {' '.join(launcher)}: there is no GPU here.")
        return []
    if entry.processes and entry.processes > 1:
        made.notes.append(
            f"{entry.source.split(' ')[0]} starts {entry.processes} processes, one a GPU. Here it is "
            "one, as it is with one chip."
        )
    kept: list[str] = []
    skip = False
    for word in launcher:
        name, sign, _ = word.partition("=")
        if skip:
            skip = False
        elif name in ("--nproc_per_node", "--nproc-per-node"):
            kept += [f"{name}=1"] if sign or launcher[0] == "torchrun" else [name, "1"]
            skip = not sign
        elif name in ("--nnodes", "--node_rank", "--node-rank", "--master_addr", "--master-addr"):
            skip = not sign
        else:
            kept.append(word)
    return kept


def _without_gpu(words: list[str], made: Command) -> list[str]:
    dropped = [w for w in words if w.split("=")[0] in _FP16]
    kept: list[str] = []
    for index, word in enumerate(words):
        if word.split("=")[0] in _FP16:
            continue
        if index and words[index - 1] in _FP16 and word.lower() in ("true", "false", "1", "0"):
            continue
        kept.append(word)
    if dropped:
        made.notes.append(f"Without {' '.join(dropped)}: there is no GPU here.")
    kept, changed = _with_device(kept, "cpu")
    if changed:
        made.notes.append(f"{changed}: there is no GPU here.")
    gone = [name for name in made.env if _GPU_ENV.fullmatch(name)]
    for name in gone:
        del made.env[name]
    if gone:
        made.notes.append(f"Without {', '.join(gone)} of its environment: there is no GPU here.")
    return kept


def _with_device(words: list[str], device: str) -> tuple[list[str], str]:
    """``--device cuda``, ``device=cuda:0`` with another device; and what was changed, in words."""
    new = list(words)
    changed = ""
    for index, word in enumerate(words):
        name, sign, value = word.partition("=")
        if not re.search(r"(?i)device|accelerator$", name):
            continue
        if device == "xla" and name.lower().endswith("accelerator"):
            device = "tpu"  # Lightning's word for it
        if sign and (_DEVICE.fullmatch(value) or value in _OTHERS):
            if value != device:
                new[index] = f"{name}={device}"
                changed = f"{name}={device} in place of {value}"
        elif not sign and index + 1 < len(words):
            follows = words[index + 1]
            if _DEVICE.fullmatch(follows) or follows in _OTHERS:
                if follows != device:
                    new[index + 1] = device
                    changed = f"{name} {device} in place of {follows}"
    return new, changed


def _device_option(script: Script | None) -> Option | None:
    if script is None or script.parser not in ("argparse", "click"):
        return None
    for name in ("--device", "--device-type", "--device_type", "--accelerator"):
        option = script.options.get(name)
        if option is not None and not option.flag:
            return option
    return None


def _hf_options(script: Script, made: Command) -> list[str]:
    """Options without which a script with an HfArgumentParser does nothing or does not start."""
    added = []
    attributes = {node.attr for node in script.module.attributes}
    if "--output_dir" not in script.options and "TrainingArguments" in script.module.text:
        added += ["--output_dir", "output"]
    if "do_train" in attributes:
        added.append("--do_train")
    if "do_eval" in attributes:
        added.append("--do_eval")
    if added:
        made.notes.append(f"{' '.join(added)} added: the script reads its arguments from there.")
    return added
