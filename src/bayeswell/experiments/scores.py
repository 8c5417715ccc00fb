"""What came out on test data, each number with its standard error over the test examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..datasets import Data, Scaling
from ..metrics import Estimate, auroc, entropy, estimate_mean
from ..predictive import ClassPrediction, Evaluation, RealPrediction, evaluate
from ..predictive.predictor import Predictor

BATCH = 1000
"""Examples in a pass while predicting: it bounds memory and changes no number."""
ECE_BINS = 15


def score_names(data: Data) -> tuple[str, ...]:
    """What validation measures on such data, and a sweep may be judged by."""
    return ("nll", "rmse") if data.class_names is None else ("accuracy", "brier", "ece", "nll")


def evaluation_of(
    predictor: Predictor, data: Data, *, draws: int, seed: int = 0, prediction: str | None = None
) -> Evaluation:
    """Every score on the test part, as ``Predictor.evaluate`` has them; of real targets in raw units."""
    return evaluate(
        predictor.model, *data.test, predictor.likelihood, draws=draws, batch_size=BATCH, seed=seed,
        prediction=prediction, restore=lambda found: in_raw_units(found, data.scaling),
        nll_shift=nll_shift(data),
    )  # fmt: skip


def nll_shift(data: Data) -> float:
    """By how much the NLL of an example is greater in raw units."""
    scale = data.scaling.target_scale
    return 0.0 if scale is None else float(scale.double().log().sum())


def in_raw_units(prediction: Any, scaling: Scaling) -> Any:
    """A prediction of standardised targets in raw units and float64; one of classes as it is."""
    if not isinstance(prediction, RealPrediction):
        return prediction
    tensors = ("mean", "epistemic_variance", "aleatoric_variance")
    wide = replace(prediction, **{name: getattr(prediction, name).cpu().double() for name in tensors})
    if scaling.target_scale is None or scaling.target_shift is None:
        return wide
    return wide.rescaled(scaling.target_scale.double(), scaling.target_shift.double())


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
