"""Optimizers, their parameter groups, and schedules of learning rates."""

from ..core.protocols import OptimizerPart
from ..core.registry import Registry
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
    scale_gradients,
    set_lrs,
)
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

OPTIMIZERS: Registry[OptimizerPart] = Registry(
    "optimizer",
    *(SGD, Adam, AMSGrad, AdamW, RAdam, TorchOptimizer),
    requires=("lr", "build"),
    adapt=optimizer_part,
)
"""Optimizers by name; classes of torch and partials of them are parts too."""
