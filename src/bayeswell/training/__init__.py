"""Training: one loop, one call, and runs that survive."""

from .data import Batches, WorkerBatches, as_batches, batch_count, usual_batch_size
from .early_stopping import KeepBest
from .engine import Devices
from .fit import fit
from .loggers import CSVLogger
from .loop import train
from .member_runs import fit_member
from .progress import ProgressBar
from .rate_range import RateRange, rate_range
from .records import EpochRecord, History
from .result import Result
from .run import Callback, Run
from .run_folder import RunFolder
from .scores import measure
from .signals import Interrupted

__all__ = [
    "Batches",
    "CSVLogger",
    "Callback",
    "Devices",
    "EpochRecord",
    "History",
    "Interrupted",
    "KeepBest",
    "ProgressBar",
    "RateRange",
    "Result",
    "Run",
    "RunFolder",
    "WorkerBatches",
    "as_batches",
    "batch_count",
    "fit",
    "fit_member",
    "measure",
    "rate_range",
    "train",
    "usual_batch_size",
]
