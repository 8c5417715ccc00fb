"""How the expected log-likelihood is got."""

from ..registry import Registry
from ..types import Estimator
from .flipout import Flipout
from .local_reparameterization import LocalReparameterization
from .score_function import ScoreSampling
from .variational_laplace import VariationalLaplace
from .weight_sampling import WeightSampling

ESTIMATORS: Registry[Estimator] = Registry(
    "estimator",
    *(WeightSampling, LocalReparameterization, Flipout, VariationalLaplace, ScoreSampling),
    requires=("expected_nll",),
    protocol=Estimator,
)
"""Estimators by name: how the expected negative log-likelihood is got."""

__all__ = [
    "ESTIMATORS",
    "Flipout",
    "LocalReparameterization",
    "ScoreSampling",
    "VariationalLaplace",
    "WeightSampling",
]
