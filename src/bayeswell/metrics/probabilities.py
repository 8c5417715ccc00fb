"""What every metric of class probabilities asks of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from .checks import require_tensor

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


def require_samples(samples: Tensor) -> Tensor:
    """Each draw's probabilities (D, S, ..., K), checked, in float64."""
    values = require_probabilities(samples).double()
    if values.dim() < 3:
        raise DataError(
            f"samples have shape {tuple(values.shape)}; they must be each draw's probabilities (D, S, ..., K)"
        )
    return values


def require_labels(labels: Tensor, shape: torch.Size) -> Tensor:
    """Class labels for probabilities of this shape (S, ..., K): (S, ...), from 0 to K-1, as int64 on the CPU."""
    truth = require_tensor("labels", labels)
    if truth.is_floating_point():
        raise DataError(f"labels are {truth.dtype}; class labels must be integers")
    if truth.shape != shape[:-1]:
        raise DataError(
            f"labels have shape {tuple(truth.shape)}; probabilities of shape {tuple(shape)} ask for {tuple(shape[:-1])}"
        )
    truth = truth.cpu().long()
    classes = shape[-1]
    flat = truth.reshape(-1)
    wrong = (flat < 0) | (flat >= classes)
    if bool(wrong.any()):
        raise DataError(
            f"label {flat[wrong][0].item()} at index {int(wrong.nonzero()[0])}; "
            f"labels must lie in 0 to {classes - 1} ({classes} classes)"
        )
    return truth


def require_labelled(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities (S, ..., K) and their labels (S, ...), both checked and on the CPU."""
    values = require_probabilities(probabilities)
    return values, require_labels(labels, values.shape)
