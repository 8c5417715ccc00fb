"""The prior's precision by the marginal likelihood of the Laplace approximation.

With precision P = (N/T) F + a P0, the prior's own precision P0 multiplied by a factor a, and w the trained weights, c
the prior's center, the log evidence at temperature T is (MacKay 1992)

    log Z(a) = -1/T sum_n nll_n - 1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c),

at the w that is best for this a. In directions i in which (N/T) F is m_i and w - c is v_i, both in units of P0, the
linearized network with its own best weights has, up to what a does not change,

    log Z(a) = -1/2 sum_i [log(1 + m_i / a) + a m_i / (a + m_i) v_i^2] = sum_i log N(v_i; 0, 1/a + 1/m_i) + ...:

each v_i is a draw from the prior, observed with the noise 1/m_i that the data leave. This is what is maximized. The
first formula at the trained weights would also count what training has left of the network's start in directions
without data (m_i near 0), and make the prior wider for it (Antoran et al. 2022, who train the linearized network
instead). The weights are not trained again: only the covariance is that of the better prior.

Where the weights look no larger than their noise (a network that fits its data without error has no curvature left; a
coarse F) the second formula has no maximum, and the factor is the largest of the range: a narrow posterior. The first
formula has a maximum there, but one at which predictions drown in the spread.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MODEL_PRIOR, MARGINAL_LIKELIHOOD, BY_LAYER = "prior", "marginal_likelihood", "by_layer"
PRIOR_PRECISIONS = (MODEL_PRIOR, MARGINAL_LIKELIHOOD, BY_LAYER)
ALL = ""
"""The name of all weights together, which a full structure gives one factor."""
MIN_FACTOR, MAX_FACTOR = 1e-3, 1e3
"""Range of the search: weights that the data do not tell from 0 would make the factor infinite."""


@dataclass(frozen=True)
class Spectrum:
    """The evidence of one parameter, or of all: m_i and v_i^2 in the directions of the curvature."""

    name: str
    curvatures: Tensor
    squares: Tensor

    def log_evidence(self, factor: float) -> float:
        """-1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c), at the trained weights."""
        return -0.5 * float((self.curvatures / factor).log1p().sum() + factor * self.squares.sum())

    def log_marginal(self, factor: float) -> float:
        """-1/2 sum_i [log(1 + m_i / a) + a m_i / (a + m_i) v_i^2]: what is maximized."""
        share = self.curvatures / (self.curvatures + factor)
        return -0.5 * float((self.curvatures / factor).log1p().sum() + factor * (share * self.squares).sum())


def best_factor(spectra: Sequence[Spectrum]) -> float:
    """Return the factor a of these parameters together with the highest evidence."""
    return maximize(lambda factor: sum(one.log_marginal(factor) for one in spectra))


def maximize(value: Callable[[float], float], points: int = 61, tolerance: float = 1e-6) -> float:
    """Return the factor with the highest value: on a grid of the whole range, then by golden sections of its log."""
    known = functools.cache(lambda log: value(math.exp(log)))
    grid = torch.linspace(math.log(MIN_FACTOR), math.log(MAX_FACTOR), points, dtype=torch.float64).tolist()
    best = max(range(points), key=lambda place: known(grid[place]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    section = (math.sqrt(5) - 1) / 2
    while high - low > tolerance:
        left, right = high - section * (high - low), low + section * (high - low)
        low, high = (low, right) if known(left) >= known(right) else (left, high)
    return math.exp((low + high) / 2)


def find_factors(choice: str | float, spectra: Callable[[], Sequence[Spectrum]]) -> Mapping[str, float]:
    """Return the factor of each parameter's prior precision; only a choice by evidence computes the spectra."""
    if choice == MARGINAL_LIKELIHOOD:
        known = spectra()
        best = best_factor(known)
        return {one.name: best for one in known}
    if choice == BY_LAYER:
        return {one.name: best_factor([one]) for one in spectra()}
    factor = 1.0 if isinstance(choice, str) else float(choice)
    return defaultdict(lambda: factor)


def at_end_of_range(factor: float) -> bool:
    """Return whether a search ended at an end of its range, so that no best factor was found."""
    return not 1.1 * MIN_FACTOR < factor < MAX_FACTOR / 1.1
