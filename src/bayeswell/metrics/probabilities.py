"""What every metric of class probabilities asks of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError

_TOLERANCE = 1e-3
"""How far a sum may lie from 1: wide enough for 1000 classes in float32, too narrow for logits."""


def require_probabilities(probabilities: Tensor) -> Tensor:
    """The probabilities on the CPU, in float32 or wider; anything that is not a distribution is refused."""
    if not isinstance(probabilities, Tensor):
        raise DataError(f"probabilities are a {type(probabilities).__name__}; they must be a tensor")
    if probabilities.dim() < 2 or probabilities.numel() == 0:
        raise DataError(
            f"probabilities have shape {tuple(probabilities.shape)}; they must be (S, ..., K) with at least one example"
        )
    values = probabilities.detach().cpu()
    if values.dtype != torch.float64:
        values = values.float()
    totals = values.sum(-1)
    # Written so that NaN fails it too.
    if not bool((values >= 0).all() & ((totals - 1).abs() <= _TOLERANCE).all()):
        raise DataError(
            "probabilities must be at least 0 and sum to 1 over the last axis; "
            f"the smallest is {float(values.min()):g}, the sums go from {float(totals.min()):g} to "
            f"{float(totals.max()):g} (logits need a softmax first)"
        )
    return values
