"""Gaussian priors: one std for all weights, or by layer from fan-in (Kaiming) or fan-in and fan-out (Xavier)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core.errors import check_choice, check_number
from ..core.layout import Layout, Site
from ..core.protocols import GaussianTerms, Prior

CENTERS = ("zero", "network")


class GaussianPrior(Prior):
    """p(w) = prod_i N(w_i; c_i, (scale s_i)^2); ``stds`` s are one a site or one a weight, c None is zero."""

    site_stds: Tensor
    inverse_variances: Tensor
    log_std_sum: Tensor
    around: Tensor | None

    def __init__(self, layout: Layout, stds: Tensor, center: Tensor | None = None) -> None:
        super().__init__()
        self.layout, self.scale = layout, 1.0
        self.by_site = len(stds) == len(layout.sites)
        # The sum runs over millions of weights, so it is taken in float64.
        exact = stds.double()
        sizes = torch.tensor(layout.sizes if self.by_site else 1.0, dtype=exact.dtype, device=exact.device)
        self.register_buffer("site_stds", stds)
        self.register_buffer("inverse_variances", exact.square().reciprocal().to(stds.dtype))
        self.register_buffer("log_std_sum", (sizes * exact.log()).sum().to(stds.dtype))
        self.register_buffer("around", center)

    @property
    def gaussian(self) -> GaussianTerms:
        inverse_variances, log_std_sum = self.inverse_variances, self.log_std_sum
        if self.scale != 1:
            inverse_variances = inverse_variances / self.scale**2
            log_std_sum = log_std_sum + self.layout.size * math.log(self.scale)
        return GaussianTerms(inverse_variances, self.by_site, log_std_sum, self.around)

    def log_prob(self, weights: Tensor) -> Tensor:
        """sum_i -(w_i - c_i)^2 / (2 s_i^2) - log s_i - log(2 pi) / 2."""
        return self._expected(self._shifted(weights).square())

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """sum_i -((m_i - c_i)^2 + std_i^2) / (2 s_i^2) - log s_i - log(2 pi) / 2."""
        return self._expected(self._shifted(mean).square() + std.square())

    def std(self) -> Tensor:
        stds = self.site_stds * self.scale
        return self.layout.repeat_by_site(stds) if self.by_site else stds

    def center(self) -> Tensor:
        return self.site_stds.new_zeros(self.layout.size) if self.around is None else self.around

    def scaled(self, factor: float) -> GaussianPrior:
        """Return a view with all stds multiplied by ``factor``; it shares the tensors of this prior."""
        if factor == 1:
            return self
        view = copy.copy(self)
        view.scale = self.scale * factor
        return view

    def _shifted(self, weights: Tensor) -> Tensor:
        return weights if self.around is None else weights - self.around

    def _expected(self, squares: Tensor) -> Tensor:
        terms = self.gaussian
        inverse = terms.inverse_variances
        inverse = self.layout.repeat_by_site(inverse) if self.by_site else inverse
        constant = terms.log_std_sum + self.layout.size * (0.5 * math.log(2 * math.pi))
        return -0.5 * (squares * inverse).sum(-1) - constant


class GaussianPart:
    """Base class of Gaussian priors; all weights of a site have the std ``std_of(site)``."""

    name: ClassVar[str]
    paper: ClassVar[str]
    center: str

    def std_of(self, site: Site) -> float:
        raise NotImplementedError

    def build(self, layout: Layout, like: Tensor) -> Prior:
        return build_gaussian([self] * len(layout.sites), layout, like)


def build_gaussian(parts: Sequence[GaussianPart], layout: Layout, like: Tensor) -> GaussianPrior:
    """Return the Gaussian prior with one part a site."""
    for part in parts:
        check_choice(f"{part.name} prior", "center", part.center, CENTERS)
    stds = [part.std_of(site) for part, site in zip(parts, layout.sites, strict=True)]
    center = None
    if any(part.center == "network" for part in parts):
        centered = like.new_tensor([float(part.center == "network") for part in parts])
        center = like.detach() * layout.repeat_by_site(centered)
    return GaussianPrior(layout, like.new_tensor(stds), center)


@dataclass(frozen=True)
class Normal(GaussianPart):
    """N(0, std^2) for every weight.

    Every prior may be centered on the network's weights instead of zero: ``Normal(0.1, center="network")`` keeps the
    weights near pretrained ones.
    """

    std: float = 1.0
    center: str = "zero"

    name: ClassVar[str] = "normal"
    paper: ClassVar[str] = "Neal 1996"

    def __post_init__(self) -> None:
        check_number("normal prior", "std", self.std, 0, above=True)

    def std_of(self, site: Site) -> float:
        return float(self.std)


@dataclass(frozen=True)
class Kaiming(GaussianPart):
    """N(0, 2 / ((1 + a^2) fan_in)) by layer; a is the negative slope of a leaky ReLU (0 for ReLU).

    Book's thesis section 2.3 writes "a = 1 for standard ReLU"; a is the slope, so ReLU has a = 0. With a = 1
    the variance is 1/fan_in. fan_in of a convolution is in_channels / groups x kernel area, as He et al.;
    a bias has the fan_in of its weight.
    """

    a: float = 0.0
    center: str = "zero"

    name: ClassVar[str] = "kaiming"
    paper: ClassVar[str] = "He et al. 2015; Book 2020, section 2.3"

    def __post_init__(self) -> None:
        check_number("kaiming prior", "a", self.a)

    def std_of(self, site: Site) -> float:
        return math.sqrt(2 / ((1 + self.a**2) * site.fan_in))


@dataclass(frozen=True)
class Xavier(GaussianPart):
    """N(0, 2 gain^2 / (fan_in + fan_out)) by layer."""

    gain: float = 1.0
    center: str = "zero"

    name: ClassVar[str] = "xavier"
    paper: ClassVar[str] = "Glorot & Bengio 2010"

    def __post_init__(self) -> None:
        check_number("xavier prior", "gain", self.gain, 0, above=True)

    def std_of(self, site: Site) -> float:
        return self.gain * math.sqrt(2 / (site.fan_in + site.fan_out))
