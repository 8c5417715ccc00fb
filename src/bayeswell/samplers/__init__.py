"""Optimizers whose steps draw from the posterior."""

from ..registry import Registry
from ..types import Stepper
from .cyclical_sgld import CyclicalSGLD
from .psgld import PSGLD
from .sghmc import SGHMC
from .sgld import SGLD
from .stepping import Sampler

SAMPLERS: Registry[Stepper] = Registry(
    "sampler",
    *(SGLD, SGHMC, PSGLD, CyclicalSGLD),
    requires=("lr", "build"),
    protocol=Stepper,
)
"""Samplers by name: optimizers whose steps are a Markov chain."""

__all__ = ["PSGLD", "SAMPLERS", "SGHMC", "SGLD", "CyclicalSGLD", "Sampler"]
