"""Sweeps over settings: many trials, several processes, none lost and none done twice, whatever is killed."""

from __future__ import annotations

from .pool import SweepError
from .results import SweepResult, TrialRecord
from .run import join_sweep, run_sweep, sweep_definition, sweep_result
from .space import Choices, Near, Range, parse_space

__all__ = [
    "Choices",
    "Near",
    "Range",
    "SweepError",
    "SweepResult",
    "TrialRecord",
    "join_sweep",
    "parse_space",
    "run_sweep",
    "sweep_definition",
    "sweep_result",
]
