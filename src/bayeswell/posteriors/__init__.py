"""Families of posteriors q(w) over the flat weight vector, and functions over them."""

from __future__ import annotations

from ..core.protocols import PosteriorPart
from ..core.registry import Registry
from .delta import Delta, DeltaPosterior
from .editing import can_set_std, num_columns, num_variational_params, scale_std, set_covariance, set_std
from .empirical import Empirical, EmpiricalPart, WithExtras
from .factorized import FactorizedPosterior
from .full import Full, FullPosterior, cholesky_params
from .k_tied import KTied, KTiedPosterior
from .low_rank import LowRank, LowRankPosterior, gaussian_posterior
from .matrix_normal import MatrixNormal, MatrixNormalPosterior
from .mean_field import MeanField, MeanFieldPosterior, SoftplusPosterior
from .mixture import Mixture, MixturePart
from .shared_std import SharedStd, SharedStdPosterior

POSTERIORS: Registry[PosteriorPart] = Registry(
    "posterior",
    *(Delta, MeanField, SharedStd, KTied, LowRank, MatrixNormal, Full, EmpiricalPart, MixturePart),
    requires=("build", "provides"),
)
"""Families of posteriors by name."""

__all__ = [
    "POSTERIORS",
    "Delta",
    "DeltaPosterior",
    "Empirical",
    "EmpiricalPart",
    "FactorizedPosterior",
    "Full",
    "FullPosterior",
    "KTied",
    "KTiedPosterior",
    "LowRank",
    "LowRankPosterior",
    "MatrixNormal",
    "MatrixNormalPosterior",
    "MeanField",
    "MeanFieldPosterior",
    "Mixture",
    "MixturePart",
    "SharedStd",
    "SharedStdPosterior",
    "SoftplusPosterior",
    "WithExtras",
    "can_set_std",
    "cholesky_params",
    "gaussian_posterior",
    "num_columns",
    "num_variational_params",
    "scale_std",
    "set_covariance",
    "set_std",
]
