"""What moves the numbers: optimizers, their parameter groups, and how learning rates change."""

from ..registry import Registry
from ..types import Rate, Stepper
from .adabound import AdaBound, AdaBoundOptimizer, AMSBound, rate_bounds
from .from_torch import TorchOptimizer, optimizer_part
from .groups import MEANS, NOISE, STDS, Alternating, hold_inactive, parameter_groups, set_rates
from .ivon import IVON, IVONOptimizer
from .plateau import Plateau, PlateauState, means_by_nll_stds_by_kl
from .rate_functions import RateFunction, TorchScheduler
from .rates import RATES, Constant, Cosine, Cyclic, Linear, Power, StepDecay, WarmUp
from .robust_region import (
    RobustRegion,
    least_robust_momentum,
    momentum_operator_radius,
    outside_robust_region,
    robust_region,
)
from .standard import SGD, Adam, AdamW, AMSGrad, RAdam
from .std_convergence import counted_steps, reachable_log_std, std_convergence_warning, stds_out_of_reach
from .together import OptimizersTogether
from .yellowfin import YellowFin, YellowFinOptimizer, momentum_root

OPTIMIZERS: Registry[Stepper] = Registry(
    "optimizer",
    *(SGD, Adam, AMSGrad, AdamW, RAdam, AdaBound, AMSBound, YellowFin, IVON, TorchOptimizer),
    requires=("lr", "build"),
    protocol=Stepper,
    adapt=optimizer_part,
)
"""Optimizers by name; any class of ``torch.optim`` is taken too."""

__all__ = [
    "IVON",
    "MEANS",
    "NOISE",
    "OPTIMIZERS",
    "RATES",
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
    "Linear",
    "OptimizersTogether",
    "Plateau",
    "PlateauState",
    "Power",
    "RAdam",
    "Rate",
    "RateFunction",
    "RobustRegion",
    "StepDecay",
    "TorchOptimizer",
    "TorchScheduler",
    "WarmUp",
    "YellowFin",
    "YellowFinOptimizer",
    "counted_steps",
    "hold_inactive",
    "least_robust_momentum",
    "means_by_nll_stds_by_kl",
    "momentum_operator_radius",
    "momentum_root",
    "outside_robust_region",
    "parameter_groups",
    "rate_bounds",
    "reachable_log_std",
    "robust_region",
    "set_rates",
    "std_convergence_warning",
    "stds_out_of_reach",
]
