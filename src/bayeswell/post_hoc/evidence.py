"""The prior's precision by the marginal likelihood of the Laplace approximation.

With precision P = (N/T) F + a P0, the prior's own precision P0 multiplied by a factor a, and w the trained weights, c
the prior's centre, the log evidence at temperature T is (MacKay 1992)

    log Z(a) = -1/T sum_n nll_n - 1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c),

at the w that is best for this a. In directions i in which (N/T) F is m_i and w - c is v_i, both in units of P0, the
linearised network with its own best weights has, up to what a does not change,

    log Z(a) = -1/2 sum_i [log(1 + m_i / a) + a m_i / (a + m_i) v_i^2] = sum_i log N(v_i; 0, 1/a + 1/m_i) + ...:

each v_i is a draw from the prior, seen with the noise 1/m_i that the data leave. This is what is maximised. The first
formula at the trained weights would also count what training has left of the network's start in directions that the
data say nothing of (m_i near 0), and make the prior wider for it (Antoran et al. 2022, who train the linearised network
instead). The weights are not trained again: only the covariance is that of the better prior. Where the weights look no
larger than their noise (a network that fits its data without error has no curvature left; a coarse F), what is
maximised has no maximum, and the factor is the largest of the range: hardly any spread. The first formula has a maximum
there, but one at which predictions drown in the spread: NLL 1.57 against 0.11 of the network itself, on digits.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError, nearest

OF_THE_MODEL, MARGINAL_LIKELIHOOD, BY_LAYER = "prior", "marginal_likelihood", "by_layer"
PRIOR_PRECISIONS = (OF_THE_MODEL, MARGINAL_LIKELIHOOD, BY_LAYER)
ALL = ""
"""The name under which a whole matrix has its one factor."""
LEAST, MOST, _GRID = 1e-3, 1e3, 61
"""Between which the factor is looked for: weights that no data show to be other than 0 would make it infinite."""


@dataclass(frozen=True)
class Spectrum:
    """What the evidence needs of one parameter, or of all: m_i and v_i^2, in the directions of the curvature."""

    name: str
    curvatures: Tensor
    squares: Tensor

    def log_evidence(self, factor: float) -> float:
        """-1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c), at the trained weights."""
        return -0.5 * float((self.curvatures / factor).log1p().sum() + factor * self.squares.sum())

    def log_marginal(self, factor: float) -> float:
        """-1/2 sum_i [log(1 + m_i / a) + a m_i / (a + m_i) v_i^2]: what is maximised."""
        share = self.curvatures / (self.curvatures + factor)
        return -0.5 * float((self.curvatures / factor).log1p().sum() + factor * (share * self.squares).sum())


def best_factor(spectra: Sequence[Spectrum]) -> float:
    """The factor a of these parameters together with the highest evidence."""
    return highest(lambda factor: sum(one.log_marginal(factor) for one in spectra), _GRID, 1e-6)


def highest(value: Callable[[float], float], points: int, tolerance: float) -> float:
    """The factor with the highest value: on a grid from ``LEAST`` to ``MOST``, then by golden sections of its log."""
    known = functools.cache(lambda log: value(math.exp(log)))
    grid = torch.linspace(math.log(LEAST), math.log(MOST), points).tolist()
    best = max(range(points), key=lambda place: known(grid[place]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    section = (math.sqrt(5) - 1) / 2
    while high - low > tolerance:
        left, right = high - section * (high - low), low + section * (high - low)
        low, high = (low, right) if known(left) >= known(right) else (left, high)
    return math.exp((low + high) / 2)


def factors_of(choice: str | float, spectra: Callable[[], Sequence[Spectrum]]) -> Mapping[str, float]:
    """By which each parameter's prior precision is multiplied; only a choice by evidence looks at the spectra."""
    if choice == MARGINAL_LIKELIHOOD:
        known = spectra()
        one = best_factor(known)
        return {each.name: one for each in known}
    if choice == BY_LAYER:
        return {each.name: best_factor([each]) for each in spectra()}
    return same_factor(1.0 if isinstance(choice, str) else float(choice))


def at_an_end(factor: float) -> bool:
    """Whether a search has ended at an end of its range: no best factor was found."""
    return not 1.1 * LEAST < factor < MOST / 1.1


def same_factor(factor: float) -> Mapping[str, float]:
    """One factor, whatever the parameter is called."""
    return defaultdict(lambda: factor)


def require_prior_precision(value: Any, structure: str) -> None:
    """Refuse what is no way to choose the factor, nor a factor."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return
    if not isinstance(value, str) or value not in PRIOR_PRECISIONS:
        allowed = nearest(str(value), PRIOR_PRECISIONS)
        raise SettingError(f"laplace: prior_precision = {value!r}; a factor above 0 of the prior's own, or: {allowed}")
    if value == BY_LAYER and structure == "full":
        raise SettingError(
            f"laplace: prior_precision = '{BY_LAYER}' needs a covariance layer by layer: structure 'kronecker' or "
            f"'diagonal', or prior_precision = '{MARGINAL_LIKELIHOOD}'"
        )


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix that is positive but for rounding."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp_min(0), vectors
