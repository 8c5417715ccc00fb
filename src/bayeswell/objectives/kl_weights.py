"""Weights of the KL term along training.

The loss of batch i is (mean NLL) + weight_i KL / N. The M weights of an epoch average to one, except under
``LinearAnneal``: weight_i = M pi_i in the notation of the papers, where sum_i pi_i = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.errors import SettingError, check_number
from ..core.protocols import KLWeight, Progress
from ..core.registry import Registry


@dataclass(frozen=True)
class Uniform:
    """Equal weights: pi_i = 1/M in each batch."""

    name: ClassVar[str] = "uniform"
    paper: ClassVar[str] = "Graves 2011"

    def __call__(self, progress: Progress) -> float:
        return 1.0


@dataclass(frozen=True)
class Geometric:
    """Weights that fall (ratio < 1) or rise (ratio > 1) within each epoch: pi_i = ratio^i / sum_k ratio^k.

    Book's thesis, section 5.2 (lambda); ratio 1/2 is Blundell's 2^(M-i) / (2^M - 1). Computed in log space, since
    2^500 overflows float32. ratio = 0 is defined as weight 0 in every batch: maximum likelihood.
    """

    ratio: float = 0.5

    name: ClassVar[str] = "geometric"
    paper: ClassVar[str] = "Blundell et al. 2015; Book 2020, section 5.2"

    def __post_init__(self) -> None:
        check_number("geometric", "ratio", self.ratio, 0)

    def __call__(self, progress: Progress) -> float:
        if progress.batches is None:
            raise SettingError("geometric KL weights need the number of batches of an epoch: Progress(batches=...)")
        if self.ratio == 0:
            return 0.0
        count = progress.batches
        return count * math.exp((progress.batch + 1) * math.log(self.ratio) - self._log_sum(count))

    def _log_sum(self, count: int) -> float:
        """Return log sum_k ratio^k over k = 1..count: the closed form, scaled by its largest term."""
        log_ratio = math.log(self.ratio)
        if log_ratio == 0:
            return math.log(count)
        largest, distance = max(log_ratio, count * log_ratio), abs(log_ratio)
        return largest + math.log(-math.expm1(-count * distance)) - math.log(-math.expm1(-distance))


@dataclass(frozen=True)
class LinearAnneal:
    """Weights from 0 to 1 in a straight line over the first ``fraction`` of training, then 1.

    k-tied Normal, section 3.1, uses the whole run (fraction = 1): weight (t + 1) / T in step t = 0, ..., T - 1.
    """

    fraction: float = 1.0

    name: ClassVar[str] = "linear_anneal"
    paper: ClassVar[str] = "Bowman et al. 2016; Swiatkowski et al. 2020, section 3.1"

    def __post_init__(self) -> None:
        check_number("linear_anneal", "fraction", self.fraction, 0, 1, above=True)

    def __call__(self, progress: Progress) -> float:
        if progress.total_steps is None:
            raise SettingError("linear_anneal needs the planned number of steps: Progress(total_steps=...)")
        return min(1.0, (progress.step + 1) / (self.fraction * progress.total_steps))


@dataclass(frozen=True)
class WeightFunction:
    """A function of ``Progress`` that returns the weight."""

    function: Callable[[Progress], float]

    name: ClassVar[str] = "function"
    paper: ClassVar[str] = ""

    def __call__(self, progress: Progress) -> float:
        return check_number(f"KL weight at step {progress.step}", "function(progress)", self.function(progress), 0)


def _adapt(choice: Any) -> KLWeight | None:
    is_part = isinstance(choice, type) or isinstance(getattr(choice, "name", None), str)
    return WeightFunction(choice) if callable(choice) and not is_part else None


KL_WEIGHTS: Registry[KLWeight] = Registry(
    "KL weight", Uniform, Geometric, LinearAnneal, requires=("__call__",), adapt=_adapt
)
"""KL weights by name."""
