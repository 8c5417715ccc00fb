"""Priors that are not Gaussian: one density for all weights, and different priors by site."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_number
from ..core.layout import Layout
from ..core.protocols import Prior
from .gaussian import check_center


class IndependentPart:
    """Base class of priors with one density for all weights; ``mean_log_density`` is optional."""

    name: ClassVar[str]
    paper: ClassVar[str]
    center: str

    @property
    def density_std(self) -> float:
        raise NotImplementedError

    def log_density(self, weights: Tensor) -> Tensor:
        """Return log p of each weight, around zero."""
        raise NotImplementedError

    def mean_log_density(self, mean: Tensor, std: Tensor) -> Tensor:
        """Return E[log p(w_i)] of each weight for w_i ~ N(mean_i, std_i^2)."""
        raise NotImplementedError

    def build(self, layout: Layout, like: Tensor) -> Prior:
        return IndependentPrior(layout, self, like)


class IndependentPrior(Prior):
    """p(w) = prod_i p(w_i - c_i) with the density p of ``part``; c is zero or the network's weights."""

    around: Tensor

    def __init__(self, layout: Layout, part: IndependentPart, like: Tensor) -> None:
        super().__init__()
        self.layout, self.part = layout, part
        self.register_buffer("around", like.detach().clone() if part.center == "network" else like.new_zeros(()))

    @property
    def has_closed_form(self) -> bool:
        return type(self.part).mean_log_density is not IndependentPart.mean_log_density

    def log_prob(self, weights: Tensor) -> Tensor:
        return self.part.log_density(weights - self.around).sum(-1)

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        if not self.has_closed_form:
            return super().expected_log_prob(mean, std)
        return self.part.mean_log_density(mean - self.around, std).sum(-1)

    def std(self) -> Tensor:
        return self.around.new_full((self.layout.size,), self.part.density_std)

    def center(self) -> Tensor:
        return self.around.expand(self.layout.size)


class JoinedPrior(Prior):
    """Different priors for consecutive runs of sites."""

    def __init__(self, layout: Layout, priors: Sequence[Prior]) -> None:
        super().__init__()
        self.layout, self.runs = layout, list(priors)
        self.sizes = [prior.layout.size for prior in priors]
        self.priors = nn.ModuleList(priors)

    @property
    def has_closed_form(self) -> bool:
        return all(prior.has_closed_form for prior in self.runs)

    def log_prob(self, weights: Tensor) -> Tensor:
        pieces = zip(self.runs, weights.split(self.sizes, -1), strict=True)
        return torch.stack([prior.log_prob(piece) for prior, piece in pieces]).sum(0)

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        pieces = zip(self.runs, mean.split(self.sizes), std.split(self.sizes), strict=True)
        return torch.stack([prior.expected_log_prob(m, s) for prior, m, s in pieces]).sum()

    def std(self) -> Tensor:
        return torch.cat([prior.std() for prior in self.runs])

    def center(self) -> Tensor:
        return torch.cat([prior.center() for prior in self.runs])


@dataclass(frozen=True)
class LaplacePrior(IndependentPart):
    """exp(-|w| / b) / (2 b) for every weight, b = ``scale``: sparser than a Gaussian (std = sqrt(2) b).

    Under w ~ N(m, s^2), |w| has a folded normal distribution:
    E|w| = s sqrt(2/pi) exp(-m^2 / (2 s^2)) + m erf(m / (s sqrt 2)).
    """

    scale: float = 1.0
    center: str = "zero"

    name: ClassVar[str] = "laplace"
    paper: ClassVar[str] = "Williams 1995"

    def __post_init__(self) -> None:
        check_center(self)
        check_number("laplace prior", "scale", self.scale, 0, above=True)

    def log_density(self, weights: Tensor) -> Tensor:
        return -weights.abs() / self.scale - math.log(2 * self.scale)

    def mean_log_density(self, mean: Tensor, std: Tensor) -> Tensor:
        # A floor keeps the limit std -> 0 (E|w| = |m|) free of 0/0.
        ratio = mean / (math.sqrt(2) * std.clamp_min(torch.finfo(std.dtype).tiny))
        mean_abs = std * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + mean * torch.erf(ratio)
        return -mean_abs / self.scale - math.log(2 * self.scale)

    @property
    def density_std(self) -> float:
        return math.sqrt(2) * self.scale


@dataclass(frozen=True)
class ScaleMixture(IndependentPart):
    """wide_share N(0, wide_std^2) + (1 - wide_share) N(0, narrow_std^2); needs a Monte Carlo divergence."""

    wide_share: float = 0.5
    wide_std: float = 1.0
    narrow_std: float = 0.0025
    center: str = "zero"

    name: ClassVar[str] = "scale_mixture"
    paper: ClassVar[str] = "Blundell et al. 2015, eq. (7)"

    def __post_init__(self) -> None:
        check_center(self)
        for setting in ("wide_std", "narrow_std"):
            check_number("scale_mixture prior", setting, getattr(self, setting), 0, above=True)
        if check_number("scale_mixture prior", "wide_share", self.wide_share, 0, 1, above=True) == 1:
            raise SettingError("scale_mixture prior: `wide_share` must be below 1, got 1")

    def log_density(self, weights: Tensor) -> Tensor:
        # In log space: the density of a far weight underflows.
        wide = -0.5 * (weights / self.wide_std).square() + math.log(self.wide_share / self.wide_std)
        narrow = -0.5 * (weights / self.narrow_std).square() + math.log((1 - self.wide_share) / self.narrow_std)
        return torch.logaddexp(wide, narrow) - 0.5 * math.log(2 * math.pi)

    @property
    def density_std(self) -> float:
        return math.sqrt(self.wide_share * self.wide_std**2 + (1 - self.wide_share) * self.narrow_std**2)
