"""The output says on what the program runs: on fewer chips than asked for, or on the CPU."""

from __future__ import annotations

import re
from itertools import pairwise

from core.detectors.base import Look, OutputDetector, Sighting, detector
from core.detectors.output_look import Line, LogLook, quote

_FEWER = re.compile(
    r"\b(?:using|uses|used|found|visible|available|initiali[sz]ed|running on)\W{1,3}(\d{1,4})\s?(?:of|/|out of)\s?(\d{1,4})\s+(?:tpu |xla |neuron ?)?(?:chips?|cores?|devices?|tpus?)\b"
    r"|\b(?:world[_ ]?size|num[_ ](?:devices|processes|cores|chips)|(?:global_|local_)?device[_ ]count|n[_ ]devices|xrt_world_size\(\))\W{1,4}(\d{1,4})\b.{0,24}\b(?:expected|has|have|instead of|out of|of)\W{1,3}(\d{1,4})"
    r"|TPU available: True, using: (0) (TPU) cores",
    re.IGNORECASE,
)


_WANTED = re.compile(
    r"--?(?:num[_-](?:processes|cores)|tpu[_-](?:num[_-])?cores|nproc[_-]per[_-]node)[ =](\d{1,4})\b"
    r"|\b(?:tpu_cores|num_cores|nprocs|tpu_num_cores|num_tpu_cores|devices)\s?=\s?(\d{1,4})\b"
)
_GOT = re.compile(
    r"\b(?:num_processes|number of processes|world[_ ]?size|(?:xrt_)?world_size\(\)|(?:global_)?device_count\(\)|process_count)\s?[:=]\s?(\d{1,4})\b",
    re.IGNORECASE,
)
_EXPECTED = re.compile(r"\bexpected\W{1,3}(\d{1,4}) (?:tpu |xla )?(?:processes|devices|cores|chips|replicas)\b", re.I)  # fmt: skip
_ONLY = re.compile(
    r"\bonly (?:(?:\d{1,3}|one|two|a single|xla:\d|tpu:\d|and|,|tpu|xla|of|the|core|cores|chip|chips|device|devices)\s?,?\s?){1,8}"
    r"(?:is|are|was|were|gets?)?\s?(?:being )?(?:used|utili[sz]ed|involved|active|busy|running)\b",
    re.IGNORECASE,
)


@detector
class ChipsUnused(OutputDetector):
    """Fewer chips are used than were asked for."""

    NAME, CATEGORY = "chips_unused", "C2"
    SOURCE = (
        "the log's own counts of chips used and chips expected; Lightning's line on its devices"
    )
    SAME_FAULT = ("model_on_cpu",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = self._asked(log)
        for line in log.having(" of ", "/", "out of", "expected", "using: 0"):
            m = _FEWER.search(line.text)
            if m is None:
                continue
            few, many = next(
                (a, b) for a, b in zip(m.groups()[::2], m.groups()[1::2], strict=True) if a
            )
            if many == "TPU" or int(few) < int(many):
                found.append(line)
        if not found:
            return None
        evidence, at = quote(found)
        return Sighting(
            "fewer chips are used than there are",
            evidence,
            "Start one process for each chip (torch_xla.launch, xmp.spawn, accelerate launch) "
            "and print the world size in each.",
            threshold="any",
            at=at,
        )

    @staticmethod
    def _asked(log: LogLook) -> list[Line]:
        """A number of processes that was asked for, and a smaller one that there is."""
        only = log.matching(_ONLY, 2, "only ")
        if only:
            return only
        wanted: tuple[int, Line] | None = None
        for line in log.having("expected", "has ", "have ", "of ") if log.excerpt else ():
            if m := _EXPECTED.search(line.text):
                wanted = (int(m[1]), line)
        for line in log.having("process", "cores", "nproc", "world", "device"):
            got = _GOT.search(line.text)
            if m := _WANTED.search(line.text):
                wanted = (int(m[1] or m[2]), line)
            elif wanted and got:
                if 0 < int(got[1]) < wanted[0]:
                    return [wanted[1], line]
                wanted = None
        return []


_ON_CPU = re.compile(
    r"\b(?:using|running on|training on|run on|train on|model (?:is )?on|device)\b\W{0,4}(?:the )?(?:device\W{0,3})?(?:torch\.device\(type=)?'?cpu\b(?!:\d*\s*(?:cores|threads))"
    r"|\[?CpuDevice\(id=0\)|TFRT_CPU_0|device: cpu, n_gpu: 0",
    re.IGNORECASE,
)
_ASKED = re.compile(r"\bxla\b|torch_xla|(?<![a-z])tpus?(?![a-z])|PJRT_DEVICE|\bneuron\b|xla_spawn|libtpu|CpuDevice|TFRT_CPU", re.I)  # fmt: skip
_BOTH = re.compile(r"\bcpu\b.{0,80}\b(?:xla|tpu)\b|\b(?:xla|tpu)\b.{0,80}\bcpu\b|reference|baseline|compare|before|moving|\.to\(", re.I)  # fmt: skip


_PRINTED = re.compile(r"^(?:>>>|In \[\d+\]:|print\()\W?.{0,80}\bdevice\b(?!s)|\bprint\(.{0,60}\bdevice\b[\w.()]{0,20}\)\s*$")  # fmt: skip
_ANSWER = re.compile(r"^\W{0,3}(?:Out\[\d+\]: )?(?:device\(type=)?'?cpu'?\)?\s*$", re.IGNORECASE)


@detector
class DeviceIsCpu(OutputDetector):
    """The program says that it uses the CPU, in a log that speaks of a TPU."""

    NAME, CATEGORY = "model_on_cpu", "C2"
    SOURCE = "the program's own word for its device, where the log names a TPU or XLA elsewhere"
    SAME_FAULT = ("pjrt_cpu_fallback", "cpu_fallback_warning")
    MEASURED = ("executes",)

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        return super().look(at) if at.wants_tpu else None

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if shown := self._asked_for_it(log):
            return self._say(shown)
        found = [x for x in log.matching(_ON_CPU, 5, "cpu") if not _BOTH.search(x.text)]
        asked = log.matching(_ASKED, 3, "xla", "tpu", "pjrt", "neuron", "cpudevice", "tfrt_cpu")
        on_device = re.compile(r"(?:using|device|training on|running on)\W{1,6}(?:device\W{0,3})?'?(?:xla|tpu)", re.I)  # fmt: skip
        if not found or not asked or log.matching(on_device, 1, "xla", "tpu"):
            return None
        return self._say(found)

    @staticmethod
    def _asked_for_it(log: LogLook) -> list[Line]:
        """Code that prints the device, as an interpreter shows it, and the CPU as its answer."""
        for code, answer in pairwise(log.lines) if log.excerpt else ():
            if _PRINTED.search(code.text) and _ANSWER.match(answer.text):
                return [code, answer]
        return []

    @staticmethod
    def _say(found: list[Line]) -> Sighting:
        evidence, at = quote(found)
        return Sighting(
            "the program uses the CPU (suspected: the log speaks of a TPU)",
            evidence,
            "Give the program torch_xla.device() where it chooses its device, and print the "
            "device of one parameter.",
            threshold="any",
            at=at,
        )
