"""p(w): priors over the weights of a network."""

from __future__ import annotations

from .build import PRIORS, PriorChoice, build_prior, describe_prior
from .gaussian import GaussianPrior, Kaiming, Normal, Xavier
from .independent import DistributionPrior, LaplacePrior, ScaleMixture
from .posterior import PosteriorPrior

__all__ = [
    "PRIORS",
    "DistributionPrior",
    "GaussianPrior",
    "Kaiming",
    "LaplacePrior",
    "Normal",
    "PosteriorPrior",
    "PriorChoice",
    "ScaleMixture",
    "Xavier",
    "build_prior",
    "describe_prior",
]
