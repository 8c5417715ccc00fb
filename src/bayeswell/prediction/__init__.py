"""Prediction by averages over draws of the posterior, with its uncertainty."""

from __future__ import annotations

from .calibration import Calibration, HeldOut, find_calibration, with_scaled_std
from .draws import draws, num_distinct_draws
from .evaluate import Evaluation, evaluate
from .mixture import PredictiveMixture
from .outputs import outputs
from .predict import expected_nll, nll_matrix, predict, predictive_nll
from .predictions import ClassPrediction, Interval, RealPrediction
from .predictor import Predictor, load

__all__ = [
    "Calibration",
    "ClassPrediction",
    "Evaluation",
    "HeldOut",
    "Interval",
    "PredictiveMixture",
    "Predictor",
    "RealPrediction",
    "draws",
    "evaluate",
    "expected_nll",
    "find_calibration",
    "load",
    "nll_matrix",
    "num_distinct_draws",
    "outputs",
    "predict",
    "predictive_nll",
    "with_scaled_std",
]
