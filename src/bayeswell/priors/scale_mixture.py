"""Blundell's mixture of a wide and a narrow Gaussian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import require_between, require_positive
from ..tree import Site
from ..types import PriorPart
from .centres import check_centre


class ScaleMixtureDensity:
    """log[pi N(w; 0, wide^2) + (1 - pi) N(w; 0, narrow^2)], in log space: far weights feel the prior."""

    analytic = False

    @staticmethod
    def log_prob(weights: Tensor, wide_share: Tensor, wide_std: Tensor, narrow_std: Tensor) -> Tensor:
        """Element by element."""
        wide = -0.5 * (weights / wide_std).square() - wide_std.log() + wide_share.log()
        narrow = -0.5 * (weights / narrow_std).square() - narrow_std.log() + torch.log1p(-wide_share)
        return torch.logaddexp(wide, narrow) - 0.5 * math.log(2 * math.pi)

    @staticmethod
    def expected_log_prob(mean: Tensor, std: Tensor, *parameters: Tensor) -> Tensor:
        """No closed form exists; assembly never asks for it."""
        raise NotImplementedError("scale_mixture has no closed-form expectation")

    @staticmethod
    def std(wide_share: Tensor, wide_std: Tensor, narrow_std: Tensor) -> Tensor:
        """The square root of the mixture's variance."""
        return (wide_share * wide_std.square() + (1 - wide_share) * narrow_std.square()).sqrt()


@dataclass(frozen=True)
class ScaleMixture(PriorPart):
    """wide_share N(0, wide_std^2) + (1 - wide_share) N(0, narrow_std^2); needs a Monte Carlo divergence."""

    wide_share: float = 0.5
    wide_std: float = 1.0
    narrow_std: float = 0.0025
    centre: str = "zero"

    name: ClassVar[str] = "scale_mixture"
    paper: ClassVar[str] = "Blundell et al. 2015, eq. (7)"
    density: ClassVar[type[ScaleMixtureDensity]] = ScaleMixtureDensity

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        require_positive("scale_mixture prior", "wide_std", self.wide_std)
        require_positive("scale_mixture prior", "narrow_std", self.narrow_std)
        require_between("scale_mixture prior", "wide_share", self.wide_share, 0, 1, open_low=True, open_high=True)

    def parameters(self, site: Site) -> tuple[float, ...]:
        """(wide_share, wide_std, narrow_std) for this site."""
        return float(self.wide_share), float(self.wide_std), float(self.narrow_std)
