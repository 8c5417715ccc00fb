"""Methods: typed settings, the table of names, and the state of a training run that is built from them."""

from __future__ import annotations

from .budget import within_budget
from .build import build
from .method import (
    METHODS,
    Method,
    find_method,
    find_optimizer,
    method_from_settings,
    method_names,
    method_settings,
    register_method,
    with_tuples,
)
from .state import TrainState
from .temperature import AutoTemperature

__all__ = [
    "METHODS",
    "AutoTemperature",
    "Method",
    "TrainState",
    "build",
    "find_method",
    "find_optimizer",
    "method_from_settings",
    "method_names",
    "method_settings",
    "register_method",
    "with_tuples",
    "within_budget",
]
