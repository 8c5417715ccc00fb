"""Training: one loop, one call."""

from .data import Batches, as_batches
from .fit import Result, fit, fit_member
from .loop import EpochRecord, History, train
from .rate_range import RateRange, rate_range

__all__ = [
    "Batches",
    "EpochRecord",
    "History",
    "RateRange",
    "Result",
    "as_batches",
    "fit",
    "fit_member",
    "rate_range",
    "train",
]
