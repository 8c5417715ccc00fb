"""Medians of ratios, and how far they can be trusted."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .timing import Times

_RESAMPLES = 500


@dataclass(frozen=True)
class Summary:
    """The middle of some measurements, their quartiles, and the standard error of the middle (by bootstrap)."""

    median: float
    low: float
    high: float
    error: float
    count: int


def summarise(values: Sequence[float], seed: int = 0) -> Summary:
    """Median, quartiles and the bootstrap's standard error of the median."""
    if not values:
        raise ValueError("there is nothing to summarise")
    middle = statistics.median(values)
    if len(values) == 1:
        return Summary(middle, middle, middle, 0.0, 1)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    source = random.Random(seed)
    medians = [statistics.median(source.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return Summary(middle, low, high, statistics.stdev(medians), len(values))


def ratios(times: Times, case: str, over: str, reference: str) -> list[float]:
    """Round by round, the time of a case over another's: over the reference, the one measured around it.

    Over any other case, both are first taken relative to the reference around them.
    """
    own = times.seconds[case] if case == reference else relative(times, case)
    if over == reference:
        return [1.0] * len(own) if case == reference else own
    other = relative(times, over)
    if case == reference:
        return [1 / value for value in other]
    return [mine / theirs for mine, theirs in zip(own, other, strict=True)]


def relative(times: Times, case: str) -> list[float]:
    """Round by round, the time of a case over the reference around it."""
    return [own / near for own, near in zip(times.seconds[case], times.reference[case], strict=True)]
