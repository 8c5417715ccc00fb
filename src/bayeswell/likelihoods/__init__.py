"""What the data are said to be, given the network's outputs: p(y given f)."""

from __future__ import annotations

from ..registry import Registry
from ..types import ClassLikelihood, Likelihood, LikelihoodPart, RealLikelihood
from .bernoulli import Bernoulli
from .categorical import Categorical
from .from_distribution import DistributionLikelihood, adapt
from .gaussian import Gaussian
from .negative_binomial import NegativeBinomial
from .next_token import NextToken
from .optional import can_be_widened, check_targets, counted, for_outputs, labels_of, most_likely, weighted_as
from .poisson import Poisson
from .student_t import StudentT

LIKELIHOODS: Registry[LikelihoodPart] = Registry(
    "likelihood", Categorical, Bernoulli, Gaussian, StudentT, Poisson, NegativeBinomial, NextToken,
    requires=("nll",), adapt=adapt,
)  # fmt: skip
"""Likelihoods by name: p(y given f)."""

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "DistributionLikelihood",
    "Gaussian",
    "Likelihood",
    "LikelihoodPart",
    "NegativeBinomial",
    "NextToken",
    "Poisson",
    "RealLikelihood",
    "StudentT",
    "can_be_widened",
    "check_targets",
    "counted",
    "for_outputs",
    "labels_of",
    "most_likely",
    "weighted_as",
]
