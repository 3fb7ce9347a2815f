"""The output says that the work is done elsewhere than asked: on the host, or on nothing."""

from __future__ import annotations

import re

from core.detectors.base import Look, OutputDetector, Sighting, detector
from core.detectors.output_fields import clock
from core.detectors.output_look import Line, LogLook, in_order, quote


class _OfTpu(OutputDetector):
    """Base: in a live run only where a TPU was asked for; on xla-cpu it is what was asked for."""

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        return super().look(at) if at.wants_tpu else None


_FELL_BACK = re.compile(
    r"Defaulting to PJRT_DEVICE\s?=\s?CPU"
    r"|\b(?:libtpu|TPU)\b.{0,40}(?:not found|not available|missing|unavailable)\b.{0,40}PJRT_DEVICE\s?=\s?CPU"
    r"|PJRT_DEVICE.{0,60}(?:not set|unset|missing).{0,80}(?:CPU|cpu)\b"
    r"|(?:torch_xla|torch_tpu|PJRT|PjRt|XLA|libtpu|xla_device|xla:0)\b.{0,100}"
    r"(?:fall(?:s|ing|en)? ?back|fell back|default(?:s|ing)|revert(?:s|ing)|switch(?:ed|ing)) (?:back )?(?:to|on(?:to)?) (?:the )?"
    r"(?:host(?:'s)? )?(?:PJRT )?CPU"
    r"|runtime devices?\W{1,4}\[?'?CPU:0|real_devices\W{1,6}CPU:0|xla_real_devices.{0,20}CPU:0"
    r"|\bdevice_type\(\)\W{1,4}'?CPU\b|xla_device_hw\S*\W{1,4}'?CPU\b"
    r"|PJRT_DEVICE\W{1,3}CPU\b.{0,40}(?:instead|expected|no TPU)"
)


@detector
class PjrtOnCpu(_OfTpu):
    """PyTorch/XLA's runtime took the host's CPU."""

    NAME, CATEGORY = "pjrt_cpu_fallback", "C1"
    SOURCE = "public case pjrt_cpu_fallback (pytorch/xla#8626): Defaulting to PJRT_DEVICE=CPU"

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = [x for x in log.matching(_FELL_BACK, 5, "cpu") if not _OPERATOR.search(x.text)]
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "the XLA runtime fell back to the host's CPU",
            evidence,
            "Set PJRT_DEVICE=TPU and install the libtpu that belongs to this torch_xla; check "
            "that no other process holds the chips.",
            threshold="any",
            at=at,
        )


_NO_ACCELERATOR = re.compile(
    r"No (?:GPU/TPU|GPU or TPU|TPU/GPU|TPUs?|GPUs?|accelerators?|XLA devices?|NeuronCores?|CUDA devices?)\b.{0,60}"
    r"(?:found|available|detected|visible).{0,60}(?:fall(?:ing)? ?back|using|continu|default|run(?:ning)?|training|proceed)"
    r"|(?:will fall back|falls back|falling ?back|fell back|defaulting|reverting|switching) (?:back )?(?:to|on(?:to)?) (?:the )?(?:host )?CPU\b(?!.{0,40}(?:op|kernel|implementation))"
    r"|(?:running|training|continu(?:es|ing)|proceeding) (?:only )?on (?:the )?(?:host )?CPU (?:instead|only|because|as no|since no)"
    r"|Unable to initialize backend '?(?:tpu|cuda|axon|neuron)'?"
    r"|(?:CUDA|cuda|GPU|TPU) (?:is |was )?(?:not available|unavailable|not found|not detected)[,.;:]? .{0,40}(?:using|fall|default|continu|running|training)\w*.{0,20}\bcpu\b"
    r"|[Cc]uda-enabled jaxlib is not installed"
    r"|no (?:supported )?(?:gpu|accelerator) (?:was )?(?:found|detected).{0,40}\bcpu\b",
    re.IGNORECASE,
)
_HELD = re.compile(
    r"libtpu(?:\.so)? (?:is )?already in use|TPU is already in use|already in used? by another process"
    r"|libtpu_lockfile|libtpu multi-process lockfile|/dev/(?:accel|vfio|neuron)\S* .{0,60}(?:in use|busy)"
    r"|(?:chips?|TPU|NeuronCore|device)s? (?:is |are )?(?:held|in use|occupied|locked) by (?:another|process|pid)",
    re.IGNORECASE,
)
_OPERATOR = re.compile(
    r"aten::|\bop(?:erator)?\b|xla_cpu_fallback|not lowered|kernel", re.IGNORECASE
)
_ACCELERATED = re.compile(r"XLA service .{0,60}platform (?:CUDA|TPU)|GPU available: True|TPU available: True")  # fmt: skip


