"""Data sets, networks, runs, comparisons, sweeps, plots and reports. Names are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import Comparison, compare
    from .data import DATASETS, Augmentation, DataSet, corrupt, corrupted_test, load_data
    from .models import MODELS, build_model
    from .report import write_report
    from .runs import evaluate, load_run, predict_file, resume, train, verify
    from .settings import Code, RunSettings
    from .sweep import Sweep, sweep

_NAMES = {
    ".compare": ("Comparison", "compare"),
    ".data": ("DATASETS", "Augmentation", "DataSet", "corrupt", "corrupted_test", "load_data"),
    ".models": ("MODELS", "build_model"),
    ".report": ("write_report",),
    ".runs": ("evaluate", "load_run", "predict_file", "resume", "train", "verify"),
    ".settings": ("Code", "RunSettings"),
    ".sweep": ("Sweep", "sweep"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "DATASETS",
    "MODELS",
    "Augmentation",
    "Code",
    "Comparison",
    "DataSet",
    "RunSettings",
    "Sweep",
    "build_model",
    "compare",
    "corrupt",
    "corrupted_test",
    "evaluate",
    "load_data",
    "load_run",
    "predict_file",
    "resume",
    "sweep",
    "train",
    "verify",
    "write_report",
]


class _Lab(ModuleType):
    """``lab.compare`` and ``lab.sweep`` stay functions when the modules of the same names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_module = name in _HOMES and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if is_module else value)


sys.modules[__name__].__class__ = _Lab


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bayeswell.lab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
