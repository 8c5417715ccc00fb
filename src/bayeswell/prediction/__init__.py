"""Prediction by averages over draws of the posterior, with its uncertainty."""

from __future__ import annotations

from .draws import draws, num_distinct_draws
from .linearized import linearized_outputs
from .mixture import PredictiveMixture
from .outputs import outputs
from .predict import expected_nll, nll_matrix, predict, predictive_nll
from .predictions import ClassPrediction, Interval, Nats, RealPrediction

__all__ = [
    "ClassPrediction",
    "Interval",
    "Nats",
    "PredictiveMixture",
    "RealPrediction",
    "draws",
    "expected_nll",
    "linearized_outputs",
    "nll_matrix",
    "num_distinct_draws",
    "outputs",
    "predict",
    "predictive_nll",
]
