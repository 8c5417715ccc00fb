"""Priors that are not Gaussian: one density for all weights, and different priors by site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, distributions, nn
from torch.distributions import Distribution

from ..core.errors import SettingError, check_choice, check_number, nearest
from ..core.layout import Layout
from ..core.protocols import Prior, PriorPart
from .gaussian import CENTERS, Normal


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
        check_choice(f"{part.name} prior", "center", part.center, CENTERS)
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
        for setting in ("wide_std", "narrow_std"):
            check_number("scale_mixture prior", setting, getattr(self, setting), 0, above=True)
        if not 0 < self.wide_share < 1:
            raise SettingError(f"scale_mixture prior: `wide_share` must be above 0 and below 1, got {self.wide_share}")

    def log_density(self, weights: Tensor) -> Tensor:
        # In log space: the density of a far weight underflows.
        wide = -0.5 * (weights / self.wide_std).square() + math.log(self.wide_share / self.wide_std)
        narrow = -0.5 * (weights / self.narrow_std).square() + math.log((1 - self.wide_share) / self.narrow_std)
        return torch.logaddexp(wide, narrow) - 0.5 * math.log(2 * math.pi)

    @property
    def density_std(self) -> float:
        return math.sqrt(self.wide_share * self.wide_std**2 + (1 - self.wide_share) * self.narrow_std**2)


@dataclass(frozen=True)
class DistributionPrior(IndependentPart):
    """One distribution of torch for every weight: ``DistributionPrior("StudentT", {"df": 4.0, "scale": 0.3})``.

    A prior may also be the distribution itself: ``prior=StudentT(4.0, scale=0.3)``. Its support must be the real line.
    E_q[log p] has no closed form, so drawn weights are needed (divergence ``monte_carlo`` or ``path_derivative``).
    Where the std is infinite (Cauchy), the interquartile range / 1.35 (that of a normal) replaces it.
    """

    distribution: str = "StudentT"
    settings: Mapping[str, float] = field(default_factory=lambda: {"df": 4.0})
    center: str = "zero"

    name: ClassVar[str] = "distribution"
    paper: ClassVar[str] = "torch.distributions"

    def __post_init__(self) -> None:
        support: Any = self.made.support
        if not bool(support.check(torch.tensor([-1e4, -1e-3, 0.0, 1e-3, 1e4])).all()):
            raise SettingError(f"prior {self.distribution}: its support is {support}; a weight may be any real number")
        if not math.isfinite(self.density_std):
            raise SettingError(f"prior {self.distribution}: it has neither a finite std nor quartiles")

    @cached_property
    def made(self) -> Distribution:
        """The distribution itself."""
        if self.distribution not in distributions.__all__:
            names = nearest(self.distribution, distributions.__all__)
            raise SettingError(f"prior: `distribution` = {self.distribution!r}; {names}")
        try:
            numbers = {k: torch.tensor(float(v), dtype=torch.float64) for k, v in self.settings.items()}
            made: Distribution = getattr(distributions, self.distribution)(**numbers)
            return made
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(f"prior '{self.distribution}': settings {dict(self.settings)}: {reason:.150}") from error

    def log_density(self, weights: Tensor) -> Tensor:
        value: Tensor = self.made.log_prob(weights)
        return value

    @property
    def density_std(self) -> float:
        try:
            std = float(self.made.stddev)
            if math.isfinite(std):
                return std
            low, high = (float(self.made.icdf(torch.tensor(share))) for share in (0.25, 0.75))
        except NotImplementedError:
            return math.inf
        return (high - low) / 1.3489795


def distribution_prior(choice: Any) -> PriorPart | None:
    """Return the part for a distribution of torch, by its name and numbers; None for other objects."""
    if not isinstance(choice, Distribution):
        return None
    if isinstance(choice, distributions.Normal) and choice.loc.numel() == 1 and float(choice.loc) == 0:
        return Normal(float(choice.scale))
    label, constraints = type(choice).__name__, cast(Mapping[str, Any], choice.arg_constraints)
    values = {name: torch.as_tensor(getattr(choice, name)) for name in constraints}
    if getattr(distributions, label, None) is not type(choice) or any(v.numel() != 1 for v in values.values()):
        shapes = {name: tuple(value.shape) for name, value in values.items()}
        raise SettingError(f"prior {label} has settings of shape {shapes}; give a distribution of torch of one weight")
    return DistributionPrior(label, {name: float(value) for name, value in values.items()})
