"""What is made of the path of training: averages, Gaussians fitted to it, or a bank of draws.

A collector of one's own is one file: settings whose ``build`` returns a ``SnapshotCollector`` of ``plan``'s timetable,
the statistics it keeps (``Mean``, ``Moments``, its own ``Statistic``), and a ``gain`` if snapshots do not count alike.
"""

from ..registry import Registry
from ..types import CollectorPart
from .bank import Bank
from .cycle_ends import CycleEnds
from .ema import EMA
from .hwa import HWA, literal_variance
from .running import Mean, Moments, Snapshot, Statistic
from .snapshots import SnapshotCollector
from .swa import SWA
from .swag import SWAG
from .swag_diag import SWAGDiagonal
from .timetable import plan

AVERAGING: Registry[CollectorPart] = Registry(
    "collector", SWA, EMA, SWAGDiagonal, SWAG, HWA, Bank, CycleEnds, requires=("build",), protocol=CollectorPart
)
"""Collectors by name: what watches the path of training and ends it with a posterior."""

__all__ = [
    "AVERAGING",
    "EMA",
    "HWA",
    "SWA",
    "SWAG",
    "Bank",
    "CycleEnds",
    "Mean",
    "Moments",
    "SWAGDiagonal",
    "Snapshot",
    "SnapshotCollector",
    "Statistic",
    "literal_variance",
    "plan",
]
