"""Gaussian priors: one std for all, or by layer from fan-in (Kaiming) or fan-in and fan-out (Xavier)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..errors import require_between, require_positive
from ..tree import Site
from ..types import PriorPart
from .centres import check_centre


class GaussianDensity:
    """log N(w; 0, std^2), and its mean under a Gaussian: -log std - log(2 pi)/2 - (m^2 + s^2)/(2 std^2)."""

    analytic = True

    @staticmethod
    def log_prob(weights: Tensor, std: Tensor) -> Tensor:
        """Element by element."""
        return -0.5 * (weights / std).square() - std.log() - 0.5 * math.log(2 * math.pi)

    @staticmethod
    def expected_log_prob(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
        """Element by element, for w ~ N(mean, std^2)."""
        quadratic = (mean.square() + std.square()) / (2 * prior_std.square())
        return -quadratic - prior_std.log() - 0.5 * math.log(2 * math.pi)

    @staticmethod
    def std(std: Tensor) -> Tensor:
        """The standard deviation itself."""
        return std


@dataclass(frozen=True)
class Normal(PriorPart):
    """The same N(0, std^2) for every weight.

    Every prior may be centred on the given network instead of zero: ``Normal(0.1, centre="network")`` keeps the weights
    near pre-trained ones.
    """

    std: float = 1.0
    centre: str = "zero"

    name: ClassVar[str] = "normal"
    paper: ClassVar[str] = "Neal 1996"
    density: ClassVar[type[GaussianDensity]] = GaussianDensity

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        require_positive("normal prior", "std", self.std)

    def parameters(self, site: Site) -> tuple[float, ...]:
        """(std,) for this site."""
        return (float(self.std),)


@dataclass(frozen=True)
class Kaiming(PriorPart):
    """N(0, 2 / ((1 + a^2) fan_in)) by layer; a is the negative slope of a leaky ReLU (0 for ReLU).

    Book's thesis section 2.3 writes "a = 1 for standard ReLU"; a is the slope, so ReLU has a = 0. With a = 1
    the variance is 1/fan_in. fan_in of a convolution is in_channels / groups x kernel area, as He et al.;
    a bias has the fan_in of its weight.
    """

    a: float = 0.0
    centre: str = "zero"

    name: ClassVar[str] = "kaiming"
    paper: ClassVar[str] = "He et al. 2015; Book 2020, section 2.3"
    density: ClassVar[type[GaussianDensity]] = GaussianDensity

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        require_between("kaiming prior", "a", self.a, -math.inf, math.inf, open_low=True, open_high=True)

    def parameters(self, site: Site) -> tuple[float, ...]:
        """(std,) for this site."""
        return (math.sqrt(2 / ((1 + self.a**2) * site.fan_in)),)


@dataclass(frozen=True)
class Xavier(PriorPart):
    """N(0, 2 gain^2 / (fan_in + fan_out)) by layer."""

    gain: float = 1.0
    centre: str = "zero"

    name: ClassVar[str] = "xavier"
    paper: ClassVar[str] = "Glorot & Bengio 2010"
    density: ClassVar[type[GaussianDensity]] = GaussianDensity

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        require_positive("xavier prior", "gain", self.gain)

    def parameters(self, site: Site) -> tuple[float, ...]:
        """(std,) for this site."""
        return (self.gain * math.sqrt(2 / (site.fan_in + site.fan_out)),)
