"""The evidence lower bound, its divergences and KL weights, and sharpness-aware training."""

from __future__ import annotations

from .divergences import DIVERGENCES, Analytic, MonteCarlo, PathDerivative, ScoreFunction
from .elbo import ELBO, check_parts, scaled_prior
from .kl_weights import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from .sharpness import SharpELBO, Sharpness

__all__ = [
    "DIVERGENCES",
    "ELBO",
    "KL_WEIGHTS",
    "Analytic",
    "Geometric",
    "LinearAnneal",
    "MonteCarlo",
    "PathDerivative",
    "ScoreFunction",
    "SharpELBO",
    "Sharpness",
    "Uniform",
    "check_parts",
    "scaled_prior",
]
