"""How uncertain class probabilities are, in nats, and which part of it more data could remove.

H[mean_d p_d] = mean_d H[p_d] + mutual information: predictive = aleatoric + epistemic (Depeweg et al. 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .estimates import Estimate, MeanScore, mean_of
from .probabilities import require_probabilities, require_samples

_ROUNDING = 1e-12
"""Mutual information below this is rounding of draws that agree; as a score, its order would be noise."""


def entropy(probabilities: Tensor) -> Tensor:
    """(..., K) -> (...): -sum_k p_k log p_k of each example, with 0 log 0 = 0."""
    result: Tensor = torch.special.entr(probabilities).sum(-1)
    return result


def least_confidence(probabilities: Tensor) -> Tensor:
    """(S, ..., K) -> (S, ...): 1 - max_k p_k of each example."""
    return 1 - require_probabilities(probabilities).double().amax(-1)


def predictive_entropy(probabilities: Tensor) -> Estimate:
    """The mean over examples of H[p], from the averaged probabilities (S, ..., K)."""
    return mean_of(entropy(require_probabilities(probabilities).double()))


def expected_entropy(samples: Tensor) -> Estimate:
    """The mean over draws and examples of H[p_d], from each draw's probabilities (D, S, ..., K)."""
    return mean_of(entropy(require_samples(samples)).mean(0))


@MeanScore
def mutual_information(samples: Tensor) -> Tensor:
    """The mean over examples of H[mean_d p_d] - mean_d H[p_d], from (D, S, ..., K).

    Lies between 0 (all draws agree) and log D.
    """
    values = require_samples(samples)
    return without_rounding(entropy(values.mean(0)) - entropy(values).mean(0))


def without_rounding(information: Tensor) -> Tensor:
    """Mutual information with what rounding left of an exact 0, of either sign, made 0 again."""
    return torch.where(information > _ROUNDING, information, 0.0)
