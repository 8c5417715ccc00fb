"""Quantiles of Fisher's distribution F: what a ratio of two variances may be by chance."""

from __future__ import annotations

import math

_TINY = 1e-300


def fisher_quantile(tail: float, above: float, below: float) -> float:
    """x with P(F > x) = tail, F of ``above`` and ``below`` degrees of freedom (any positive numbers).

    P(F > x) = I_z(below / 2, above / 2) at z = below / (below + above x), which falls in x: bisection in log x.
    """
    low, high = -50.0, 100.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        # Through logarithms: where x is huge, 1 - z would be 1.
        ratio = math.log(above / below) + middle
        z = 1 / (1 + math.exp(ratio)) if ratio < 700 else 0.0
        if incomplete_beta(z, below / 2, above / 2) > tail:
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


def incomplete_beta(z: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_z(a, b), by its continued fraction (Lentz)."""
    if z <= 0 or z >= 1:
        return float(z >= 1)
    if z > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - incomplete_beta(1 - z, b, a)
    front = a * math.log(z) + b * math.log1p(-z) - math.log(a)
    front -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    c, d = 1.0, 1 / (1 - (a + b) * z / (a + 1) or _TINY)
    value = d
    for m in range(1, 500):
        for step in (
            m * (b - m) * z / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * z / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + step * d or _TINY)
            c = 1 + step / c or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(front) * value
