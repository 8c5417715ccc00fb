"""bayeswell: train any PyTorch network as a Bayesian one, well.

``bayesian(net)`` lifts any network, ``ELBO`` is the objective, ``predict`` averages over posterior draws.
"""

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
from .lifting import BayesianModule, Description, Saved, bayesian, load, save
from .likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from .objectives import ELBO
from .posteriors import POSTERIORS, Delta, Full, KTied, LowRank, MatrixNormal, MeanField
from .predictive import ClassPrediction, RealPrediction, predict
from .priors import PRIORS, Kaiming, Laplace, Normal, ScaleMixture, Xavier
from .random import make_generator
from .schedules import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from .types import Progress, Terms

__version__ = "0.1.0.dev0"

__all__ = [
    "DIVERGENCES",
    "ELBO",
    "ESTIMATORS",
    "KL_WEIGHTS",
    "LIKELIHOODS",
    "POSTERIORS",
    "PRIORS",
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
    "MonteCarlo",
    "NetworkError",
    "Normal",
    "PathDerivative",
    "Progress",
    "RealPrediction",
    "Saved",
    "ScaleMixture",
    "ScoreFunction",
    "SettingError",
    "Terms",
    "Uniform",
    "VariationalLaplace",
    "WeightSampling",
    "Xavier",
    "__version__",
    "bayesian",
    "load",
    "make_generator",
    "predict",
    "save",
]
