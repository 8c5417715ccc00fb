"""The prior's precision by the marginal likelihood of the Laplace approximation.

With precision P = (N/T) F + a P0, the prior's own precision P0 multiplied by a factor a, and w the trained weights, c
the prior's centre, the log evidence at temperature T is (MacKay 1992; Immer et al. 2021)

    log Z(a) = -1/T sum_n nll_n - 1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c).

In the directions in which F has the eigenvalues f_i over P0, with m_i = (N/T) f_i,

    d log Z / d log a = 1/2 [sum_i m_i / (m_i + a) - a (w - c)' P0 (w - c)] :

the number of weights that the data have determined, less the size of the weights in units of the prior. The first falls
with a and the second grows, so there is one maximum, found by halving. The weights are not trained again: only the
covariance is that of the better prior. (Training again and choosing again in turn ends at the maximum of the evidence
itself, where the model is linear.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError, nearest

OF_THE_MODEL, MARGINAL_LIKELIHOOD, BY_LAYER = "prior", "marginal_likelihood", "by_layer"
PRIOR_PRECISIONS = (OF_THE_MODEL, MARGINAL_LIKELIHOOD, BY_LAYER)
LEAST, MOST = 1e-6, 1e6
"""Between which it is looked for: weights that no data determine would make it 0, weights at the centre infinite."""


@dataclass(frozen=True)
class Spectrum:
    """What the evidence needs of one parameter, or of all: ``ratios`` m_i, and ``size`` (w - c)' P0 (w - c)."""

    name: str
    ratios: Tensor
    size: float

    def log_evidence(self, factor: float) -> float:
        """-1/2 log det(P / a P0) - a/2 (w - c)' P0 (w - c)."""
        return -0.5 * (float((self.ratios / factor).log1p().sum()) + factor * self.size)

    def slope(self, factor: float) -> float:
        """Twice its derivative in log a: how many weights are determined, less how large they are."""
        return float((self.ratios / (self.ratios + factor)).sum()) - factor * self.size


def spectrum(name: str, ratios: Tensor, away: Tensor, prior: Tensor) -> Spectrum:
    """From m_i, and w - c (P,) with the diagonal of P0."""
    return Spectrum(name, ratios.clamp_min(0).flatten(), float((prior * away.double().square()).sum()))


def best_factor(spectra: Sequence[Spectrum]) -> float:
    """The factor a of these parameters together with the highest evidence."""
    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(60):
        middle = (low + high) / 2
        if sum(one.slope(math.exp(middle)) for one in spectra) > 0:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def factors_of(choice: str | float, spectra: Sequence[Spectrum]) -> Mapping[str, float]:
    """By which each parameter's prior precision is multiplied."""
    if choice == MARGINAL_LIKELIHOOD:
        one = best_factor(spectra)
        return {each.name: one for each in spectra}
    if choice == BY_LAYER:
        return {each.name: best_factor([each]) for each in spectra}
    factor = 1.0 if isinstance(choice, str) else float(choice)
    return {each.name: factor for each in spectra}


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


def eigenvalues(matrix: Tensor) -> Tensor:
    """Of a symmetric matrix that is positive but for rounding."""
    found: Tensor = torch.linalg.eigvalsh(matrix)
    return found.clamp_min(0)
