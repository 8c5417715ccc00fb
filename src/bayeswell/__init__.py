"""bayeswell: train any PyTorch network as a Bayesian one, well.

``fit(net, data, method=...)`` does it in one call. In a loop of your own: ``bayesian(net)`` lifts any network, ``ELBO``
is the objective, ``predict`` averages over posterior draws.
"""

from .averaging import AVERAGING
from .divergences import DIVERGENCES, Analytic, MonteCarlo, PathDerivative, ScoreFunction
from .errors import (
    BayeswellError,
    BayeswellWarning,
    CompositionError,
    DataError,
    DivergenceError,
    FileError,
    NetworkError,
    SettingError,
)
from .estimators import ESTIMATORS, Flipout, LocalReparameterization, VariationalLaplace, WeightSampling
from .finishing import FINISHERS
from .gradients import Sharpness
from .lifting import BayesianModule, Description, Saved, bayesian, load, save
from .likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from .methods import METHODS, Method, find_method, method_names
from .objectives import ELBO
from .optimizers import OPTIMIZERS, RATES
from .posteriors import POSTERIORS, Delta, Full, KTied, LowRank, MatrixNormal, MeanField
from .predictive import ClassPrediction, RealPrediction, predict
from .priors import PRIORS, Kaiming, Laplace, Normal, ScaleMixture, Xavier
from .random import make_generator
from .samplers import SAMPLERS
from .schedules import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from .training import RateRange, Result, fit, fit_member, rate_range
from .types import Progress, Terms

__version__ = "0.1.0.dev0"

__all__ = [
    "AVERAGING",
    "DIVERGENCES",
    "ELBO",
    "ESTIMATORS",
    "FINISHERS",
    "KL_WEIGHTS",
    "LIKELIHOODS",
    "METHODS",
    "OPTIMIZERS",
    "POSTERIORS",
    "PRIORS",
    "RATES",
    "SAMPLERS",
    "Analytic",
    "BayesianModule",
    "BayeswellError",
    "BayeswellWarning",
    "Bernoulli",
    "Categorical",
    "ClassPrediction",
    "CompositionError",
    "DataError",
    "Delta",
    "Description",
    "DivergenceError",
    "FileError",
    "Flipout",
    "Full",
    "Gaussian",
    "Geometric",
    "KTied",
    "Kaiming",
    "Laplace",
    "LinearAnneal",
    "LocalReparameterization",
    "LowRank",
    "MatrixNormal",
    "MeanField",
    "Method",
    "MonteCarlo",
    "NetworkError",
    "Normal",
    "PathDerivative",
    "Progress",
    "RateRange",
    "RealPrediction",
    "Result",
    "Saved",
    "ScaleMixture",
    "ScoreFunction",
    "SettingError",
    "Sharpness",
    "Terms",
    "Uniform",
    "VariationalLaplace",
    "WeightSampling",
    "Xavier",
    "__version__",
    "bayesian",
    "find_method",
    "fit",
    "fit_member",
    "load",
    "make_generator",
    "method_names",
    "predict",
    "rate_range",
    "save",
]
