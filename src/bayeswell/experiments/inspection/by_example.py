"""How each test example moves each score: with it, two runs on the same examples are compared in pairs.

The mean over examples of such a number is the score itself (accuracy, NLL), or has the score's first-order variation
(ECE, RMSE, AUROC: the influence of the delta method, as in ``metrics``). The difference of two runs then has the
standard error std(a - b) / sqrt(n), which is far below that of either where the same examples are hard for both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...datasets import Data, load_inputs
from ...metrics import accuracy, brier, calibration_bins, ece, nll
from ...metrics.estimates import from_influence
from ...metrics.regression import CALIBRATION_LEVELS
from ...predictive import ClassPrediction
from ...predictive.predictor import Predictor
from ..scores import BATCH, ECE_BINS

MOST = 10_000
"""Of more test examples nothing is kept one by one: the file would be too large to read for a page."""
CORRUPTED = ("impulse_noise", "gaussian_blur", "fog", "contrast")
"""One of each family of Hendrycks & Dietterich 2019, at the middle severity."""
_SEVERITY = 3
_IMAGES = 500


def class_influences(probabilities: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Of accuracy, NLL, Brier score and ECE, each (n,) in float64."""
    return {
        "accuracy": accuracy.of_examples(probabilities, labels).double(),
        "nll": nll.of_examples(probabilities, labels).double(),
        "brier": brier.of_examples(probabilities, labels).double(),
        "ece": _ece_influence(probabilities, labels),
    }


def _ece_influence(probabilities: Tensor, labels: Tensor) -> Tensor:
    """sign(gap of the example's bin) (hit - confidence): its mean is the ECE, the bins held fixed."""
    bins = calibration_bins(probabilities, labels, bins=ECE_BINS)
    confidence, guess = probabilities.max(-1)
    excess = (guess == labels).double() - confidence.double()
    # Bins without examples are left out of ``bins``: a bin is known by its lower edge.
    place = (confidence * ECE_BINS).long().clamp(max=ECE_BINS - 1)
    sign = torch.zeros(ECE_BINS, dtype=torch.float64)
    sign[(bins.low * ECE_BINS).round().long()] = bins.gap.sign()
    return sign[place] * excess


def detection_influences(inside: Tensor, outside: Tensor) -> dict[str, Tensor]:
    """Of the AUROC (DeLong): of each input its mean rank in the other side; both means are the AUROC."""
    here, there = inside.double().sort().values, outside.double().sort().values

    def share_below(reference: Tensor, values: Tensor) -> Tensor:
        below, up_to = (torch.searchsorted(reference, values.double(), right=right) for right in (False, True))
        return (below + up_to).double() / (2 * len(reference))

    return {
        "ood_auroc_entropy": 1 - share_below(there, inside),
        "ood_auroc_entropy.outside": share_below(here, outside),
    }


def real_influences(by_example: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of RMSE, NLL and CRPS, from what an ``Evaluation`` has of each example."""
    squares = by_example["squared_error"]
    root = math.sqrt(float(squares.mean())) or 1.0
    return {
        # sqrt(m) moves with m by 1 / (2 sqrt(m)); half the root more, for the mean to be the RMSE.
        "rmse": squares / (2 * root) + root / 2,
        **{name: by_example[name] for name in ("nll", "crps") if name in by_example},
    }


def quantile_influences(pit: Tensor) -> dict[str, Tensor]:
    """Of the calibration error of quantiles and of the 90 % intervals' coverage, from P(Y <= y) of each target.

    Mean over levels q of sign(share below - q) (1[pit <= q] - q), the signs held fixed: its mean is the error.
    """
    values = pit.double().reshape(len(pit), -1)
    influence = torch.zeros(len(values), dtype=torch.float64)
    for level in CALIBRATION_LEVELS:
        excess = ((values <= level).double() - level).mean(1)
        influence += excess.mean().sign() * excess / len(CALIBRATION_LEVELS)
    return {"calibration_error": influence, "coverage_90": ((values - 0.5).abs() <= 0.45).double().mean(1)}


def shifted_records(predictor: Predictor, data: Data, draws: int) -> dict[str, Any]:
    """Accuracy, NLL and ECE on corrupted test images (the first 500), mean over four corruptions of severity 3."""
    labels = data.test[1][:_IMAGES].cpu()
    totals: dict[str, Tensor] = {}
    scores = {"accuracy": 0.0, "nll": 0.0, "brier": 0.0, "ece": 0.0}
    for corruption in CORRUPTED:
        choice = {"name": "corrupted", "corruption": corruption, "severity": _SEVERITY}
        found = predictor.predict(load_inputs(choice, data)[:_IMAGES], draws=draws, batch_size=BATCH)
        assert isinstance(found, ClassPrediction)
        probabilities = found.probabilities.cpu()
        for name, score in (("accuracy", accuracy), ("nll", nll), ("brier", brier)):
            scores[name] += float(score(probabilities, labels)) / len(CORRUPTED)
        scores["ece"] += float(ece(probabilities, labels, bins=ECE_BINS)) / len(CORRUPTED)
        for name, influence in class_influences(probabilities, labels).items():
            totals[name] = totals.get(name, torch.zeros(())) + influence / len(CORRUPTED)
    estimates = {name: from_influence(scores[name], totals[name]) for name in scores}
    return {
        "metrics": {
            key: value for name in scores for key, value in estimates[name].as_record(f"shifted_{name}").items()
        },
        "by_example": kept({f"shifted_{name}": influence for name, influence in totals.items()}),
    }


def kept(influences: dict[str, Tensor]) -> dict[str, list[float]]:
    """As plain numbers, unless there are too many."""
    return {name: values.tolist() for name, values in influences.items() if len(values) <= MOST}
