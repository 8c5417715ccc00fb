"""The contracts between rooms, and what a part of one's own must have: protocols and plain records.

Shapes: P weights in one flat vector, S examples in a batch, D draws. Losses are in nats per datum.
"""

from .calibration import LOGITS, NOISE, Calibration
from .likelihood import ClassLikelihood, Likelihood, LikelihoodPart, RealLikelihood
from .model import BayesianModel, Estimator, LinearLayer, Objective, PosteriorPart
from .parts import (
    Collector,
    CollectorPart,
    Divergence,
    FitsItself,
    KLWeight,
    ParamGroups,
    PostHocPart,
    PriorPart,
    Rate,
    Stepper,
)
from .posterior import Covariance, Posterior, Prior
from .records import ExpectedNLL, Inputs, Progress, Step, Terms
from .words import (
    BANK,
    ENTROPY,
    FACTORISED,
    LINEARISED,
    LOG_PROB,
    LOG_STD,
    MEAN,
    MIXTURE,
    POINT,
    PREDICTIONS,
    SAMPLED,
    WEIGHT_SAMPLE,
    WITHOUT_CENTRE,
)

__all__ = [
    "BANK",
    "ENTROPY",
    "FACTORISED",
    "LINEARISED",
    "LOGITS",
    "LOG_PROB",
    "LOG_STD",
    "MEAN",
    "MIXTURE",
    "NOISE",
    "POINT",
    "PREDICTIONS",
    "SAMPLED",
    "WEIGHT_SAMPLE",
    "WITHOUT_CENTRE",
    "BayesianModel",
    "Calibration",
    "ClassLikelihood",
    "Collector",
    "CollectorPart",
    "Covariance",
    "Divergence",
    "Estimator",
    "ExpectedNLL",
    "FitsItself",
    "Inputs",
    "KLWeight",
    "Likelihood",
    "LikelihoodPart",
    "LinearLayer",
    "Objective",
    "ParamGroups",
    "PostHocPart",
    "Posterior",
    "PosteriorPart",
    "Prior",
    "PriorPart",
    "Progress",
    "Rate",
    "RealLikelihood",
    "Step",
    "Stepper",
    "Terms",
]
