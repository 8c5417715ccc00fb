"""Estimators of the expected negative log-likelihood."""

from __future__ import annotations

from ..core.protocols import Estimator
from ..core.registry import Registry
from .flipout import Flipout
from .local_reparameterization import LocalReparameterization
from .score import ScoreSampling
from .variational_laplace import VariationalLaplace
from .weight_sampling import WeightSampling

ESTIMATORS: Registry[Estimator] = Registry(
    "estimator",
    *(WeightSampling, LocalReparameterization, Flipout, VariationalLaplace, ScoreSampling),
    requires=("noise", "nll"),
)
"""Estimators by name."""

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "Flipout",
    "LocalReparameterization",
    "ScoreSampling",
    "VariationalLaplace",
    "WeightSampling",
]
