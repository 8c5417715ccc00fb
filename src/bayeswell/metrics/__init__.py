"""How good predictions are: pure functions of predictions and targets, never of models."""

from .classification import accuracy, brier, ece, nll
from .regression import gaussian_nll, rmse
from .uncertainty import entropy, expected_entropy, mutual_information, predictive_entropy

__all__ = [
    "accuracy",
    "brier",
    "ece",
    "entropy",
    "expected_entropy",
    "gaussian_nll",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "rmse",
]
