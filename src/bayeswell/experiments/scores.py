"""What came out on test data, each number with its standard error over the test examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..datasets import Data, Scaling
from ..metrics import Estimate, accuracy, auroc, brier, ece, entropy, estimate_mean, gaussian_nll, nll, rmse
from ..predictive import ClassPrediction, RealPrediction

ECE_BINS = 15


def score_names(data: Data) -> tuple[str, ...]:
    """What ``prediction_scores`` finds on such data."""
    return ("nll", "rmse") if data.class_names is None else ("accuracy", "brier", "ece", "nll")


def prediction_scores(
    prediction: ClassPrediction | RealPrediction, targets: Tensor, scaling: Scaling
) -> dict[str, Estimate]:
    """Accuracy, NLL, ECE and Brier score; of real targets RMSE and NLL in their own units, not standardised ones.

    The NLL of real targets is that of the Gaussian with the mixture's mean and variance. Where standardised
    targets are t = (y - shift) / scale, stds are multiplied by scale and the NLL gains log scale.
    """
    if isinstance(prediction, ClassPrediction):
        probabilities, labels = prediction.probabilities.cpu(), targets.cpu()
        return {
            "accuracy": accuracy(probabilities, labels),
            "nll": nll(probabilities, labels),
            "ece": ece(probabilities, labels, bins=ECE_BINS),
            "brier": brier(probabilities, labels),
        }
    mean, std = raw_mean_and_std(prediction, scaling)
    truth = scaling.raw_targets(targets.cpu().double()).reshape(mean.shape)
    return {
        "rmse": rmse(mean, truth),
        "nll": gaussian_nll(mean, std.square(), truth),
    }


def raw_mean_and_std(prediction: RealPrediction, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """Mean and std of a prediction in the units of the raw targets, in float64."""
    mean = scaling.raw_targets(prediction.mean.cpu().double())
    return mean, raw_std(prediction.variance.cpu().double().sqrt(), scaling)


def raw_std(std: Tensor, scaling: Scaling) -> Tensor:
    """A std of standardised targets in raw units."""
    return std if scaling.target_scale is None else std * scaling.target_scale.double()


def ood_scores(inside: ClassPrediction, outside: ClassPrediction) -> dict[str, Estimate]:
    """How well the entropy of a prediction tells inputs from outside the distribution, and the mean entropies."""
    here, there = (entropy(prediction.probabilities.cpu().double()) for prediction in (inside, outside))
    return {"auroc": auroc(here, there), "entropy": estimate_mean(here), "ood_entropy": estimate_mean(there)}


def as_json(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    """For a result file."""
    return {
        "values": {name: float(score) for name, score in scores.items()},
        "standard_errors_over_examples": {name: score.error for name, score in scores.items()},
    }
