"""The one number beside the loss that people look at while a network trains, and what validation measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..finite import looks_at_once
from ..likelihoods import ClassLikelihood, RealLikelihood, counted, for_outputs, labels_of, most_likely
from ..metrics import accuracy, brier, ece, gaussian_nll, nll, rmse
from ..predictive import ClassPrediction, RealPrediction
from ..predictive.evaluate import Scored, expected_nll, predict_and_score
from ..predictive.linearised import choose_prediction
from ..types import MEAN, SAMPLED, Inputs
from .verdicts.elbo import bound_per_datum, divergence_of, has_bound


class Score:
    """A running score: (outputs, targets, weights or None) -> its (weighted) sum over a batch; ``name`` says of what.

    A sum is a number of the device, which nobody waits for here.

    "accuracy" for classes: an example of several labels counts the share of hits among them. "rmse" for real numbers:
    an example of several counts their mean squared error. None for a likelihood that does not predict, and for one that
    has to see outputs first, until it has. Of a batch with ignored labels it is the share of hits among all others,
    times the (weighted) examples.
    """

    def __init__(self, likelihood: Any) -> None:
        self.likelihood = likelihood
        self.name: str | None = None
        self._of: Callable[[Any, Tensor, Tensor, Tensor | None], float | Tensor] = self._decide
        self._choose(likelihood)

    def __call__(self, outputs: Any, targets: Tensor, weights: Tensor | None) -> float | Tensor:
        """The sum over the examples of a batch."""
        return self._of(self.likelihood, outputs, targets, weights) if isinstance(outputs, Tensor) else 0.0

    def _choose(self, likelihood: Any) -> None:
        """Once: asking a likelihood what it is costs more than the score of a batch."""
        if isinstance(likelihood, ClassLikelihood):
            self.name, self._of, self.likelihood = "accuracy", _hits, likelihood
        elif isinstance(likelihood, RealLikelihood):
            self.name, self._of, self.likelihood = "rmse", _squares, likelihood
        elif not hasattr(likelihood, "for_outputs"):
            self._of = _nothing

    def _decide(self, likelihood: Any, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> float | Tensor:
        with torch.no_grad():
            self._choose(for_outputs(likelihood, outputs.detach()))
        return 0.0 if self.name is None else self._of(self.likelihood, outputs, targets, weights)


_SMALL = 1 << 16


def is_small(outputs: Any) -> bool:
    """Whether the memory behind the outputs (of which they may be a part) is little enough to be kept for a while."""
    return isinstance(outputs, Tensor) and outputs.untyped_storage().nbytes() <= _SMALL


def _hits(likelihood: ClassLikelihood, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> float | Tensor:
    """Few operations where each example counts once: this runs in every step, and each waits for a cold cache."""
    guesses, labels = most_likely(likelihood, outputs.detach()), labels_of(likelihood, targets)
    hits = guesses == labels if guesses.shape == labels.shape else guesses.reshape(-1) == labels.reshape(-1)
    places = counted(likelihood, targets)
    if places is None and weights is None and looks_at_once(hits.device):
        return int(hits.sum()) / hits.numel() * len(targets)
    hits = hits.reshape(-1)
    if places is None:
        return _sum(hits.double(), targets, weights)
    each = torch.ones(len(targets), device=hits.device) if weights is None else weights
    share = (each.double().view(-1, 1) * places.reshape(len(targets), -1)).view(-1)
    return (share * hits).sum() / share.sum().clamp_min(1e-300) * each.double().sum()


@torch.no_grad()
def _squares(likelihood: RealLikelihood, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    mean = likelihood.mean_and_variance(outputs.detach())[0]
    errors = mean.reshape(-1).double() - targets.reshape(-1)
    return _sum(errors.square(), targets, weights)


def _nothing(likelihood: Any, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    return 0.0


def _sum(values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Of the examples' means."""
    if weights is None:
        return values.mean() * len(targets)
    return (weights * values.view(len(targets), -1).mean(1)).sum()


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


def validation_on(inputs: Inputs, targets: Tensor, *, draws: int, batch_size: int = 1000) -> HeldOutScores:
    """Measure the model of the moment (for averages and samplers: the point they are at) on held-out data.

    Labels that the likelihood ignores are left out. "nll" is that of the prediction averaged over draws, under the
    likelihood itself (``predictive_nll``), as ``evaluate`` has it.
    """
    return HeldOutScores(inputs, targets, draws, batch_size)


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """(model, likelihood) -> scores by name. An object and no closure, so that another process can have it."""

    inputs: Inputs
    targets: Tensor
    draws: int
    batch_size: int

    def __call__(self, model: Any, likelihood: Any) -> dict[str, float]:
        """Accuracy, NLL, ECE and Brier score of classes, RMSE and NLL of real numbers."""
        return self._scores(self._scored(model, likelihood), likelihood)

    def with_bound(self, model: Any, likelihood: Any, dataset_size: int, temperature: float) -> dict[str, float]:
        """The same and, of posteriors with a density, ``expected_nll``, ``minus_elbo`` and ``minus_elbo_tempered``.

        From the same draws; ``bound_per_datum`` says what they are. ``dataset_size`` is that of the training data.
        """
        scored = self._scored(model, likelihood)
        scores = self._scores(scored, likelihood)
        if not has_bound(model):
            return scores
        expected = float(scored.expected_losses.double().mean())
        if choose_prediction(model, None) == MEAN:  # of which there are no draws
            settings: dict[str, Any] = {"draws": self.draws, "batch_size": self.batch_size, "seed": 0}
            expected = expected_nll(model, self.inputs, self.targets, likelihood, prediction=SAMPLED, **settings)
        return scores | bound_per_datum(expected, divergence_of(model)[0], dataset_size, temperature)

    def _scored(self, model: Any, likelihood: Any) -> Scored:
        return predict_and_score(
            model, self.inputs, self.targets, likelihood, draws=self.draws, batch_size=self.batch_size
        )

    def _scores(self, scored: Scored, likelihood: Any) -> dict[str, float]:
        # Plain floats: a file of them is read again.
        return {name: float(value) for name, value in self._estimates(scored, likelihood).items()}

    def _estimates(self, scored: Scored, likelihood: Any) -> dict[str, float]:
        found, targets = scored.prediction, self.targets
        places = counted(likelihood, targets)
        if isinstance(found, ClassPrediction):
            if places is None:
                return measure(found, targets)
            labels = labels_of(likelihood, targets)[places]
            return _of_classes(found.probabilities[places.to(found.probabilities.device)], labels)
        proper = {"nll": float(scored.losses.mean())}
        return proper if found is None else {"rmse": rmse(found.mean, targets.reshape(found.mean.shape)), **proper}
