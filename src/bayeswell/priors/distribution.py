"""Any distribution of ``torch.distributions`` over one weight, as a prior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from ..core.errors import SettingError, nearest
from .gaussian import Normal, check_center
from .independent import IndependentPart

QUARTILES_OF_NORMAL = 1.3489795
"""The interquartile range of a standard normal; replaces the std of distributions that have none (Cauchy)."""


@dataclass(frozen=True)
class DistributionPrior(IndependentPart):
    """One distribution of torch for every weight: ``DistributionPrior("StudentT", {"df": 4.0, "scale": 0.3})``.

    A prior may also be the distribution itself: ``prior=StudentT(4.0, scale=0.3)``. Its support must be the real line.
    E_q[log p] has no closed form, so drawn weights are needed (divergence ``monte_carlo`` or ``path_derivative``).
    Where the std is infinite (Cauchy), the interquartile range / 1.35 replaces it.
    """

    distribution: str | Distribution = "StudentT"
    settings: Mapping[str, float] = field(default_factory=lambda: {"df": 4.0})
    center: str = "zero"

    name: ClassVar[str] = "distribution"
    paper: ClassVar[str] = "torch.distributions"

    def __post_init__(self) -> None:
        check_center(self)
        made, label = self.made, type(self.made).__name__
        shape = (*made.batch_shape, *made.event_shape)
        if shape:
            raise SettingError(f"prior {label}: its shape is {shape}; give a distribution of one weight")
        support: Any = made.support
        if not bool(support.check(torch.tensor([-1e4, -1e-3, 0.0, 1e-3, 1e4])).all()):
            raise SettingError(f"prior {label}: its support is {support}; a weight may be any real number")
        if not math.isfinite(spread(made)):
            raise SettingError(f"prior {label}: it has neither a finite std nor quartiles, so stds have no start")

    @cached_property
    def made(self) -> Distribution:
        """The distribution itself."""
        if isinstance(self.distribution, Distribution):
            return self.distribution
        if self.distribution not in distributions.__all__:
            names = nearest(str(self.distribution), distributions.__all__)
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
        return spread(self.made)


def spread(made: Distribution) -> float:
    """Return the std, or what replaces it where it is infinite; infinity if neither is known."""
    try:
        std = float(made.stddev)
        if math.isfinite(std):
            return std
        low, high = (float(made.icdf(torch.tensor(share))) for share in (0.25, 0.75))
    except NotImplementedError:
        return math.inf
    return (high - low) / QUARTILES_OF_NORMAL


def distribution_prior(choice: Any) -> Any:
    """Return the part for a distribution, by name and numbers where these say all; None for other objects."""
    if not isinstance(choice, Distribution):
        return None
    if isinstance(choice, distributions.Normal) and choice.loc.numel() == 1 and float(choice.loc) == 0:
        return Normal(float(choice.scale))
    constraints: Any = choice.arg_constraints
    values = {name: getattr(choice, name, None) for name in constraints}
    numbers = {name: float(v) for name, v in values.items() if isinstance(v, Tensor) and v.numel() == 1}
    label = type(choice).__name__
    if getattr(distributions, label, None) is type(choice) and 0 < len(numbers) == len(values):
        return DistributionPrior(label, numbers)
    return DistributionPrior(choice)
