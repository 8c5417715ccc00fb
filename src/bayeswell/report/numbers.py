"""The scores a page shows: their names, which way is better, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .reading import RunRecord, mapping


@dataclass(frozen=True)
class Score:
    """One column. ``better`` is "high", "low", or empty where neither is."""

    key: str
    heading: str
    better: str
    meaning: str


SCORES = (
    Score("accuracy", "Accuracy", "high", "share of test examples whose most probable class is right"),
    Score("rmse", "RMSE", "low", "root of the mean squared error, in the units of the targets"),
    Score("r2", "R²", "high", "share of the variance of the targets that the means explain"),
    Score("nll", "NLL", "low", "of the prediction averaged over draws, under its own likelihood, in nats"),
    Score("expected_nll", "Expected NLL", "low", "mean NLL of single draws, in nats"),
    Score("crps", "CRPS", "low", "continuous ranked probability score, in the units of the targets"),
    Score("ece", "ECE", "low", "expected calibration error, 15 bins of equal width"),
    Score("ece_20", "ECE, 20 bins", "low", "expected calibration error, 20 bins of equal width"),
    Score("ece_quantile", "ECE, quantiles", "low", "expected calibration error, 15 bins of equally many examples"),
    Score("ece_classwise", "ECE, classwise", "low", "calibration error of each class's probability, averaged"),
    Score("mce", "MCE", "low", "largest calibration gap of a bin"),
    Score("brier", "Brier", "low", "sum of squared errors of the probabilities, 0 to 2"),
    Score("tfp_brier", "Brier - 1", "low", "the Brier score as TensorFlow Probability prints it"),
    Score("aurc", "AURC", "low", "area under the risk-coverage curve"),
    Score("calibration_error", "Calibration error", "low", "mean distance of quantiles from their share of targets"),
    Score("coverage_50", "50 % covered", "", "share of targets in the central 50 % interval"),
    Score("coverage_90", "90 % covered", "", "share of targets in the central 90 % interval"),
    Score("coverage_95", "95 % covered", "", "share of targets in the central 95 % interval"),
    Score("shifted_accuracy", "Shifted accuracy", "high", "on images with noise, blur, fog, low contrast (severity 3)"),
    Score("shifted_nll", "Shifted NLL", "low", "the same images, in nats"),
    Score("shifted_ece", "Shifted ECE", "low", "the same images, mean over the four corruptions"),
    Score("ood_auroc_entropy", "OOD AUROC", "high", "telling inputs from outside by the entropy"),
    Score("ood_aupr_entropy", "OOD AUPR", "high", "the same, as area under precision and recall"),
    Score("ood_fpr95_entropy", "OOD FPR95", "low", "share of outside inputs let in with 95 % of the inside ones"),
    Score("ood_auroc_max_probability", "OOD AUROC, max p", "high", "telling them by 1 - max p"),
    Score("ood_auroc_mutual_information", "OOD AUROC, MI", "high", "telling them by the mutual information"),
    Score("predictive_entropy", "Entropy", "", "mean entropy of the averaged prediction, in nats"),
    Score("mutual_information", "Mutual information", "", "the epistemic part of the entropy, in nats"),
    Score("ood_predictive_entropy", "OOD entropy", "", "mean entropy for inputs from outside, in nats"),
    Score("negative_elbo", "-ELBO", "low", "expected NLL + KL / N of training data, temperature 1, nats per example"),
    Score("std_ratio", "std/prior", "", "mean posterior std over prior std; 0 without uncertainty"),
)  # fmt: skip
HEADLINE = ("accuracy", "rmse", "nll", "crps", "ece", "brier", "calibration_error", "coverage_90",
            "shifted_accuracy", "shifted_nll", "shifted_ece", "ood_auroc_entropy", "std_ratio")  # fmt: skip
_ERROR = "_error"
_OF_RESULT = {"auroc": "ood_auroc_entropy", "entropy": "predictive_entropy", "ood_entropy": "ood_predictive_entropy"}


_NAMES = {
    "accuracy": "accuracy", "calibration_error": "calibration of quantiles",
    "shifted_accuracy": "accuracy on corrupted images", "shifted_nll": "NLL on corrupted images",
    "shifted_ece": "ECE on corrupted images", "ood_auroc_entropy": "AUROC of inputs from outside",
}  # fmt: skip


def name_of(score: Score) -> str:
    """A score in a sentence."""
    return _NAMES.get(score.key, score.heading)


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def number(value: Any) -> float | None:
    """A finite number, or None for anything else that a file may hold."""
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fine else None


def scores_of(run: RunRecord) -> tuple[dict[str, float], dict[str, float]]:
    """Values and standard errors over test examples: of the inspection, else of the result."""
    values: dict[str, float] = {}
    errors: dict[str, float] = {}
    for part in ("test", "ood"):
        record = mapping(run.result.get(part))
        for found, name in ((values, "values"), (errors, "standard_errors_over_examples")):
            found |= {_OF_RESULT.get(key, key): value for key, value in _numbers(record.get(name)).items()}
    inspected = _numbers(run.inspection.get("metrics"))
    for key, value in inspected.items():
        of = key.removesuffix(_ERROR)
        if of != key and of in mapping(run.inspection.get("metrics")):
            errors[of] = value
        else:
            values[key] = value
    ratio = number(run.result.get("std_ratio"))
    if ratio is not None:
        values["std_ratio"] = ratio
    return values, errors


def _numbers(record: Any) -> dict[str, float]:
    """The numbers of a mapping by name."""
    found = {str(key): number(value) for key, value in mapping(record).items()}
    return {key: value for key, value in found.items() if value is not None}


def shown(value: float | None) -> str:
    """Four decimals, or four digits where those say nothing."""
    if value is None:
        return ""
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.3g}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def seconds_of(run: RunRecord) -> float | None:
    """Training time, if it was measured from the beginning."""
    spent: Mapping[str, Any] = mapping(run.result.get("time"))
    return None if spent.get("resumed") else number(spent.get("train_seconds"))
