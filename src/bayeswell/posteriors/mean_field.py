"""Mean-field Gaussian: one mean and one std for every weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import SettingError, nearest
from ..tree import Layout, Site
from ..types import ENTROPY, FACTORISED, LOG_PROB, LOG_STD, WEIGHT_SAMPLE, Posterior, Prior
from .factorised import FactorisedPosterior
from .start import check_initial_std, initial_std_vector
from .std_forms import FROM_LOG_STD, FROM_RHO, softplus_inverse


class MeanFieldPosterior(FactorisedPosterior):
    """Trainable state: ``mean`` and ``log_std``."""

    std_form = FROM_LOG_STD
    can_set_stds = True
    can_scale_stds = True

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor) -> None:
        super().__init__(layout, means)
        self.log_std = nn.Parameter(stds.log())

    @torch.no_grad()
    def set_stds(self, std: Tensor) -> None:
        """log_std = log(std)."""
        self.log_std.copy_(std.log())

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """log_std + log(factor)."""
        self.log_std.add_(math.log(factor))

    def std_state(self) -> Tensor:
        """std = exp(log_std)."""
        return self.log_std

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return "mean_field"


class SoftplusMeanFieldPosterior(FactorisedPosterior):
    """Trainable state: ``mean`` and ``rho``."""

    std_form = FROM_RHO
    can_set_stds = True
    can_scale_stds = True

    def __init__(self, layout: Layout, means: Tensor, stds: Tensor) -> None:
        super().__init__(layout, means)
        self.rho = nn.Parameter(softplus_inverse(stds))

    @torch.no_grad()
    def set_stds(self, std: Tensor) -> None:
        """The rho with softplus(rho) = std."""
        self.rho.copy_(softplus_inverse(std))

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """The rho with softplus(rho) = factor std."""
        self.set_stds(factor * self.std_vector())

    def std_state(self) -> Tensor:
        """std = softplus(rho) = log(1 + exp(rho))."""
        return self.rho

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return "mean_field (softplus)"


_STATES: dict[str, type[MeanFieldPosterior] | type[SoftplusMeanFieldPosterior]] = {
    "log_std": MeanFieldPosterior,
    "rho": SoftplusMeanFieldPosterior,
}


@dataclass(frozen=True)
class MeanField:
    """Independent Gaussian weights, each with its own mean and std ("BBB", "SGVB", "GMFVI").

    ``parameter`` is what the optimizer moves: ``log_std`` (default: variational Laplace and k-tied use it, it
    is the cheaper one, and it cannot leave the domain) or ``rho`` with std = softplus(rho) (Blundell; the
    thesis starts at rho = -10, std 4.54e-5). For std << 1 the two are the same algorithm. ``initial_std``
    None means exp(-3) times the prior std of each weight.
    """

    initial_std: float | None = None
    parameter: str = "log_std"

    name: ClassVar[str] = "mean_field"
    paper: ClassVar[str] = "Graves 2011; Blundell et al. 2015"

    @property
    def provides(self) -> frozenset[str]:
        """What it can do; steppers that move log stds ask for them."""
        own = {FACTORISED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY}
        return frozenset(own | {LOG_STD} if self.parameter == "log_std" else own)

    def __post_init__(self) -> None:
        check_initial_std("mean_field", self.initial_std)
        if not isinstance(self.parameter, str) or self.parameter not in _STATES:
            raise SettingError(f"mean_field: parameter = '{self.parameter}'; {nearest(str(self.parameter), _STATES)}")

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        return _STATES[self.parameter](layout, means, initial_std_vector(self.initial_std, prior))
