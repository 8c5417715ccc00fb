"""Uncertainty of class probabilities in nats.

H[mean_d p_d] = mean_d H[p_d] + mutual information: predictive = aleatoric + epistemic (Depeweg et al. 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .classification import as_draws, as_probabilities
from .estimates import Array, MeanScore

_ROUNDING = 1e-12
"""Mutual information below this is rounding of draws that agree."""


def entropy(probabilities: Tensor) -> Tensor:
    """(..., K) -> (...): -sum_k p_k log p_k, with 0 log 0 = 0."""
    result: Tensor = torch.special.entr(probabilities).sum(-1)
    return result


@MeanScore
def predictive_entropy(probabilities: Array) -> Tensor:
    """H[p] of averaged probabilities (S, ..., K)."""
    return entropy(as_probabilities(probabilities).double())


@MeanScore
def least_confidence(probabilities: Array) -> Tensor:
    """1 - max_k p_k."""
    return 1 - as_probabilities(probabilities).double().amax(-1)


@MeanScore
def expected_entropy(samples: Array) -> Tensor:
    """mean_d H[p_d], from each draw's probabilities (D, S, ..., K)."""
    return entropy(as_draws(samples)).mean(0)


@MeanScore
def mutual_information(samples: Array) -> Tensor:
    """H[mean_d p_d] - mean_d H[p_d], from (D, S, ..., K): between 0 (all draws agree) and log D."""
    values = as_draws(samples)
    information = entropy(values.mean(0)) - entropy(values).mean(0)
    return torch.where(information > _ROUNDING, information, 0.0)
