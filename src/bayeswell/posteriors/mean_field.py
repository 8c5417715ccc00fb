"""Mean-field Gaussian: one mean and one std for every weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import check_choice
from ..core.layout import Layout
from ..core.protocols import ENTROPY, FACTORIZED, LOG_PROB, LOG_STD, WEIGHT_SAMPLE, Posterior, PosteriorPart, Prior
from .factorized import FactorizedPosterior, check_initial_std, initial_stds


class MeanFieldPosterior(FactorizedPosterior):
    """Trainable state: ``mean`` and ``log_std``."""

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor, std: Tensor) -> None:
        super().__init__(part, layout, mean)
        self.log_std = nn.Parameter(std.log())

    def std_or_log_std(self) -> Tensor:
        return self.log_std


class SoftplusPosterior(FactorizedPosterior):
    """Trainable state: ``mean`` and ``rho``."""

    has_log_std = False

    def __init__(self, part: PosteriorPart, layout: Layout, mean: Tensor, std: Tensor) -> None:
        super().__init__(part, layout, mean)
        self.rho = nn.Parameter(softplus_inverse(std))

    def std_or_log_std(self) -> Tensor:
        """std = softplus(rho) = log(1 + exp(rho))."""
        return F.softplus(self.rho)


def softplus_inverse(std: Tensor) -> Tensor:
    """Return rho with softplus(rho) = std; stable for tiny and for large stds."""
    std = std.clamp_min(torch.finfo(std.dtype).tiny)
    return std + torch.log(-torch.expm1(-std))


@dataclass(frozen=True)
class MeanField:
    """Independent Gaussian weights, each with its own mean and std ("BBB", "SGVB", "GMFVI").

    For stds far below 1 the two forms are the same algorithm. The thesis starts at rho = -10, std 4.54e-5.

    Args:
        initial_std: of every weight; None means exp(-3) times its prior std.
        parameter: what the optimizer moves: ``log_std``, or ``rho`` with std = softplus(rho) (Blundell et al.).
    """

    initial_std: float | None = None
    parameter: str = "log_std"

    name: ClassVar[str] = "mean_field"
    paper: ClassVar[str] = "Graves 2011; Blundell et al. 2015"

    def __post_init__(self) -> None:
        check_initial_std(self.name, self.initial_std)
        check_choice(self.name, "parameter", self.parameter, ("log_std", "rho"))

    @property
    def provides(self) -> frozenset[str]:
        common = frozenset({FACTORIZED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY})
        return common | {LOG_STD} if self.parameter == "log_std" else common

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        family = MeanFieldPosterior if self.parameter == "log_std" else SoftplusPosterior
        return family(self, layout, mean, initial_stds(self.initial_std, prior))
