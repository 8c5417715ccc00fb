"""Optimizers whose steps draw from the posterior."""

from __future__ import annotations

from ..core.protocols import OptimizerPart
from ..core.registry import Registry
from .adaptation import AutoTunedSampler
from .cyclical_sgld import CyclicalSGLD
from .psgld import PSGLD
from .sampler import Sampler
from .sghmc import SGHMC
from .sgld import SGLD

SAMPLERS: Registry[OptimizerPart] = Registry("sampler", SGLD, SGHMC, PSGLD, CyclicalSGLD, requires=("lr", "build"))

__all__ = ["PSGLD", "SAMPLERS", "SGHMC", "SGLD", "AutoTunedSampler", "CyclicalSGLD", "Sampler"]
