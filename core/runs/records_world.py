"""The record of a run in which CUDA was redirected to the CPU (``reference record --cuda-on-cpu``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from core.runs import record_fields as fields
from core.runs.record_fields import Record


@dataclass(frozen=True, slots=True)
class CudaRedirectRecord(Record):
    """What was asked of a CUDA device and done on the CPU, once per process, at its end.

    ``calls`` counts by name (``Tensor.cuda``, ``torch.cuda.synchronize``); what has
    no equal on the CPU and failed as without a GPU is in ``unsupported``.
    """

    K: ClassVar[str] = "cuda_redirect"
    calls: Mapping[str, int] = fields.entry(fields.counts)
    unsupported: tuple[str, ...] = fields.entry(fields.listed(fields.string))


WORLD_KINDS: Mapping[str, type[Record]] = {CudaRedirectRecord.K: CudaRedirectRecord}
