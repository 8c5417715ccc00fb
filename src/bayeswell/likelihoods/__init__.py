"""Likelihoods p(y | outputs) of the network's outputs."""

from __future__ import annotations

from ..core.protocols import Likelihood
from ..core.registry import Registry
from .bernoulli import Bernoulli
from .categorical import Categorical
from .distribution import DistributionLikelihood, adapt
from .gaussian import Gaussian
from .next_token import NextToken
from .poisson import Poisson

LIKELIHOODS: Registry[Likelihood] = Registry(
    "likelihood",
    *(Categorical, Bernoulli, Gaussian, Poisson, NextToken),
    requires=("nll", "check", "supports"),
    adapt=adapt,
)
"""Likelihoods by name."""

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "DistributionLikelihood",
    "Gaussian",
    "NextToken",
    "Poisson",
]
