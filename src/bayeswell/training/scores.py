"""The one number beside the loss that people look at while a network trains, and what validation measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import ClassLikelihood, Gaussian, RealLikelihood, counted, for_outputs
from ..metrics import accuracy, brier, ece, gaussian_nll, nll, rmse
from ..predictive import ClassPrediction, RealPrediction, predict, predictive_nll
from ..types import Inputs

Validation = Callable[[Any, Any], dict[str, float]]
"""(model, likelihood) -> numbers by name."""


class Score:
    """A running score: (outputs, targets) -> its sum over a batch; ``name`` says of what.

    "accuracy" for classes: hits, as a share of the labels that count (those that are not ignored), times the examples
    of the batch. "rmse" for real numbers: squared errors. None for a likelihood that does not predict, and for one that
    has to see outputs first, until it has.
    """

    def __init__(self, likelihood: Any) -> None:
        self.likelihood = likelihood
        self.name: str | None = None
        self._of: Callable[[Any, Tensor, Tensor], float] = self._decide
        self._choose(likelihood)

    def __call__(self, outputs: Any, targets: Tensor) -> float:
        """The sum over the examples of a batch."""
        return self._of(self.likelihood, outputs, targets) if isinstance(outputs, Tensor) else 0.0

    def _choose(self, likelihood: Any) -> None:
        """Once: asking a likelihood what it is costs more than the score of a batch."""
        if isinstance(likelihood, ClassLikelihood):
            self.name, self._of, self.likelihood = "accuracy", _hits, likelihood
        elif isinstance(likelihood, RealLikelihood):
            self.name, self._of, self.likelihood = "rmse", _squares, likelihood
        elif not hasattr(likelihood, "for_outputs"):
            self._of = _nothing

    def _decide(self, likelihood: Any, outputs: Tensor, targets: Tensor) -> float:
        with torch.no_grad():
            self._choose(for_outputs(likelihood, outputs.detach()))
        return 0.0 if self.name is None else self._of(self.likelihood, outputs, targets)


@torch.no_grad()
def _hits(likelihood: ClassLikelihood, outputs: Tensor, targets: Tensor) -> float:
    guesses = likelihood.class_probabilities(outputs.detach()).argmax(-1)
    hits = guesses.reshape(-1) == targets.reshape(-1)
    places = counted(likelihood, targets)
    if places is not None:
        hits = hits[places.reshape(-1)]
    return float(hits.double().mean()) * len(targets) if hits.numel() else 0.0


@torch.no_grad()
def _squares(likelihood: RealLikelihood, outputs: Tensor, targets: Tensor) -> float:
    mean = likelihood.mean_and_variance(outputs.detach())[0]
    errors = mean.reshape(-1).double() - targets.reshape(-1)
    return float(errors.square().mean()) * len(targets)


def _nothing(likelihood: Any, outputs: Tensor, targets: Tensor) -> float:
    return 0.0


def measure(prediction: ClassPrediction | RealPrediction, targets: Tensor) -> dict[str, float]:
    """The usual numbers of a prediction; of real numbers the NLL is that of a Gaussian with its mean and variance."""
    if isinstance(prediction, ClassPrediction):
        return _of_classes(prediction.probabilities, targets)
    shaped = targets.reshape(prediction.mean.shape)
    return {
        "rmse": rmse(prediction.mean, shaped),
        "nll": gaussian_nll(prediction.mean, prediction.std.square(), shaped),
    }


def _of_classes(p: Tensor, labels: Tensor) -> dict[str, float]:
    return {"accuracy": accuracy(p, labels), "nll": nll(p, labels), "ece": ece(p, labels), "brier": brier(p, labels)}


def validation_on(inputs: Inputs, targets: Tensor, *, draws: int, batch_size: int = 1000) -> Validation:
    """Measure the model of the moment (for averages and samplers: the point they are at) on held-out data.

    Labels that the likelihood ignores are left out. For real numbers that are not Gaussian, and for a likelihood that
    does not predict, "nll" is that of the averaged likelihood, ``predictive_nll``.
    """

    def validate(model: Any, likelihood: Any) -> dict[str, float]:
        settings: dict[str, Any] = {"draws": draws, "batch_size": batch_size, "seed": 0}
        known = isinstance(likelihood, ClassLikelihood | RealLikelihood) or hasattr(likelihood, "for_outputs")
        found = predict(model, inputs, likelihood, **settings) if known else None
        places = counted(likelihood, targets)
        if isinstance(found, ClassPrediction):
            if places is None:
                return measure(found, targets)
            return _of_classes(found.probabilities[places.to(found.probabilities.device)], targets[places])
        if found is not None and isinstance(likelihood, Gaussian):
            return measure(found, targets)
        proper = {"nll": float(predictive_nll(model, inputs, targets, likelihood, **settings).mean())}
        return proper if found is None else {"rmse": rmse(found.mean, targets.reshape(found.mean.shape)), **proper}

    return validate
