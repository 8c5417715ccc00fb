from . import datasets, diagnostics, metrics, plots, training
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
from .gradients import Sharpness
from .lifting import BayesianModule, Description, Saved, bayesian, save
from .likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from .methods import METHODS, Method, find_method, method_names, register
from .models import MODELS, build_model, default_model
from .objectives import ELBO
from .optimizers import OPTIMIZERS, RATES, TorchOptimizer, TorchScheduler
from .post_hoc import POST_HOC
from .posteriors import POSTERIORS, Delta, Full, KTied, LowRank, MatrixNormal, MeanField
from .predictive import ClassPrediction, RealPrediction, predict
from .predictive.predictor import Predictor, load
from .priors import PRIORS, DistributionPrior, Kaiming, LaplacePrior, Normal, ScaleMixture, Xavier
from .random import make_generator
from .samplers import SAMPLERS
from .schedules import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from .training import (
    Callback,
    Devices,
    EpochRecord,
    Interrupted,
    KeepBest,
    RateRange,
    Result,
    Run,
    RunFolder,
    fit,
    fit_member,
    rate_range,
)
from .types import Progress, Terms
from .version import __version__

__all__ = [
    "AVERAGING",
    "DIVERGENCES",
    "ELBO",
    "ESTIMATORS",
    "KL_WEIGHTS",
    "LIKELIHOODS",
    "METHODS",
    "MODELS",
    "OPTIMIZERS",
    "POSTERIORS",
    "POST_HOC",
    "PRIORS",
    "RATES",
    "SAMPLERS",
    "Analytic",
    "BayesianModule",
    "BayeswellError",
    "BayeswellWarning",
    "Bernoulli",
    "Callback",
    "Categorical",
    "ClassPrediction",
    "CompositionError",
    "DataError",
    "Delta",
    "Description",
    "Devices",
    "DistributionPrior",
    "DivergenceError",
    "EpochRecord",
    "FileError",
    "Flipout",
    "Full",
    "Gaussian",
    "Geometric",
    "Interrupted",
    "KTied",
    "Kaiming",
    "KeepBest",
    "LaplacePrior",
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
    "Predictor",
    "Progress",
    "RateRange",
    "RealPrediction",
    "Result",
    "Run",
    "RunFolder",
    "Saved",
    "ScaleMixture",
    "ScoreFunction",
    "SettingError",
    "Sharpness",
    "Terms",
    "TorchOptimizer",
    "TorchScheduler",
    "Uniform",
    "VariationalLaplace",
    "WeightSampling",
    "Xavier",
    "__version__",
    "bayesian",
    "build_model",
    "datasets",
    "default_model",
    "diagnostics",
    "find_method",
    "fit",
    "fit_member",
    "load",
    "make_generator",
    "method_names",
    "metrics",
    "plots",
    "predict",
    "rate_range",
    "register",
    "save",
    "training",
]
