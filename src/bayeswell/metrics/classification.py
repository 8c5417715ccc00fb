"""Scores of class probabilities (S, ..., K), already averaged over draws, against labels (S, ...).

With further axes (places of an image, labels that hold at once) each place counts as an example.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import DataError, require_count
from .probabilities import require_probabilities

NLL_FLOOR = 1e-12
"""A probability of exactly 0 counts as this, so that one impossible example cannot make the mean infinite."""


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """The share of examples whose most probable class is right; of tied classes the lowest is taken."""
    rows, truth = _flatten(probabilities, labels)
    return float((rows.argmax(-1) == truth).double().mean())


def nll(probabilities: Tensor, labels: Tensor) -> float:
    """-mean log p_y in nats: the log of the averaged probability, floored at 1e-12.

    Never above the mean NLL of the single draws (Jensen).
    """
    rows, truth = _flatten(probabilities, labels)
    chosen = rows.double().gather(-1, truth[:, None]).squeeze(-1)
    return float(-chosen.clamp_min(NLL_FLOOR).log().mean())


def ece(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """Expected calibration error: sum_b (n_b / n) |accuracy_b - confidence_b|, confidence = max_k p_k.

    Guo et al. 2017. Bins of equal width on [0, 1], closed on the left, with 1.0 in the last one, as in
    TensorFlow Probability; the bin is floor(confidence * bins). Others use quantile bins or bins closed on
    the right: such numbers are not comparable.
    """
    require_count("ece", "bins", bins)
    rows, truth = _flatten(probabilities, labels)
    confidence, guess = rows.max(-1)
    # In the dtype given: 0.7 in float32 times 10 is 7, but 6.9999999 after a cast to float64.
    index = (confidence * bins).long().clamp(max=bins - 1)
    excess = (guess == truth).double() - confidence.double()
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, excess)
    return float(gaps.abs().sum() / len(rows))


def brier(probabilities: Tensor, labels: Tensor) -> float:
    """The mean of sum_k (p_k - 1[k = y])^2, from 0 to 2 (Brier 1950).

    TensorFlow Probability leaves out the constant and reports this minus 1; scikit-learn halves it for two
    classes.
    """
    rows, truth = _flatten(probabilities, labels)
    return float((rows.double() - F.one_hot(truth, rows.shape[-1])).square().sum(-1).mean())


def _flatten(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, K) probabilities and (n,) labels, checked, on the CPU (float64 is not to be had everywhere)."""
    rows = require_probabilities(probabilities).reshape(-1, probabilities.shape[-1])
    if labels.is_floating_point() or labels.is_complex():
        raise DataError(f"labels are {labels.dtype}; class labels must be integers")
    if labels.shape != probabilities.shape[:-1]:
        raise DataError(
            f"labels have shape {tuple(labels.shape)}; probabilities of shape {tuple(probabilities.shape)} "
            f"ask for {tuple(probabilities.shape[:-1])}"
        )
    truth = labels.detach().cpu().long().reshape(-1)
    classes = rows.shape[-1]
    wrong = (truth < 0) | (truth >= classes)
    if bool(wrong.any()):
        raise DataError(
            f"label {truth[wrong][0].item()} at index {int(wrong.nonzero()[0])}; "
            f"labels must lie in 0 to {classes - 1} ({classes} classes)"
        )
    return rows, truth
