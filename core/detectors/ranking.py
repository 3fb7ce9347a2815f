"""Which of several output findings speak, and in which order: nearer to the cause comes first.

The rule, for a saved log: an error speaks before everything silent; what is sure before what is
suspected; then the order below. What another finding explains is left out.
"""

from __future__ import annotations

from core.detectors import (
    output_checkpoint,
    output_chips,
    output_clipping,
    output_compared,
    output_compile,
    output_contrast,
    output_counts,
    output_device,
    output_evaluation,
    output_growth,
    output_lazy,
    output_numbers,
    output_replicas,
    output_stall,
    output_told,
    output_training,
    output_words,
)
from core.detectors.base import OUTPUT_DETECTORS, OutputDetector, Sighting
from core.detectors.output_look import LogLook

#: Importing these modules registers their detectors.
MODULES = (
    output_device, output_numbers, output_training, output_evaluation, output_checkpoint, output_chips, output_clipping, output_compared, output_replicas, output_counts,
    output_compile, output_lazy, output_growth, output_stall, output_contrast, output_told, output_words,
)  # fmt: skip

#: From cause to consequence: another device, wrong values, no learning, wrong state, then time.
ORDER = (
    "cpu_fallback_warning", "pjrt_cpu_fallback", "nan", "value_range", "metric_saturated",
    "rng_repeats", "loss_zero", "chips_unused", "checkpoint_size", "checkpoint_equals_base", "restart_regression",
    "param_count_changed", "clip_without_effect", "grad_norm_scale_mismatch", "replica_hash_mismatch", "eval_sample_count",
    "same_data_on_ranks", "goal_delta_by_world_size", "device_mismatch", "params_unchanged", "loss_flat", "loss_rises", "eval_constant", "rss_slope", "stall",
    "graph_growth", "recompile", "compile_too_slow", "execution_too_slow", "transfer_per_step",
    "aten_fallback", "step_time_regression", "host_killed", "model_on_cpu",
    "duty_cycle_zero", "cuda_amp", "version_warning",
    "sides_apart", "told", "about",
)  # fmt: skip

#: Left out where the finding on the left is open: its consequence, or the same thing said less
#: exactly.
EXPLAINS: dict[str, tuple[str, ...]] = {
    "params_unchanged": ("loss_flat", "eval_constant"),
    "loss_flat": ("eval_constant",),
    "nan": ("loss_zero",),
    "rng_repeats": ("metric_saturated",),
    "metric_saturated": ("params_unchanged", "loss_flat", "eval_constant"),
    "rss_slope": ("host_killed",),
    "grad_norm_scale_mismatch": ("goal_delta_by_world_size", "replica_hash_mismatch"),
    "cpu_fallback_warning": ("pjrt_cpu_fallback", "duty_cycle_zero", "model_on_cpu"),
    "pjrt_cpu_fallback": ("duty_cycle_zero", "model_on_cpu"),
    "recompile": ("step_time_regression", "stall", "duty_cycle_zero"),
    "compile_too_slow": ("stall", "duty_cycle_zero"),
    "transfer_per_step": ("stall", "duty_cycle_zero"),
    "stall": ("duty_cycle_zero",),
    "checkpoint_size": ("checkpoint_equals_base",),
}  # fmt: skip

Found = list[tuple[OutputDetector, Sighting]]


def output_detectors() -> list[OutputDetector]:
    """The output detectors in their order; one that is not in :data:`ORDER` comes last."""
    place = {name: i for i, name in enumerate(ORDER)}
    return sorted(OUTPUT_DETECTORS.values(), key=lambda d: place.get(d.NAME, len(ORDER)))


def suspected(sighting: Sighting) -> bool:
    """Whether a sighting says of itself that the evidence is weak."""
    return "suspected" in sighting.title


def ranked(found: Found, log: LogLook) -> Found:
    """What is left of the findings of one log, the one that speaks for it first.

    Two rules besides the table: a chip that another process holds explains the host's CPU, while
    a library that merely found none is explained by it; and operators on the host explain the
    reads that they make.
    """
    names = {d.NAME: s for d, s in found}
    explains = dict(EXPLAINS)
    if "pjrt_cpu_fallback" in names and "cpu_fallback_warning" in names:
        held = "holds the chips" in names["cpu_fallback_warning"].title
        if not held:
            explains["cpu_fallback_warning"] = ("duty_cycle_zero", "model_on_cpu")
            explains["pjrt_cpu_fallback"] = (
                "duty_cycle_zero", "model_on_cpu", "cpu_fallback_warning",
            )  # fmt: skip
    gone = {b for a in names for b in explains.get(a, ()) if not _weaker(names, a, b)}
    left = [(d, s) for d, s in found if d.NAME not in gone]
    if len(left) > 1:  # what others say by numbers or by plain words says more
        left = [(d, s) for d, s in left if d.NAME != "about"]
    place = {name: float(i) for i, name in enumerate(ORDER)}
    if output_lazy.reads_explained(log):
        place["aten_fallback"] = place["transfer_per_step"] - 0.5
    return sorted(left, key=lambda x: (suspected(x[1]), place.get(x[0].NAME, len(ORDER))))


def _weaker(names: dict[str, Sighting], a: str, b: str) -> bool:
    """Whether ``a`` is only suspected and ``b`` is sure: then it can't explain it away."""
    return b in names and suspected(names[a]) and not suspected(names[b])
