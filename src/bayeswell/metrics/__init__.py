"""How good predictions are: pure functions of predictions and targets, never of models."""

from .calibration import CalibrationBins, calibration_bins, classwise_ece, ece, mce
from .classification import (
    accuracy,
    brier,
    expected_nll,
    nll,
    tfp_brier,
)
from .detection import aupr, auroc, fpr_at_recall
from .estimates import Estimate, estimate_mean, estimate_over_seeds, flat_record, over_seeds
from .evidence import negative_elbo
from .fidelity import agreement, mean_error, std_ratio, total_variation
from .records import classification_estimates, ood_estimates, predictive_estimates, regression_estimates
from .regression import (
    calibration_error,
    expected_gaussian_nll,
    gaussian_crps,
    gaussian_nll,
    gaussian_pit,
    interval_coverage,
    mixture_crps,
    mixture_nll,
    mixture_pit,
    r2,
    rmse,
    sample_crps,
)
from .selective import RiskCoverage, aurc, risk_coverage
from .temperature import fit_temperature, fit_temperature_of_logits, scale_by_temperature
from .uncertainty import (
    entropy,
    expected_entropy,
    least_confidence,
    mutual_information,
    predictive_entropy,
)

__all__ = [
    "CalibrationBins",
    "Estimate",
    "RiskCoverage",
    "accuracy",
    "agreement",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "calibration_bins",
    "calibration_error",
    "classification_estimates",
    "classwise_ece",
    "ece",
    "entropy",
    "estimate_mean",
    "estimate_over_seeds",
    "expected_entropy",
    "expected_gaussian_nll",
    "expected_nll",
    "fit_temperature",
    "fit_temperature_of_logits",
    "flat_record",
    "fpr_at_recall",
    "gaussian_crps",
    "gaussian_nll",
    "gaussian_pit",
    "interval_coverage",
    "least_confidence",
    "mce",
    "mean_error",
    "mixture_crps",
    "mixture_nll",
    "mixture_pit",
    "mutual_information",
    "negative_elbo",
    "nll",
    "ood_estimates",
    "over_seeds",
    "predictive_entropy",
    "predictive_estimates",
    "r2",
    "regression_estimates",
    "risk_coverage",
    "rmse",
    "sample_crps",
    "scale_by_temperature",
    "std_ratio",
    "tfp_brier",
    "total_variation",
]
