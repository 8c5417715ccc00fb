"""Numbers that change along training: the weight of the KL term.

Convention: the loss of batch i is (mean NLL) + weight_i * KL / N, with the M weights of an epoch averaging
to one, so weight_i = M pi_i in the notation of the papers (sum of pi_i = 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import SettingError, require_between
from .registry import Registry
from .types import KLWeight, Progress


@dataclass(frozen=True)
class Uniform:
    """The same weight in every batch: pi_i = 1/M."""

    name: ClassVar[str] = "uniform"
    paper: ClassVar[str] = "Graves 2011"

    def __call__(self, at: Progress) -> float:
        return 1.0


@dataclass(frozen=True)
class Geometric:
    """Weights that fall (ratio < 1) or rise (ratio > 1) within each epoch: pi_i = ratio^i / sum_k ratio^k.

    Book's thesis section 5.2 (lambda); ratio 1/2 is Blundell's 2^(M-i) / (2^M - 1). Computed in log space,
    as 2^500 has no float32. ratio = 0 is defined as weight 0 in every batch: maximum likelihood.
    """

    ratio: float = 0.5

    name: ClassVar[str] = "geometric"
    paper: ClassVar[str] = "Blundell et al. 2015; Book 2020, section 5.2"

    def __post_init__(self) -> None:
        require_between("geometric", "ratio", self.ratio, 0, math.inf, open_high=True)

    def __call__(self, at: Progress) -> float:
        if at.batches is None:
            raise SettingError("geometric KL weights need the number of batches of an epoch: Progress(batches=...)")
        if self.ratio == 0:
            return 0.0
        count = at.batches
        return count * math.exp((at.batch + 1) * math.log(self.ratio) - self._log_total(count))

    def _log_total(self, count: int) -> float:
        """log sum_k ratio^k over k = 1..count: the closed form, scaled by its largest term."""
        log_ratio = math.log(self.ratio)
        if log_ratio == 0:
            return math.log(count)
        largest = max(log_ratio, count * log_ratio)
        distance = abs(log_ratio)
        return largest + math.log(-math.expm1(-count * distance)) - math.log(-math.expm1(-distance))


@dataclass(frozen=True)
class LinearAnneal:
    """From 0 to 1 in a straight line over the first ``fraction`` of training, then 1.

    k-tied Normal section 3.1 uses the whole run (fraction = 1): weight t/T after t of T steps.
    """

    fraction: float = 1.0

    name: ClassVar[str] = "linear_anneal"
    paper: ClassVar[str] = "Bowman et al. 2016; Swiatkowski et al. 2020, section 3.1"

    def __post_init__(self) -> None:
        require_between("linear_anneal", "fraction", self.fraction, 0, 1, open_low=True)

    def __call__(self, at: Progress) -> float:
        if at.total_steps is None:
            raise SettingError("linear_anneal needs the planned number of steps: Progress(total_steps=...)")
        return min(1.0, (at.step + 1) / (self.fraction * at.total_steps))


@dataclass(frozen=True)
class WeightFunction:
    """A function of ``Progress``: the factor on the KL term in a step."""

    function: Callable[[Progress], float]

    name: ClassVar[str] = "function"
    paper: ClassVar[str] = ""

    def __call__(self, at: Progress) -> float:
        return checked_factor("KL weight", self.function, at)


def checked_factor(what: str, function: Callable[[Progress], float], at: Progress) -> float:
    """The value of a function of one's own, which must be a finite number of at least 0."""
    value = function(at)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise SettingError(
            f"{what}: the function returns {value!r} at step {at.step}; it must be a finite number of at least 0"
        )
    return float(value)


def weight_part(choice: Any) -> KLWeight | None:
    """A part of a plain function; None for what is a part already, or no function."""
    if isinstance(choice, type) or not callable(choice) or isinstance(getattr(choice, "name", None), str):
        return None
    made = WeightFunction(choice)
    try:
        made(Progress(0, 1, 0, 1))
    except SettingError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingError(f"KL weight: the function fails at the first step ({reason})") from error
    return made


KL_WEIGHTS: Registry[KLWeight] = Registry(
    "KL weight", Uniform, Geometric, LinearAnneal, requires=("__call__",), protocol=KLWeight, adapt=weight_part
)
"""KL weights by name: a factor on the KL term of a step."""