@detector
class NoAccelerator(_OfTpu):
    """A library found no accelerator, or one that is held by another process, and goes on."""

    NAME, CATEGORY = "cpu_fallback_warning", "C2"
    SOURCE = "public case cpu_fallback_warning (jax-ml/jax#10192): a stale process holds the chip"

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = [
            line
            for line in log.matching(_NO_ACCELERATOR, 20, "cpu", "backend", "jaxlib", "found")
            + log.matching(_HELD, 5, "in use", "in used", "lock", "busy", "held by", "occupied")
            if not _OPERATOR.search(line.text) and not _FELL_BACK.search(line.text)
        ]
        lines = [x for x in lines if "Unable to initialize backend" not in x.text or _of_target(x)]
        if not lines or log.matching(_ACCELERATED, 1, "xla service", "available: true"):
            return None
        held = any(_HELD.search(line.text) for line in lines)
        evidence, at = quote(in_order(lines))
        return Sighting(
            "another process holds the chips, and the run goes on without"
            if held
            else "a library found no accelerator and goes on without",
            evidence,
            "End the process that holds the chips (`sudo lsof -w /dev/accel0` or /dev/vfio/*), then "
            "run again."
            if held
            else "Install the runtime of the accelerator (libtpu with jax[tpu] or torch_xla[tpu]), "
            "end any process that holds the chips, then run again.",
            category="" if held or not _of_jax(lines) else "C1",
            threshold="any",
            at=at,
        )


def _of_jax(lines: list[Line]) -> bool:
    """Whether JAX, whose runtime is one of its packages, found no TPU: it is not installed."""
    words = " ".join(line.text for line in lines)
    return bool(re.search(r"GPU/TPU|\bTPU", words)) and not re.search(r"CUDA-enabled|NVIDIA", words)


def _of_target(line: Line) -> bool:
    """JAX tries cuda and rocm on a TPU host as a matter of course: only tpu and neuron count."""
    return bool(re.search(r"backend '?(?:tpu|neuron|axon)'?", line.text))


_DUTY = re.compile(
    r"(?:duty[ _-]?cycle|\bmxu?(?: at)?(?: constant(?:ly)?)?|tensorcore util\w*|mxu util\w*|(?:tpu|chip|accelerator|neuroncore|device)[ _]util\w*)"
    r"(?: ?\(?%?\)?)?\s*[:=|]?\s*(\d{1,3}(?:\.\d+)?)\s?%?",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"(\d{1,7})/(\d{1,7}) \[(\d[\d:]{2,11})<([\d:?]{1,15}(?: days?, [\d:]+)?),\s+(\d{1,7}(?:\.\d+)?)s/(it|step|batch|ba)\b"
)
_NOT_STEPS = re.compile(
    r"epoch|load|download|fetch|map\b|token|shard|generat|sampl|eval|valid|predict|test|process|build|"
    r"file|fold|trial|example|prepar|extract|upload|merg|convert|compil|image|rollout",
    re.IGNORECASE,
)
#: Seconds a step may take; PyTorch/XLA's metrics analysis takes one execution > 30 s for slow.
MAX_STEP_S = 30.0


