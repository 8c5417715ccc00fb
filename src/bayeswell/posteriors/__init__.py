"""The shape of q(w)."""

from ..registry import Registry
from ..types import PosteriorPart
from .delta import Delta, DeltaPosterior
from .empirical import Empirical, EmpiricalPosterior
from .full import Full, FullPosterior, cholesky_parameters
from .k_tied import KTied
from .low_rank import LowRank, LowRankPosterior
from .matrix_normal import MatrixNormal, MatrixNormalPosterior
from .mean_field import MeanField, MeanFieldPosterior
from .mixture import Mixture, MixturePosterior
from .shared_std import SharedStd, SharedStdPosterior

POSTERIORS: Registry[PosteriorPart] = Registry(
    "posterior",
    *(Delta, MeanField, SharedStd, KTied, LowRank, MatrixNormal, Full, Empirical, Mixture),
    requires=("build", "provides"),
    protocol=PosteriorPart,
)
"""Families of posteriors by name: q(w)."""

__all__ = [
    "POSTERIORS",
    "Delta",
    "DeltaPosterior",
    "Empirical",
    "EmpiricalPosterior",
    "Full",
    "FullPosterior",
    "KTied",
    "LowRank",
    "LowRankPosterior",
    "MatrixNormal",
    "MatrixNormalPosterior",
    "MeanField",
    "MeanFieldPosterior",
    "Mixture",
    "MixturePosterior",
    "SharedStd",
    "SharedStdPosterior",
    "cholesky_parameters",
]
