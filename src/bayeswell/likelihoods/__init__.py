"""What the data are said to be, given the network's outputs: p(y given f)."""

from __future__ import annotations

from ..registry import Registry
from .bernoulli import Bernoulli
from .categorical import Categorical
from .contracts import ClassLikelihood, LikelihoodPart, RealLikelihood
from .gaussian import Gaussian

LIKELIHOODS: Registry[LikelihoodPart] = Registry("likelihood", Categorical, Bernoulli, Gaussian)

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "Gaussian",
    "LikelihoodPart",
    "RealLikelihood",
]
