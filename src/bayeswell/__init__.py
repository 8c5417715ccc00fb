"""Train any PyTorch network as a Bayesian one, well.

``fit(net, data, method=...)`` does it in one call, ``laplace(net, data)`` for a network that is trained already. In a
custom loop, ``bayesian(net)`` is an ordinary module and ``ELBO`` an ordinary loss. Everything else is in the rooms:
``bayeswell.posteriors``, ``.optim``, ``.metrics``, ``.lab`` and so on.
"""

from typing import Any

from .core.errors import BayeswellError, BayeswellWarning
from .core.random import make_generator
from .core.registry import register
from .estimators import Flipout, LocalReparameterization, ScoreSampling, VariationalLaplace, WeightSampling
from .likelihoods import Bernoulli, Categorical, DistributionLikelihood, Gaussian, NextToken
from .methods import METHODS, Method, find_method
from .nn import BayesianModule, bayesian
from .objectives import ELBO, Sharpness
from .posteriors import Delta, Full, KTied, LowRank, MatrixNormal, MeanField
from .prediction import ClassPrediction, Predictor, RealPrediction, load, predict
from .priors import Kaiming, LaplacePrior, Normal, ScaleMixture, Xavier
from .tables import Preparation
from .testing import check_part
from .training import Callback, Devices, Result, fit, laplace, rate_range, swag
from .version import __version__

__all__ = [
    "ELBO",
    "METHODS",
    "BayesianModule",
    "BayeswellError",
    "BayeswellWarning",
    "Bernoulli",
    "Callback",
    "Categorical",
    "ClassPrediction",
    "Delta",
    "Devices",
    "DistributionLikelihood",
    "Flipout",
    "Full",
    "Gaussian",
    "KTied",
    "Kaiming",
    "LaplacePrior",
    "LocalReparameterization",
    "LowRank",
    "MatrixNormal",
    "MeanField",
    "Method",
    "NextToken",
    "Normal",
    "Predictor",
    "Preparation",
    "RealPrediction",
    "Result",
    "ScaleMixture",
    "ScoreSampling",
    "Sharpness",
    "VariationalLaplace",
    "WeightSampling",
    "Xavier",
    "__version__",
    "bayesian",
    "check_part",
    "compare",
    "find_method",
    "fit",
    "laplace",
    "load",
    "make_generator",
    "predict",
    "rate_range",
    "register",
    "swag",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import the functions of the lab when they are first used: they need the lab extra."""
    if name in ("compare", "sweep"):
        from . import lab

        return getattr(lab, name)
    raise AttributeError(f"module 'bayeswell' has no attribute {name!r}")