@detector
class ChipIdle(OutputDetector):
    """The device does nothing: its duty cycle is zero, or steps take as long as on the host."""

    NAME, CATEGORY = "duty_cycle_zero", "C2"
    SOURCE = (
        "public case duty_cycle_zero (huggingface/transformers#10192): started without the launcher, "
        "52 s a step on the host. 30 s is the bound of one execution in PyTorch/XLA's metrics "
        "analysis; a duty cycle below 1 % in each of 3 readings is ours"
    )
    SAME_FAULT = ("model_on_cpu", "pjrt_cpu_fallback", "recompile", "compile_too_slow")
    MEASURED = ("executes",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        idle = [
            (line, float(m[1]))
            for line in log.having("duty", "util", "mx")
            if (m := _DUTY.search(line.text))
        ]
        never = all(v == 0 for _, v in idle)
        if idle and (never or len(idle) >= 3) and all(v < 1 for _, v in idle):
            evidence, at = quote(line for line, _ in idle)
            weak = "" if len(idle) >= 3 else " (suspected: few readings)"
            return self._say(f"the device is idle while the run goes on{weak}", evidence, at)
        slow = self._slow(log)
        if slow is None:
            return None
        evidence, at = quote([slow])
        return self._say(
            "steps are as slow as on the host (suspected: the device is not used)", evidence, at
        )

    @staticmethod
    def _say(title: str, evidence: list[str], at: tuple[int, ...]) -> Sighting:
        return Sighting(
            title,
            evidence,
            "Start the run with the library's TPU launcher (xla_spawn, accelerate launch, "
            "torch_xla.launch) and print the device of one parameter and of one batch.",
            threshold=f"duty cycle below 1 %, or more than {MAX_STEP_S:g} s a step",
            at=at,
        )

    @staticmethod
    def _slow(log: LogLook) -> Line | None:
        if log.xla.speaks:
            return None  # XLA's own reports say what the time went to
        last: dict[str, tuple[Line, int]] = {}
        for line in log.having("s/it", "s/step", "s/batch", "s/ba"):
            for m in _BAR.finditer(line.text):
                done, total, rate = int(m[1]), int(m[2]), float(m[5])
                before = line.text[: m.start()]
                if _NOT_STEPS.search(before) or (done >= total > 3 and rate <= MAX_STEP_S):
                    continue
                # A first step may compile for minutes; from the third on the rate is the rate.
                if done >= 3 and rate > MAX_STEP_S and clock(m[3]) >= done * MAX_STEP_S * 0.8:
                    last["slow"] = (line, done)
                elif done >= 3:
                    last.pop("slow", None)
        if "slow" not in last:
            return None
        line, done = last["slow"]
        # A bar over epochs: losses of many steps are printed within each of its ticks.
        steps = [r for r in log.rows if r.step is not None and not _BAR.search(r.text)]
        return None if len(steps) > 2 * done else line


_AMP = re.compile(
    r"GradScaler is enabled, but CUDA is not available|device_type of 'cuda', but CUDA is not available"
    r"|GradScaler\b.{0,24}\bdisabled\b.{0,12}\bCUDA|amp.{0,40}CUDA is not available|CUDA is not available.{0,4}\s*Disabling|autocast.{0,60}cuda.{0,60}(?:disabl|no effect)",
    re.IGNORECASE,
)


@detector
class CudaLeftIn(OutputDetector):
    """CUDA's mixed precision is asked for where there is no CUDA, and switched off."""

    NAME, CATEGORY = "cuda_amp", "C2"
    SOURCE = "torch's own warning; on XLA autocast('cuda') computes in float32 (measured on 2.9.0)"

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = log.matching(_AMP, 3, "cuda is not available", "autocast", "gradscaler")
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "mixed precision of CUDA is left in and switched off",
            evidence,
            "Use torch.autocast('xla', dtype=torch.bfloat16) without a GradScaler.",
            threshold="any",
            at=at,
        )
