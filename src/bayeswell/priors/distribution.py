"""Any distribution of ``torch.distributions`` over one weight, as a prior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from ..errors import SettingError, nearest
from ..tree import Site
from ..types import PriorPart
from .centres import check_centre
from .normal import Normal

_QUARTILE_TO_STD = 1.3489795
"""The interquartile range of a standard normal: what stands for a std where a distribution has none (Cauchy)."""


@dataclass(frozen=True)
class DistributionPrior(PriorPart):
    """The same distribution of torch for every weight: ``DistributionPrior("StudentT", {"df": 4.0, "scale": 0.3})``.

    Where a prior is asked for, the distribution itself does as well: ``prior=StudentT(4.0, scale=0.3)``. Its support
    must be the real line. E_q[log p] is known in closed form for ``Normal`` alone; others need drawn weights
    (divergence ``monte_carlo``, which is then the default, or ``path_derivative``). Stds of the posterior start
    relative to its std; where that is infinite (Cauchy), to its interquartile range / 1.35.
    """

    distribution: str | Distribution = "StudentT"
    settings: Mapping[str, float] = field(default_factory=lambda: {"df": 4.0})
    centre: str = "zero"

    name: ClassVar[str] = "distribution"
    paper: ClassVar[str] = "torch.distributions"

    def __post_init__(self) -> None:
        check_centre(self.name, self.centre)
        if isinstance(self.distribution, Distribution):
            object.__setattr__(self, "settings", {})
        elif not isinstance(self.settings, Mapping):
            raise SettingError(f"prior distribution: settings = {self.settings!r}; give numbers by name")
        made = self.made()
        label = type(made).__name__
        if made.event_shape or made.batch_shape:
            shape = (*made.batch_shape, *made.event_shape)
            raise SettingError(f"prior {label}: it is over {tuple(shape)} numbers; give one over a single weight")
        support: Any = made.support
        if not bool(support.check(torch.tensor([-1e4, -1e-3, 0.0, 1e-3, 1e4])).all()):
            raise SettingError(f"prior {label}: its support is {support}; a weight may be any real number")
        if not math.isfinite(float(self.density.std(*map(torch.tensor, self._values())))):
            raise SettingError(f"prior {label}: it has neither a finite std nor quartiles, so stds have no start")

    def made(self) -> Distribution:
        """The distribution itself."""
        if isinstance(self.distribution, Distribution):
            return self.distribution
        kind: Any = _kind(self.distribution)
        try:
            made: Distribution = kind(**{name: float(value) for name, value in self.settings.items()})
            return made
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(
                f"prior '{self.distribution}' cannot be made of settings = {dict(self.settings)}: {reason:.150}"
            ) from error

    @property
    def density(self) -> Any:
        """One object for all equal priors: sites that share it lie in one run."""
        if isinstance(self.distribution, Distribution):
            return _FixedDensity(self.distribution)
        return _named_density(self.distribution, tuple(self.settings))

    def _values(self) -> tuple[float, ...]:
        return tuple(float(value) for value in self.settings.values())

    def parameters(self, site: Site) -> tuple[float, ...]:
        """The distribution's own, the same for every site."""
        return self._values()


def distribution_prior(choice: Any) -> PriorPart | None:
    """The prior that a distribution is; None for anything else. By name and numbers where that says it all."""
    if not isinstance(choice, Distribution):
        return None
    kind: Any = type(choice)
    if isinstance(choice, distributions.Normal) and not choice.batch_shape and float(choice.loc) == 0:
        return Normal(float(choice.scale))
    if not isinstance(kind.arg_constraints, Mapping):
        return DistributionPrior(choice)
    values = {name: getattr(choice, name, None) for name in kind.arg_constraints}
    # Some name the same parameter twice (probs and logits): only what the constructor takes, and plain numbers.
    plain = {name: float(v) for name, v in values.items() if isinstance(v, Tensor) and v.numel() == 1}
    name: str = kind.__name__
    if getattr(distributions, name, None) is kind and 0 < len(plain) == len(values):
        return DistributionPrior(name, plain)
    return DistributionPrior(choice)


def _kind(name: str) -> type[Distribution]:
    kinds = {n: k for n, k in vars(distributions).items() if isinstance(k, type) and issubclass(k, Distribution)}
    if not isinstance(name, str) or name not in kinds:
        raise SettingError(f"prior: distribution = {name!r}; {nearest(str(name), kinds)}")
    return kinds[name]


class _Density:
    """A density by what torch makes of the parameters."""

    analytic = False

    def made(self, *parameters: Tensor) -> Distribution:
        raise NotImplementedError

    def log_prob(self, weights: Tensor, *parameters: Tensor) -> Tensor:
        """Element by element."""
        return self.made(*parameters).log_prob(weights)

    def expected_log_prob(self, mean: Tensor, std: Tensor, *parameters: Tensor) -> Tensor:
        """No closed form is known; assembly never asks for it."""
        raise NotImplementedError("this distribution has no closed-form expectation")

    def std(self, *parameters: Tensor) -> Tensor:
        """The standard deviation, or what stands for it."""
        made = self.made(*parameters)
        try:
            std = made.stddev
        except NotImplementedError:
            std = torch.full((), math.inf)
        if not bool(std.isfinite().all()):
            try:
                low, high = (made.icdf(torch.full_like(std, share)) for share in (0.25, 0.75))
            except NotImplementedError:
                return std
            std = (high - low) / _QUARTILE_TO_STD
        return std


class _FixedDensity(_Density):
    """That of a distribution which is more than a name and numbers."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FixedDensity) and other.distribution is self.distribution

    def __hash__(self) -> int:
        return id(self.distribution)

    def made(self, *parameters: Tensor) -> Distribution:
        return self.distribution


class _NamedDensity(_Density):
    """That of a distribution of torch, by the names of its parameters."""

    def __init__(self, name: str, parameters: tuple[str, ...]) -> None:
        self.name, self.parameters = name, parameters
        self.analytic = name == "Normal"

    def __reduce__(self) -> Any:
        return _named_density, (self.name, self.parameters)

    def made(self, *parameters: Tensor) -> Distribution:
        kind: Any = _kind(self.name)
        made: Distribution = kind(**dict(zip(self.parameters, parameters, strict=True)), validate_args=False)
        return made

    def expected_log_prob(self, mean: Tensor, std: Tensor, *parameters: Tensor) -> Tensor:
        """Of a Normal: log p at the mean, less std^2 / (2 scale^2)."""
        if not self.analytic:
            return super().expected_log_prob(mean, std, *parameters)
        made: Any = self.made(*parameters)
        expected: Tensor = made.log_prob(mean) - 0.5 * (std / made.scale).square()
        return expected


@cache
def _named_density(name: str, parameters: tuple[str, ...]) -> _NamedDensity:
    return _NamedDensity(name, parameters)
