"""Scores and uncertainties of class probabilities (S, ..., K), averaged over draws, and labels (S, ...).

With further axes (positions of an image, several labels) each position counts as an example.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.errors import DataError
from .estimates import Array, MeanScore, as_tensor

NLL_FLOOR = 1e-12
"""Lowest probability in an NLL, so that one impossible example cannot make the mean infinite."""


def as_probabilities(values: Array) -> Tensor:
    """Return probabilities as a float32 or float64 tensor; refuse what is not a distribution over the last axis."""
    found = as_tensor("probabilities", values)
    if found.dim() < 2:
        raise DataError(f"probabilities: shape {tuple(found.shape)}; they must be (S, ..., K)")
    found = found if found.dtype == torch.float64 else found.float()
    sums = found.sum(-1)
    if not bool((found >= 0).all() & ((sums - 1).abs() <= 1e-3).all()):
        got = f"a minimum of {float(found.min()):g} and sums of {float(sums.min()):g} to {float(sums.max()):g}"
        raise DataError(f"probabilities must be at least 0 and sum to 1 (logits need a softmax first), got {got}")
    return found


def as_labels(labels: Array, shape: torch.Size) -> Tensor:
    """Return labels (S, ...) for probabilities of this shape (S, ..., K) as int64."""
    found = as_tensor("labels", labels)
    if found.is_floating_point() or found.shape != shape[:-1]:
        raise DataError(f"labels: {found.dtype} {tuple(found.shape)}; allowed: integers of shape {tuple(shape[:-1])}")
    found = found.long()
    if int(found.min()) < 0 or int(found.max()) >= shape[-1]:
        raise DataError(f"labels: {int(found.min())} to {int(found.max())}; they must lie in 0 to {shape[-1] - 1}")
    return found


def labeled(probabilities: Array, labels: Array) -> tuple[Tensor, Tensor]:
    values = as_probabilities(probabilities)
    return values, as_labels(labels, values.shape)


def as_draws(samples: Array) -> Tensor:
    """Return each draw's probabilities (D, S, ..., K) in float64."""
    values = as_probabilities(samples).double()
    if values.dim() < 3:
        raise DataError(f"samples: shape {tuple(values.shape)}; they must be each draw's probabilities (D, S, ..., K)")
    return values


@MeanScore
def accuracy(probabilities: Array, labels: Array) -> Tensor:
    """Share of examples whose most probable class is right; of tied classes the lowest counts."""
    values, truth = labeled(probabilities, labels)
    return (values.argmax(-1) == truth).double()


@MeanScore
def nll(probabilities: Array, labels: Array) -> Tensor:
    """-log p_y in nats: the log of the averaged probability, floored at 1e-12.

    Never above the mean NLL of single draws (Jensen).
    """
    values, truth = labeled(probabilities, labels)
    return -_of_label(values.double(), truth).clamp_min(NLL_FLOOR).log()


@MeanScore
def brier(probabilities: Array, labels: Array) -> Tensor:
    """sum_k (p_k - 1[k = y])^2, from 0 to 2 (Brier 1950).

    TensorFlow Probability and the k-tied paper print it less 1; scikit-learn halves it for two classes.
    """
    values, truth = labeled(probabilities, labels)
    return (values.double() - F.one_hot(truth, values.shape[-1])).square().sum(-1)


def _of_label(values: Tensor, truth: Tensor) -> Tensor:
    return values.gather(-1, truth[..., None]).squeeze(-1)


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
    """H[mean_d p_d] - mean_d H[p_d], from (D, S, ..., K): between 0 (all draws agree) and log D.

    The predictive (total) uncertainty is the expected entropy (aleatoric) plus this (epistemic): Depeweg et al. 2018.
    """
    values = as_draws(samples)
    information = entropy(values.mean(0)) - entropy(values).mean(0)
    return torch.where(information > 1e-12, information, 0.0)  # less is rounding of draws that agree
