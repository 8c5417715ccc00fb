"""The one number beside the loss that people look at while a network trains, and what validation measures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import ClassLikelihood, RealLikelihood
from ..metrics import accuracy, brier, ece, gaussian_nll, nll, rmse
from ..predictive import ClassPrediction, RealPrediction, predict
from ..types import Inputs

Validation = Callable[[Any, Any], dict[str, float]]
"""(model, likelihood) -> numbers by name."""


def score_name(likelihood: Any) -> str | None:
    """ "accuracy" for classes, "rmse" for real numbers."""
    return (
        "accuracy"
        if isinstance(likelihood, ClassLikelihood)
        else "rmse"
        if isinstance(likelihood, RealLikelihood)
        else None
    )


def scorer(likelihood: Any) -> Callable[[Any, Tensor, Tensor | None], float]:
    """(outputs, targets, weights or None) -> the (weighted) sum over a batch of hits or of squared errors.

    An example of several labels counts the share of hits among them, one of several numbers their mean squared error.
    Chosen once: asking a likelihood what it is costs more than the score of a batch.
    """
    if isinstance(likelihood, ClassLikelihood):
        return partial(_hits, likelihood)
    return partial(_squares, likelihood) if isinstance(likelihood, RealLikelihood) else _nothing


@torch.no_grad()
def _hits(likelihood: ClassLikelihood, outputs: Any, targets: Tensor, weights: Tensor | None) -> float:
    if not isinstance(outputs, Tensor):
        return 0.0
    guesses = likelihood.class_probabilities(outputs.detach()).argmax(-1)
    hits = guesses.reshape(-1) == targets.reshape(-1)
    return _sum(hits.double(), targets, weights)


@torch.no_grad()
def _squares(likelihood: RealLikelihood, outputs: Any, targets: Tensor, weights: Tensor | None) -> float:
    if not isinstance(outputs, Tensor):
        return 0.0
    mean = likelihood.mean_and_variance(outputs.detach())[0]
    errors = mean.reshape(-1).double() - targets.reshape(-1)
    return _sum(errors.square(), targets, weights)


def _nothing(outputs: Any, targets: Tensor, weights: Tensor | None) -> float:
    return 0.0


def _sum(values: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Of the examples' means."""
    if weights is None:
        return float(values.mean()) * len(targets)
    return float((weights * values.view(len(targets), -1).mean(1)).sum())


def measure(prediction: ClassPrediction | RealPrediction, targets: Tensor) -> dict[str, float]:
    """The usual numbers of a prediction."""
    if isinstance(prediction, ClassPrediction):
        p = prediction.probabilities
        return {
            "accuracy": accuracy(p, targets),
            "nll": nll(p, targets),
            "ece": ece(p, targets),
            "brier": brier(p, targets),
        }
    shaped = targets.reshape(prediction.mean.shape)
    return {
        "rmse": rmse(prediction.mean, shaped),
        "nll": gaussian_nll(prediction.mean, prediction.std.square(), shaped),
    }


def validation_on(inputs: Inputs, targets: Tensor, *, draws: int, batch_size: int = 1000) -> Validation:
    """Measure the model of the moment (for averages and samplers: the point they are at) on held-out data."""

    def validate(model: Any, likelihood: Any) -> dict[str, float]:
        return measure(predict(model, inputs, likelihood, draws=draws, batch_size=batch_size, seed=0), targets)

    return validate
