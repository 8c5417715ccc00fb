"""What the data are said to be, given the network's outputs: p(y given f)."""

from __future__ import annotations

from ..registry import Registry
from ..types import ClassLikelihood, LikelihoodPart, RealLikelihood
from .bernoulli import Bernoulli
from .categorical import Categorical
from .gaussian import Gaussian
from .matching import check_targets

LIKELIHOODS: Registry[LikelihoodPart] = Registry("likelihood", Categorical, Bernoulli, Gaussian, requires=("nll",))

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "Gaussian",
    "LikelihoodPart",
    "RealLikelihood",
    "check_targets",
]
