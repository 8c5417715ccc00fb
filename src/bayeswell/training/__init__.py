"""Training: ``fit``, the loop, data, checkpoints, members, checks and results."""

from __future__ import annotations

from .callbacks import CSVLog, KeepBest, ProgressBar
from .checkpoint import Interrupted, RunFolder, Terminated
from .checks import Check
from .devices import Devices
from .elbo import FinalELBO
from .finalize import finalize
from .fit import fit
from .history import EpochRecord, History
from .loop import Callback, Run, StepOptions, train, train_step
from .pretrained import PostHoc, laplace, swag
from .rate_range import RateRange, rate_range
from .result import Result

__all__ = [
    "CSVLog",
    "Callback",
    "Check",
    "Devices",
    "EpochRecord",
    "FinalELBO",
    "History",
    "Interrupted",
    "KeepBest",
    "PostHoc",
    "ProgressBar",
    "RateRange",
    "Result",
    "Run",
    "RunFolder",
    "StepOptions",
    "Terminated",
    "finalize",
    "fit",
    "laplace",
    "rate_range",
    "swag",
    "train",
    "train_step",
]
