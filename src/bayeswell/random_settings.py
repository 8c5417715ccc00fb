"""Values of settings drawn at random, for studies and sweeps: each from a seed of its own, and from nothing else.

``drawn_near`` is the distribution of a thesis' random search (Book 2020, table 5.2): one of a few values v, each as
likely, then N(v, v/2), drawn again until it is in bounds. Half the mean is two standard deviations from 0, so few draws
are lost there: one in 44.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_DIGITS = 4


def drawn_near(values: Sequence[float], seed: int, below: float = math.inf) -> float:
    """One of the values v, then N(v, v/2) given that 0 < x < ``below``; of v = 0 it is 0."""
    draw = np.random.Generator(np.random.PCG64(seed))
    middle = float(values[int(draw.integers(len(values)))])
    if middle == 0:
        return 0.0
    while True:
        value = _short(draw.normal(middle, middle / 2))
        if 0 < value < below:
            return value


def drawn_between(low: float, high: float, seed: int, *, log: bool = False) -> float:
    """Uniform from ``low`` to ``high``; with ``log`` in the logarithm."""
    draw = np.random.Generator(np.random.PCG64(seed))
    if log:
        return _short(math.exp(draw.uniform(math.log(low), math.log(high))))
    return _short(draw.uniform(low, high))


def near_fault(values: Any, below: Any) -> str | None:
    """What keeps values and their bound from being drawn near, in a clause; None if nothing does.

    A bound below a value would have it drawn again for ever, or nearly so.
    """
    if not isinstance(values, list | tuple) or not values or not all(is_number(one) and one >= 0 for one in values):
        return "near must be a list of numbers of at least 0"
    if isinstance(below, bool) or not isinstance(below, int | float) or not below >= max(values) or below <= 0:
        return f"below = {below!r:.60}; it must be a number above 0, and no value may lie above it"
    return None


def is_number(value: Any) -> bool:
    """A finite number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: float) -> float:
    """Few digits, so that a setting can be read and typed."""
    return float(f"{value:.{_DIGITS}g}")
