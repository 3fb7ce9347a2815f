"""What counts as good enough, per session: every tolerance, with the source of its default."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import PilotageError

if TYPE_CHECKING:
    from core.state import SessionState


@dataclass(frozen=True, slots=True)
class Criteria:
    """What counts as good enough, per session. Every threshold says where it comes from.

    Relative tolerances are dimensionless: ``|actual - expected| / |expected|``.
    """

    #: Optimizer steps of a parity run. 16: past the first compiles and a short warm-up.
    parity_steps: int = 16
    #: Initial norm per tensor, fp32; the oracle prototype's bound for relative L2 per module.
    start_rtol: float = 1e-5
    #: Output of each module in the first forward pass, relative L2, fp32. The oracle prototype:
    #: 3.5e-7 for a faithful migration, 2e-4 and more for each seeded fault (torch_xla 2.9.0).
    forward_rtol: float = 1e-5
    #: The same in half precision, and on a TPU, whose matmul is bf16: the prototype saw 6.6e-3.
    forward_bf16_rtol: float = 2e-2
    #: Gradient of each tensor in the first step, relative L2, fp32. The prototype saw 6e-7; a
    #: deeper model adds up more rounding, and what a wrong loss or a lost term does is far more.
    gradients_rtol: float = 1e-4
    #: The same in half precision: the prototype saw 1.8e-2.
    gradients_bf16_rtol: float = 5e-2
    #: Where the reference was repeated, a tolerance is at least so many times its own variation:
    #: what lies within that is no difference of the code (the rule of Ascend's accuracy tools,
    #: out of the GPU's own run-to-run variation; three times, since few repeats show little of it).
    variation_factor: float = 3.0
    #: Loss of the first step. CPU and XLA fp32 losses were equal after 30 steps; a wrong GELU
    #: moved the loss by 1e-6, so this can't be tighter than rounding and is not the only check.
    first_loss_rtol: float = 1e-5
    #: Loss of each of the parity steps: rounding grows along a trajectory, hence wider.
    trajectory_rtol: float = 1e-3
    #: Gradient norm before and after clipping, and norm of the parameter update, per step.
    grad_rtol: float = 1e-3
    #: Learning rate and other hyperparameters: computed on the host, equal but for rounding.
    hyper_rtol: float = 1e-6
    #: bf16, and fp32 on a TPU (whose matmul is bf16 by default): TorchTPU's documented parity
    #: rtol, and a loss curve tolerance that follows it.
    bf16_rtol: float = 1.6e-2
    bf16_trajectory_rtol: float = 5e-2
    #: A healthy run compiles in steps 1 and 2 (optimizer state appears): count from step 4 on.
    warmup_steps: int = 3
    #: PyTorch/XLA's own metrics analysis: more than 0.5 compiles a step is too frequent.
    compiles_per_step: float = 0.5
    #: The same tool's bound for transfers to the host per step.
    transfers_per_step: float = 0.5
    #: The project's metric may be worse by this many points (where the metric has points) ...
    goal_points: float = 1.0
    #: ... or by this share of the reference's value (where it has none, for example perplexity).
    goal_rtol: float = 0.01
    #: One run may take, and cost, at most this many times the reference's.
    max_time_ratio: float = 1.0
    max_cost_ratio: float = 1.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any], strict: bool = True) -> Criteria:
        """Criteria from a configuration table; what is not named keeps its default.

        ``strict`` raises :class:`PilotageError` on an unknown name or a value that is no
        number >= 0; otherwise such entries are passed over (a stored session may be older or
        newer than this release).
        """
        known = {f.name: f for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in data.items():
            good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            whole = name in ("parity_steps", "warmup_steps")
            if name in known and good and (not whole or isinstance(value, int)):
                values[name] = value if whole else float(value)
            elif strict and name not in known:
                raise PilotageError(
                    f"There is no criterion {name!r}; [criteria] knows: {', '.join(known)}."
                )
            elif strict:
                kind = "a whole number" if whole else "a number"
                raise PilotageError(f"Criterion {name!r} has to be {kind} >= 0, not {value!r}.")
        return cls(**values)

    @classmethod
    def of(cls, state: SessionState) -> Criteria:
        """The criteria of a session."""
        table = state.config.get("criteria")
        return cls.from_json(table if isinstance(table, dict) else {}, strict=False)

    def to_json(self) -> dict[str, Any]:
        """Every criterion with its value."""
        return dataclasses.asdict(self)

    def earlier_hash(self) -> str:
        """Twelve hex digits over all criteria that releases up to 0.2 had.

        Their results are bound to all of them; later ones say which they used (:class:`Used`).
        """
        return hash_of({name: getattr(self, name) for name in _EARLIER})


_EARLIER = (
    *("parity_steps", "start_rtol", "first_loss_rtol", "trajectory_rtol", "grad_rtol"),
    *("hyper_rtol", "bf16_rtol", "bf16_trajectory_rtol", "warmup_steps", "compiles_per_step"),
    *("transfers_per_step", "goal_points", "goal_rtol", "max_time_ratio", "max_cost_ratio"),
)


def hash_of(values: Mapping[str, Any]) -> str:
    """Twelve hex digits that change when a value does."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


class Used:
    """Criteria that note which of them are read.

    A check is a pure function of the records and of the criteria it reads, so that a change of any
    other leaves its result what it was.
    """

    def __init__(self, criteria: Criteria) -> None:
        self._criteria = criteria
        self.values: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._criteria, name)
        if isinstance(value, int | float):
            self.values[name] = value
        return value
