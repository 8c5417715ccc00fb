"""How good predictions are: pure functions of predictions and targets, never of models."""

from .classification import accuracy, brier, ece, nll
from .fidelity import agreement, mean_error, std_ratio, total_variation
from .regression import gaussian_nll, rmse
from .uncertainty import entropy, expected_entropy, mutual_information, predictive_entropy

__all__ = [
    "accuracy",
    "agreement",
    "brier",
    "ece",
    "entropy",
    "expected_entropy",
    "gaussian_nll",
    "mean_error",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "rmse",
    "std_ratio",
    "total_variation",
]
