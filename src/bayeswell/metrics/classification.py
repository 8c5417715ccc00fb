"""Scores of class probabilities (S, ..., K), already averaged over draws, against labels (S, ...).

With further axes (places of an image, labels that hold at once) each place counts as an example; the number of each,
(S, ...), is given by ``accuracy.of_examples`` and so on.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .estimates import Estimate, MeanScore
from .probabilities import require_labelled, require_labels, require_samples

NLL_FLOOR = 1e-12
"""A probability of exactly 0 counts as this, so that one impossible example cannot make the mean infinite."""

DRAW_FLOOR = torch.finfo(torch.float32).tiny
"""The same for single draws, 1.2e-38: so far below ``NLL_FLOOR`` that Jensen's inequality survives both floors."""


@MeanScore
def accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The share of examples whose most probable class is right; of tied classes the lowest is taken."""
    values, truth = require_labelled(probabilities, labels)
    return (values.argmax(-1) == truth).double()


@MeanScore
def nll(probabilities: Tensor, labels: Tensor) -> Tensor:
    """-mean log p_y in nats: the log of the averaged probability, floored at 1e-12.

    Never above the mean NLL of the single draws, ``expected_nll`` (Jensen).
    """
    values, truth = require_labelled(probabilities, labels)
    return _of_label(values.double(), truth).clamp_min(NLL_FLOOR).log().neg()


@MeanScore
def expected_nll(samples: Tensor, labels: Tensor) -> Tensor:
    """-mean_d mean log p_dy in nats, from each draw's probabilities (D, S, ..., K): the likelihood term of the ELBO.

    Probabilities below 1.2e-38 count as that: probabilities in float32 end there. ``predictive.expected_nll`` works
    from the network's outputs and has no floor.
    """
    values = require_samples(samples)
    truth = require_labels(labels, values.shape[1:])
    return _of_label(values, truth.expand(values.shape[:-1])).clamp_min(DRAW_FLOOR).log().neg().mean(0)


@MeanScore
def brier(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The mean of sum_k (p_k - 1[k = y])^2, from 0 to 2 (Brier 1950).

    TensorFlow Probability leaves out the constant (``tfp_brier``); scikit-learn halves it for two classes.
    """
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
