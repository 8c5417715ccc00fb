"""bayeswell: train any PyTorch network as a Bayesian one, well."""

from .divergences import DIVERGENCES
from .errors import (
    BayeswellError,
    BayeswellWarning,
    CompositionError,
    DataError,
    FileError,
    NetworkError,
    SettingError,
)
from .estimators import ESTIMATORS, Flipout, LocalReparameterization, VariationalLaplace, WeightSampling
from .lifting import BayesianModule, Description, bayesian
from .likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from .objectives import ELBO
from .posteriors import POSTERIORS, Delta, Full, KTied, LowRank, MatrixNormal, MeanField
from .priors import PRIORS, Kaiming, Laplace, Normal, ScaleMixture, Xavier
from .random import make_generator
from .schedules import KL_WEIGHTS, Geometric, LinearAnneal, Uniform
from .types import Progress, Terms

__version__ = "0.1.0.dev0"
