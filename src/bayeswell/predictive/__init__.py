"""Prediction by averaging over draws of the posterior; knows a model only as something to draw from."""

from ..modes import evaluation_mode
from .contracts import Drawable, Linearisable
from .evaluate import expected_nll, nll_of_draws, predict, predictive_nll
from .predictions import ClassPrediction, RealPrediction

__all__ = [
    "ClassPrediction",
    "Drawable",
    "Linearisable",
    "RealPrediction",
    "evaluation_mode",
    "expected_nll",
    "nll_of_draws",
    "predict",
    "predictive_nll",
]
