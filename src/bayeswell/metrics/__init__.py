"""Scores of predictions with standard errors: functions of predictions and targets, never of models."""

from __future__ import annotations

from .calibration import calibration_bins, ece
from .chains import chain_report, ess, r_hat
from .classification import (
    accuracy,
    brier,
    entropy,
    expected_entropy,
    least_confidence,
    mutual_information,
    nll,
    predictive_entropy,
)
from .estimates import Estimate, estimate_mean, flat_record
from .ranking import aupr, aurc, auroc, risk_coverage
from .regression import calibration_error, interval_coverage, interval_width, mae, r2, rmse, sample_crps
from .scores import SCORES, Score, find_score, measure, measure_examples
from .statistics import PairedDifference, best_methods, mean_over_seeds, paired_difference

__all__ = [
    "SCORES",
    "Estimate",
    "PairedDifference",
    "Score",
    "accuracy",
    "aupr",
    "aurc",
    "auroc",
    "best_methods",
    "brier",
    "calibration_bins",
    "calibration_error",
    "chain_report",
    "ece",
    "entropy",
    "ess",
    "estimate_mean",
    "expected_entropy",
    "find_score",
    "flat_record",
    "interval_coverage",
    "interval_width",
    "least_confidence",
    "mae",
    "mean_over_seeds",
    "measure",
    "measure_examples",
    "mutual_information",
    "nll",
    "paired_difference",
    "predictive_entropy",
    "r2",
    "r_hat",
    "risk_coverage",
    "rmse",
    "sample_crps",
]
