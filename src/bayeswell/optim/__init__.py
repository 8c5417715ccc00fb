"""Optimizers, their parameter groups, and schedules of learning rates."""

from __future__ import annotations

from ..core.protocols import OptimizerPart
from ..core.registry import Registry
from .adabound import AdaBound, AdaBoundOptimizer, AMSBound, lr_bounds
from .groups import (
    MEANS,
    NOISE,
    OTHER,
    STDS,
    Alternating,
    JointOptimizer,
    build_optimizer,
    gradient_factor,
    hold_inactive,
    parameter_groups,
    set_lrs,
)
from .ivon import IVON, IVONOptimizer
from .learning_rates import LearningRates
from .plateau import Plateau, PlateauState, means_by_nll_stds_by_kl
from .schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Cyclic,
    Linear,
    Power,
    ScheduleFunction,
    StepDecay,
    TorchSchedule,
    WarmUp,
)
from .std_convergence import counted_steps, std_convergence_warning
from .torch_optimizers import SGD, Adam, AdamW, AMSGrad, RAdam, TorchOptimizer, optimizer_part, planned_lr
from .yellowfin import YellowFin, YellowFinOptimizer, momentum_root

OPTIMIZERS: Registry[OptimizerPart] = Registry(
    "optimizer",
    *(SGD, Adam, AMSGrad, AdamW, RAdam, AdaBound, AMSBound, YellowFin, IVON, TorchOptimizer),
    requires=("lr", "build"),
    adapt=optimizer_part,
)
"""Optimizers by name; classes of torch and partials of them are parts too."""

__all__ = [
    "IVON",
    "MEANS",
    "NOISE",
    "OPTIMIZERS",
    "OTHER",
    "SCHEDULES",
    "SGD",
    "STDS",
    "AMSBound",
    "AMSGrad",
    "AdaBound",
    "AdaBoundOptimizer",
    "Adam",
    "AdamW",
    "Alternating",
    "Constant",
    "Cosine",
    "Cyclic",
    "IVONOptimizer",
    "JointOptimizer",
    "LearningRates",
    "Linear",
    "Plateau",
    "PlateauState",
    "Power",
    "RAdam",
    "ScheduleFunction",
    "StepDecay",
    "TorchOptimizer",
    "TorchSchedule",
    "WarmUp",
    "YellowFin",
    "YellowFinOptimizer",
    "build_optimizer",
    "counted_steps",
    "gradient_factor",
    "hold_inactive",
    "lr_bounds",
    "means_by_nll_stds_by_kl",
    "momentum_root",
    "parameter_groups",
    "planned_lr",
    "set_lrs",
    "std_convergence_warning",
]
