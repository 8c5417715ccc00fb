"""Statistics over repeated runs: means over seeds, paired differences, and methods as good as the best.

Values are those of one score, one number for each seed (or test example), in the same order for all methods.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ..core.errors import DataError, check_choice
from .estimates import Estimate

SIGNIFICANCE = 0.05
"""Default level of the tests."""


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Return the mean over runs that differ by their seed, and its standard error std / sqrt(runs)."""
    numbers = [float(value) for value in values]
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise DataError(f"values over seeds must be finite and at least one, got {numbers}")
    # Exact sums: runs that agree have an error of 0, not of 1e-17.
    se = None if len(numbers) < 2 else statistics.stdev(numbers) / math.sqrt(len(numbers))
    return Estimate(statistics.mean(numbers), se)


@dataclass(frozen=True)
class PairedDifference:
    """Mean of first - second over pairs, with its standard error (None for one pair) and degrees of freedom."""

    value: float
    se: float | None
    df: int

    @property
    def p_value(self) -> float:
        """Two-sided p-value of Student's paired t-test; NaN for one pair."""
        if self.se is None:
            return math.nan
        if self.se == 0:
            return float(self.value == 0)
        return student_tail(abs(self.value) / self.se, self.df)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the mean difference; infinite for one pair."""
        half = math.inf if self.se is None else self.se * student_quantile(1 - level, self.df)
        return self.value - half, self.value + half


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Compare two methods seed by seed (or example by example)."""
    if len(first) != len(second):
        raise DataError(f"paired values must have equal lengths, got {len(first)} and {len(second)}")
    found = mean_over_seeds([float(a) - float(b) for a, b in zip(first, second, strict=True)])
    return PairedDifference(found.value, found.se, len(first) - 1)


def best_methods(
    values: Mapping[str, Sequence[float]], direction: str = "lower", *, significance: float = SIGNIFICANCE
) -> list[str]:
    """Return the methods that are not significantly worse than the one with the best mean, best first.

    Each is compared with the best by a paired t-test at ``significance`` / (methods - 1) (Bonferroni). With one seed no
    difference is significant. ``direction``, "lower" or "higher", is which way the score is better.
    """
    check_choice("best_methods", "direction", direction, ("lower", "higher"))
    sign = 1 if direction == "lower" else -1
    order = sorted(values, key=lambda name: sign * mean_over_seeds(values[name]).value)
    level = significance / max(1, len(order) - 1)
    return [name for name in order if not paired_difference(values[name], values[order[0]]).p_value < level]


def student_tail(t: float, df: int) -> float:
    """P(|T| > t) of Student's t with integer ``df``, by its finite series (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    if df > 2000:
        return 2 * NormalDist().cdf(-t)
    angle = math.atan2(t, math.sqrt(df))
    cosine = math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(3 if odd else 2, df, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


def student_quantile(tail: float, df: int) -> float:
    """t with P(|T| > t) = ``tail``, by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, df) > tail and high < 1e15:
        low, high = high, 2 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if student_tail(middle, df) > tail else (low, middle)
    return high
