"""Prediction by averaging over draws of the posterior; knows a model only as something to draw from."""

from ..modes import evaluation_mode
from .contracts import Drawable, Linearisable
from .evaluate import expected_nll, nll_of_draws, predict, predictive_nll
from .evaluation import Evaluation, evaluate
from .laws import TargetLaw
from .predictions import ClassPrediction, Interval, Nats, RealPrediction
from .running import draws_outputs

__all__ = [
    "ClassPrediction",
    "Drawable",
    "Evaluation",
    "Interval",
    "Linearisable",
    "Nats",
    "RealPrediction",
    "TargetLaw",
    "draws_outputs",
    "evaluate",
    "evaluation_mode",
    "expected_nll",
    "nll_of_draws",
    "predict",
    "predictive_nll",
]
