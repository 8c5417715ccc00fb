"""Which learning rates suit SGD with a given momentum, if the curvature is known to lie in a range.

On a quadratic of curvature h the pair (w_t+1, w_t) is multiplied in each step by the momentum operator
[[1 + momentum - lr h, -momentum], [1, 0]]. For (1 - sqrt(momentum))^2 <= lr h <= (1 + sqrt(momentum))^2 its
spectral radius is sqrt(momentum), whatever lr and h: convergence is robust to both (Zhang & Mitliagkas 2017, lemma
3; Book 2020, eq. (3.2.1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SettingError, require_positive
from .checks import require_below_one


@dataclass(frozen=True)
class RobustRegion:
    """Rates from ``lowest`` to ``highest``; empty where lowest > highest."""

    lowest: float
    highest: float

    @property
    def empty(self) -> bool:
        """Whether no rate is robust for every curvature of the range."""
        return self.lowest > self.highest

    def __contains__(self, lr: float) -> bool:
        return self.lowest <= lr <= self.highest


def robust_region(momentum: float, curvature_min: float, curvature_max: float) -> RobustRegion:
    """Rates with (1 - sqrt(momentum))^2 / h <= lr <= (1 + sqrt(momentum))^2 / h for every h of the range."""
    require_below_one("robust_region", "momentum", momentum)
    _check_range(curvature_min, curvature_max)
    root = math.sqrt(momentum)
    return RobustRegion((1 - root) ** 2 / curvature_min, (1 + root) ** 2 / curvature_max)


def least_robust_momentum(curvature_min: float, curvature_max: float) -> float:
    """The momentum from which the region is not empty: ((sqrt(k) - 1) / (sqrt(k) + 1))^2, k = h_max / h_min."""
    _check_range(curvature_min, curvature_max)
    root = math.sqrt(curvature_max / curvature_min)
    return ((root - 1) / (root + 1)) ** 2


def momentum_operator_radius(lr: float, momentum: float, curvature: float) -> float:
    """The spectral radius of the momentum operator: the factor by which an error shrinks (or grows) in each step."""
    trace = 1 + momentum - lr * curvature
    discriminant = trace * trace - 4 * momentum
    if discriminant <= 0:
        return math.sqrt(momentum)
    return (abs(trace) + math.sqrt(discriminant)) / 2


def outside_robust_region(lr: float, momentum: float, curvature_min: float, curvature_max: float) -> str | None:
    """A line of advice if SGD's rate or momentum is outside the robust region, else None."""
    require_positive("robust_region", "lr", lr)
    region = robust_region(momentum, curvature_min, curvature_max)
    curvatures = f"curvatures from {curvature_min:.3g} to {curvature_max:.3g}"
    if region.empty:
        least = least_robust_momentum(curvature_min, curvature_max)
        return f"sgd: no rate is robust for {curvatures} with momentum {momentum:.4g}; it takes at least {least:.4g}"
    if lr in region:
        return None
    worst = max(momentum_operator_radius(lr, momentum, h) for h in (curvature_min, curvature_max))
    verdict = "diverges" if worst > 1 else "is slower than it need be"
    return (
        f"sgd: lr {lr:.3g} {verdict} for {curvatures} with momentum {momentum:.4g} (errors x {worst:.4g} in a step); "
        f"robust are {region.lowest:.3g} to {region.highest:.3g}"
    )


def _check_range(curvature_min: float, curvature_max: float) -> None:
    require_positive("robust_region", "curvature_min", curvature_min)
    require_positive("robust_region", "curvature_max", curvature_max)
    if curvature_min > curvature_max:
        raise SettingError(
            f"robust_region: curvature_min = {curvature_min!r} exceeds curvature_max = {curvature_max!r}"
        )
