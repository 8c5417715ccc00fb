"""Scores of predictions with standard errors: functions of predictions and targets, never of models."""

from __future__ import annotations

from .calibration import CalibrationBins, calibration_bins, ece
from .chains import ChainReport, chain_report, ess, r_hat
from .classification import accuracy, agreement, brier, expected_nll, nll, tfp_brier, total_variation
from .detection import aupr, auroc
from .estimates import Estimate, estimate_mean, flat_record, from_influence
from .regression import (
    calibration_error,
    gaussian_crps,
    gaussian_nll,
    gaussian_pit,
    interval_coverage,
    interval_width,
    mae,
    r2,
    rmse,
    sample_crps,
)
from .scores import SCORES, Score, classification_scores, find_score, measure, measure_examples
from .selective import RiskCoverage, aurc, risk_coverage
from .statistics import PairedDifference, best_methods, mean_over_seeds, paired_difference, records_over_seeds
from .temperature import fit_temperature, scale_by_temperature
from .uncertainty import entropy, expected_entropy, least_confidence, mutual_information, predictive_entropy

__all__ = [
    "SCORES",
    "CalibrationBins",
    "ChainReport",
    "Estimate",
    "PairedDifference",
    "RiskCoverage",
    "Score",
    "accuracy",
    "agreement",
    "aupr",
    "aurc",
    "auroc",
    "best_methods",
    "brier",
    "calibration_bins",
    "calibration_error",
    "chain_report",
    "classification_scores",
    "ece",
    "entropy",
    "ess",
    "estimate_mean",
    "expected_entropy",
    "expected_nll",
    "find_score",
    "fit_temperature",
    "flat_record",
    "from_influence",
    "gaussian_crps",
    "gaussian_nll",
    "gaussian_pit",
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
    "records_over_seeds",
    "risk_coverage",
    "rmse",
    "sample_crps",
    "scale_by_temperature",
    "tfp_brier",
    "total_variation",
]
