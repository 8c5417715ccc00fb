"""Scores of real-valued predictions (S,) or (S, C) against targets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import DataError


def rmse(predictions: Tensor, targets: Tensor) -> float:
    """sqrt(mean (y - prediction)^2), over examples and outputs."""
    values, truth = _match("predictions", predictions, targets)
    return math.sqrt(float((truth - values).square().mean()))


def gaussian_nll(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    """-log N(y; mean, variance) in nats per example, with its normaliser, summed over the outputs.

    With the mean and variance of a posterior predictive this scores the Gaussian of the same two moments,
    not the mixture itself.
    """
    centre, truth = _match("mean", mean, targets)
    spread, _ = _match("variance", variance, targets)
    if not bool((spread > 0).all()):
        raise DataError(f"the smallest variance is {float(spread.min()):g}; it must be above 0")
    losses = 0.5 * ((truth - centre).square() / spread + spread.log() + math.log(2 * math.pi))
    return float(losses.sum() / len(losses))


def _match(what: str, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both as float64 on the CPU with one shape; never broadcast (S,) against (S, 1) to (S, S)."""
    values, truth = (tensor.detach().cpu().double() for tensor in (predictions, targets))
    given, wanted = tuple(values.shape), tuple(truth.shape)
    if given != wanted and (*given, 1) != wanted and given != (*wanted, 1):
        raise DataError(f"{what}: shape {given}; the targets have shape {wanted}")
    if values.numel() == 0:
        raise DataError(f"{what}: shape {given} holds no examples")
    for name, tensor in ((what, values), ("targets", truth)):
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{name}: NaN or infinity; every number must be finite")
    return values.reshape(wanted), truth
