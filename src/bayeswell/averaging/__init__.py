"""Posteriors made of the path of training: averages, Gaussians fitted to it, or a bank of networks."""

from __future__ import annotations

from ..core.protocols import AveragerPart
from ..core.registry import Registry
from .bank import Bank, CycleEnds
from .hwa import HWA, literal_variance
from .swa import EMA, SWA
from .swag import SWAG, SWAGDiagonal

AVERAGERS: Registry[AveragerPart] = Registry(
    "averaging", SWA, EMA, SWAGDiagonal, SWAG, HWA, Bank, CycleEnds, requires=("build",)
)
"""Averagers by name."""

__all__ = [
    "AVERAGERS",
    "EMA",
    "HWA",
    "SWA",
    "SWAG",
    "Bank",
    "CycleEnds",
    "SWAGDiagonal",
    "literal_variance",
]
