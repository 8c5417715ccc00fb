"""Scores of class probabilities (S, ..., K), already averaged over draws, against labels (S, ...).

With further axes (places of an image, labels that hold at once) each place counts as an example. The functions
``..._of_examples`` keep one number for each (S, ...); the others are their means, with standard errors.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .estimates import Estimate, mean_of
from .probabilities import require_labelled, require_labels, require_samples

NLL_FLOOR = 1e-12
"""A probability of exactly 0 counts as this, so that one impossible example cannot make the mean infinite."""

DRAW_FLOOR = torch.finfo(torch.float32).tiny
"""The same for single draws, 1.2e-38: so far below ``NLL_FLOOR`` that Jensen's inequality survives both floors."""


def accuracy(probabilities: Tensor, labels: Tensor) -> Estimate:
    """The share of examples whose most probable class is right; of tied classes the lowest is taken."""
    return mean_of(hits_of_examples(probabilities, labels))


def hits_of_examples(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(S, ...): 1 where the most probable class is right (the lowest, if tied), else 0."""
    values, truth = require_labelled(probabilities, labels)
    return (values.argmax(-1) == truth).double()


def nll(probabilities: Tensor, labels: Tensor) -> Estimate:
    """-mean log p_y in nats: the log of the averaged probability, floored at 1e-12.

    Never above the mean NLL of the single draws, ``expected_nll`` (Jensen).
    """
    return mean_of(nll_of_examples(probabilities, labels))


def nll_of_examples(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(S, ...): -log p_y in nats, p_y floored at 1e-12."""
    values, truth = require_labelled(probabilities, labels)
    return _of_label(values.double(), truth).clamp_min(NLL_FLOOR).log().neg()


def expected_nll(samples: Tensor, labels: Tensor) -> Estimate:
    """-mean_d mean log p_dy in nats, from each draw's probabilities (D, S, ..., K): the likelihood term of the ELBO.

    Probabilities below 1.2e-38 count as that: probabilities in float32 end there. ``predictive.expected_nll`` works
    from the network's outputs and has no floor.
    """
    return mean_of(expected_nll_of_examples(samples, labels))


def expected_nll_of_examples(samples: Tensor, labels: Tensor) -> Tensor:
    """(S, ...): -mean_d log p_dy in nats, p_dy floored at 1.2e-38."""
    values = require_samples(samples)
    truth = require_labels(labels, values.shape[1:])
    return _of_label(values, truth.expand(values.shape[:-1])).clamp_min(DRAW_FLOOR).log().neg().mean(0)


def brier(probabilities: Tensor, labels: Tensor) -> Estimate:
    """The mean of sum_k (p_k - 1[k = y])^2, from 0 to 2 (Brier 1950).

    TensorFlow Probability leaves out the constant (``tfp_brier``); scikit-learn halves it for two classes.
    """
    return mean_of(brier_of_examples(probabilities, labels))


def brier_of_examples(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(S, ...): sum_k (p_k - 1[k = y])^2."""
    values, truth = require_labelled(probabilities, labels)
    return (values.double() - F.one_hot(truth, values.shape[-1])).square().sum(-1)


def tfp_brier(probabilities: Tensor, labels: Tensor) -> Estimate:
    """The mean of sum_k p_k^2 - 2 p_y, from -1 to 1: TensorFlow Probability's, which is ``brier`` - 1.

    Table 3 of the k-tied paper (Swiatkowski et al. 2020) prints this one: its -0.761 is a Brier score of 0.239.
    """
    loss = brier(probabilities, labels)
    return Estimate(loss - 1, loss.error)


def _of_label(values: Tensor, truth: Tensor) -> Tensor:
    return values.gather(-1, truth[..., None]).squeeze(-1)
