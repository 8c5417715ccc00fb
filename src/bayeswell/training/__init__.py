"""Training: ``fit``, the loop, data, checkpoints, members, checks and results."""

from __future__ import annotations

from .callbacks import Callback, CSVLog, KeepBest, ProgressBar
from .checkpoint import Interrupted, RunFolder, Terminated
from .checks import Check
from .data import Batch, Columns, Data, LoaderData, TensorData, as_data, held_out
from .devices import Devices, Engine
from .elbo import FinalELBO, final_elbo
from .finalize import finalize
from .fit import fit
from .history import EpochRecord, History
from .loop import Run, StepOptions, train, train_step
from .members import Member, Plan, train_members
from .pretrained import PostHoc, laplace, swag
from .rate_range import RateRange, rate_range
from .result import Result

__all__ = [
    "Batch",
    "CSVLog",
    "Callback",
    "Check",
    "Columns",
    "Data",
    "Devices",
    "Engine",
    "EpochRecord",
    "FinalELBO",
    "History",
    "Interrupted",
    "KeepBest",
    "LoaderData",
    "Member",
    "Plan",
    "PostHoc",
    "ProgressBar",
    "RateRange",
    "Result",
    "Run",
    "RunFolder",
    "StepOptions",
    "TensorData",
    "Terminated",
    "as_data",
    "final_elbo",
    "finalize",
    "fit",
    "held_out",
    "laplace",
    "rate_range",
    "swag",
    "train",
    "train_members",
    "train_step",
]
