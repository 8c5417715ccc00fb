"""SGLD in cosine cycles: large steps look for modes, small ones draw from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.errors import SettingError, check_number
from ..core.protocols import OptimizerContext, Progress
from ..optim.torch_optimizers import check_positive
from .adaptation import MIN_DESCENT_STEPS, AutoTunedSampler, Plan
from .sampler import Sampler, SamplerPart
from .sgld import SGLDSampler

_MOST_CYCLES = 4


def cycle_fraction(step: int, cycles: int, total_steps: int) -> float:
    """Return r_t = frac(t M / K) for M cycles in K steps, without a short cycle at the end."""
    return (step * cycles % total_steps) / total_steps


class CyclicalSGLDSampler(SGLDSampler):
    """SGLD at the rate lr/2 (cos(pi r_t) + 1), without noise while r_t is below ``exploration``."""

    def __init__(
        self, groups: Sequence[dict[str, Any]], context: OptimizerContext, lr: float, cycles: int, exploration: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": 0.0}, context)
        self.cycles, self.total_steps, self.exploration = cycles, context.total_steps, exploration

    def lr_factor(self) -> float:
        return 0.5 * (math.cos(math.pi * cycle_fraction(self.steps, self.cycles, self.total_steps)) + 1.0)

    def adds_noise(self) -> bool:
        return cycle_fraction(self.steps, self.cycles, self.total_steps) >= self.exploration


@dataclass(frozen=True)
class CyclicalSGLD(SamplerPart):
    """SGLD with a rate that restarts: each of M cycles explores without noise, then samples as the rate falls.

    lr_t = lr/2 (cos(pi r_t) + 1), r_t = frac(t M / K) in K steps; Zhang et al. 2020, equation 1 and algorithm 1. Steps
    with r_t < ``exploration`` (the paper's beta) are plain gradient steps, the others are those of ``sgld``; draws are
    kept where r_t >= ``collection``.

    Exploration ends near a mode, so the first noisy steps are narrower than the posterior. A direction of precision lam
    forgets this as exp(-s), s the sum of lr_t lam / N over the noisy steps before a draw. Over a whole sampling stage s
    is lr lam K / (N M) times a factor: 0.09 from r = 0.5, 0.0064 from 0.8, 0.0008 from 0.9. (The authors' CIFAR script
    collects from 0.94.) Hence our default explores for only half of a cycle.

    Args:
        lr: at the start of a cycle. None explores by Adam, up to 60 percent of the way from ``exploration`` to
            ``collection``, and fits the rate of each cycle's noisy steps (``AutoTunedSampler``).
        cycles: None takes one to four, of at least 1,500 steps where possible: a shorter descent ends far from a mode.
        exploration: fraction of a cycle before the noise begins.
        collection: fraction of a cycle before draws are kept.
    """

    lr: float | None = 0.2
    cycles: int | None = 4
    exploration: float = 0.5
    collection: float = 0.75

    name: ClassVar[str] = "cyclical_sgld"
    paper: ClassVar[str] = "Zhang et al. 2020"

    def __post_init__(self) -> None:
        check_positive(self, "lr", "cycles")
        check_number(self.name, "collection", self.collection, self.exploration, 1)

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Sampler:
        steps = context.total_steps
        cycles = self.cycles_in(steps)
        if 1 - math.gcd(cycles, steps) / steps < self.collection:
            raise SettingError(f"{self.name}: {steps} steps are too few for {cycles} cycles; no draw would be kept")
        if self.lr is None:
            descent = self.exploration + 0.6 * (self.collection - self.exploration)
            return AutoTunedSampler(groups, context, Plan(steps, cycles, descent, self.collection), 2.0)
        return CyclicalSGLDSampler(groups, context, self.lr, cycles, self.exploration)

    def cycles_in(self, steps: int) -> int:
        return self.cycles if self.cycles is not None else max(1, min(_MOST_CYCLES, steps // MIN_DESCENT_STEPS))

    def may_sample(self, progress: Progress) -> bool:
        if progress.total_steps is None:
            raise SettingError(f"{self.name} needs the planned number of steps: Progress(total_steps=...)")
        total = progress.total_steps
        return cycle_fraction(progress.step, self.cycles_in(total), total) >= self.collection
