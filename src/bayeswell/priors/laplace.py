"""The double-exponential prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import require_positive
from ..tree import Site
from ..types import PriorPart
from .centres import check_centre


class LaplaceDensity:
    """log p(w) = -|w|/b - log(2b); under w ~ N(m, s^2), E|w| is the mean of a folded normal:

    E|w| = s sqrt(2/pi) exp(-m^2 / (2 s^2)) + m erf(m / (s sqrt 2)).
    """

    analytic = True

    @staticmethod
    def log_prob(weights: Tensor, scale: Tensor) -> Tensor:
        """Element by element."""
        return -weights.abs() / scale - (2 * scale).log()

    @staticmethod
    def expected_log_prob(mean: Tensor, std: Tensor, scale: Tensor) -> Tensor:
        """Element by element, for w ~ N(mean, std^2)."""
        # A floor keeps the limit std -> 0 (E|w| = |m|) free of 0/0.
        ratio = mean / (math.sqrt(2) * std.clamp_min(torch.finfo(std.dtype).tiny))
        expected_abs = std * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + mean * torch.erf(ratio)
        return -expected_abs / scale - (2 * scale).log()

    @staticmethod
    def std(scale: Tensor) -> Tensor:
        """sqrt(2) b."""
        return math.sqrt(2) * scale


@dataclass(frozen=True)
class LaplacePrior(PriorPart):
    """exp(-|w| / scale) / (2 scale) for every weight: sparser than a Gaussian (std = sqrt(2) scale)."""

    scale: float = 1.0
    centre: str = "zero"

    name: ClassVar[str] = "laplace"
    paper: ClassVar[str] = "Williams 1995"
    density: ClassVar[type[LaplaceDensity]] = LaplaceDensity

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        require_positive("laplace prior", "scale", self.scale)

    def parameters(self, site: Site) -> tuple[float, ...]:
        """(scale,) for this site."""
        return (float(self.scale),)
