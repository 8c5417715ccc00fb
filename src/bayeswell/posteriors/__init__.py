"""The shape of q(w)."""

from ..registry import Registry
from ..types import PosteriorPart
from .delta import Delta
from .full import Full
from .k_tied import KTied
from .low_rank import LowRank
from .matrix_normal import MatrixNormal
from .mean_field import MeanField

POSTERIORS: Registry[PosteriorPart] = Registry("posterior", Delta, MeanField, KTied, LowRank, MatrixNormal, Full)

__all__ = ["POSTERIORS", "Delta", "Full", "KTied", "LowRank", "MatrixNormal", "MeanField"]
