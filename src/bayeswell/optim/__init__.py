"""Optimizers, their parameter groups, and schedules of learning rates."""

from __future__ import annotations

from ..core.protocols import OptimizerPart
from ..core.registry import Registry
from .adabound import AdaBound, AMSBound
from .groups import (
    Alternating,
    LearningRates,
    build_optimizer,
    gradient_factor,
    hold_inactive,
    parameter_groups,
)
from .ivon import IVON
from .schedules import SCHEDULES, Constant, Cosine, Cyclic, Linear, Plateau, Power, StepDecay, TorchSchedule, WarmUp
from .torch_optimizers import SGD, Adam, AdamW, AMSGrad, RAdam, TorchOptimizer, optimizer_part
from .yellowfin import YellowFin

OPTIMIZERS: Registry[OptimizerPart] = Registry(
    "optimizer",
    *(SGD, Adam, AMSGrad, AdamW, RAdam, AdaBound, AMSBound, YellowFin, IVON, TorchOptimizer),
    requires=("lr", "build"),
    adapt=optimizer_part,
)
"""Optimizers by name; classes of torch and partials of them are parts too."""

__all__ = [
    "IVON",
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "AMSBound",
    "AMSGrad",
    "AdaBound",
    "Adam",
    "AdamW",
    "Alternating",
    "Constant",
    "Cosine",
    "Cyclic",
    "LearningRates",
    "Linear",
    "Plateau",
    "Power",
    "RAdam",
    "StepDecay",
    "TorchOptimizer",
    "TorchSchedule",
    "WarmUp",
    "YellowFin",
    "build_optimizer",
    "gradient_factor",
    "hold_inactive",
    "parameter_groups",
]
