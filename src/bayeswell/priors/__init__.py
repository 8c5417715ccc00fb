"""p(w): what is believed of a weight before any data, one choice for all sites, by name, or by function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor

from ..errors import SettingError
from ..registry import Registry
from ..tree import Layout, Site
from ..types import PriorPart
from .distribution import DistributionPrior, distribution_prior
from .flat import FlatPrior
from .laplace import LaplacePrior
from .learned import LearnedPrior, is_posterior
from .normal import Kaiming, Normal, Xavier
from .scale_mixture import ScaleMixture

PRIORS: Registry[PriorPart] = Registry(
    "prior",
    *(Normal, Kaiming, Xavier, ScaleMixture, LaplacePrior, DistributionPrior),
    requires=("density", "parameters"),
    protocol=PriorPart,
    adapt=distribution_prior,
)
"""Priors by name: p(w)."""

PriorChoice: TypeAlias = str | PriorPart | Mapping[str, Any] | Callable[[Site], Any]
"""A name, a part, ``{"name": ..., setting: value}``, ``{pattern: choice}``, or a function of the site."""


def lay_out(choice: PriorChoice, layout: Layout, *, like: Tensor) -> FlatPrior:
    """The prior of every site, as one flat prior.

    ``like`` are the network's weights. A mapping without the key "name" maps patterns of parameter names to choices;
    the first that fits wins.
    """
    return FlatPrior(layout, _assign(choice, layout), like=like)


def _assign(choice: PriorChoice, layout: Layout) -> list[PriorPart]:
    if is_posterior(choice):
        raise SettingError("prior = 'posterior' is that of a trained model: fit(result, data, prior='posterior')")
    if isinstance(choice, Mapping) and "name" not in choice:
        return _by_pattern(choice, layout)
    if callable(choice) and not isinstance(choice, type) and not hasattr(choice, "density"):
        return [PRIORS.resolve(choice(site)) for site in layout.sites]
    part = PRIORS.resolve(choice)
    return [part] * len(layout.sites)


def _by_pattern(choices: Mapping[str, Any], layout: Layout) -> list[PriorPart]:
    parts = {pattern: PRIORS.resolve(choice) for pattern, choice in choices.items()}
    for pattern in parts:
        if not any(site.fits(pattern) for site in layout.sites):
            names = ", ".join(site.name for site in layout.sites)
            raise SettingError(f"prior: the pattern '{pattern}' fits no Bayesian parameter; there are: {names}")
    assigned = []
    for site in layout.sites:
        fitting = [part for pattern, part in parts.items() if site.fits(pattern)]
        if not fitting:
            raise SettingError(f"prior: no pattern fits '{site.name}'; add a last entry with the pattern '*'")
        assigned.append(fitting[0])
    return assigned


__all__ = [
    "PRIORS",
    "DistributionPrior",
    "FlatPrior",
    "Kaiming",
    "LaplacePrior",
    "LearnedPrior",
    "Normal",
    "PriorChoice",
    "ScaleMixture",
    "Xavier",
    "is_posterior",
    "lay_out",
]
