"""What is made of the path of training: averages, Gaussians fitted to it, or a bank of draws."""

from ..registry import Registry
from ..types import CollectorPart
from .bank import Bank
from .hwa import HWA, literal_variance
from .swa import SWA
from .swag import SWAG
from .swag_diag import SWAGDiagonal

AVERAGING: Registry[CollectorPart] = Registry(
    "collector", SWA, SWAGDiagonal, SWAG, HWA, Bank, requires=("build",), protocol=CollectorPart
)

__all__ = ["AVERAGING", "HWA", "SWA", "SWAG", "Bank", "SWAGDiagonal", "literal_variance"]
