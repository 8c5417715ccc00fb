"""How uncertain class probabilities are, in nats, and which part of it more data could remove.

H[mean_d p_d] = mean_d H[p_d] + mutual information: predictive = aleatoric + epistemic (Depeweg et al. 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from .probabilities import require_probabilities


def entropy(probabilities: Tensor) -> Tensor:
    """(..., K) -> (...): -sum_k p_k log p_k of each example, with 0 log 0 = 0."""
    result: Tensor = torch.special.entr(probabilities).sum(-1)
    return result


def predictive_entropy(probabilities: Tensor) -> float:
    """The mean over examples of H[p], from the averaged probabilities (S, ..., K)."""
    return float(entropy(require_probabilities(probabilities).double()).mean())


def expected_entropy(samples: Tensor) -> float:
    """The mean over draws and examples of H[p_d], from each draw's probabilities (D, S, ..., K)."""
    return float(entropy(_require_draws(samples)).mean())


def mutual_information(samples: Tensor) -> float:
    """The mean over examples of H[mean_d p_d] - mean_d H[p_d], from (D, S, ..., K).

    Lies between 0 (all draws agree) and log D.
    """
    values = _require_draws(samples)
    difference = entropy(values.mean(0)) - entropy(values).mean(0)
    return float(difference.clamp_min(0).mean())


def _require_draws(samples: Tensor) -> Tensor:
    values = require_probabilities(samples).double()
    if values.dim() < 3:
        raise DataError(
            f"samples have shape {tuple(values.shape)}; they must be each draw's probabilities (D, S, ..., K)"
        )
    return values
