"""Priors by name, by parameter pattern, or by function of the site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, TypeAlias

from torch import Tensor

from ..core.errors import CompositionError, SettingError
from ..core.layout import Layout, Site
from ..core.protocols import Prior, PriorPart
from ..core.registry import Registry, describe
from .gaussian import GaussianPart, Kaiming, Normal, Xavier, build_gaussian
from .independent import DistributionPrior, JoinedPrior, LaplacePrior, ScaleMixture, distribution_prior
from .posterior import PosteriorPrior

PRIORS: Registry[PriorPart] = Registry(
    "prior",
    *(Normal, Kaiming, Xavier, ScaleMixture, LaplacePrior, DistributionPrior),
    requires=("build",),
    adapt=distribution_prior,
)
"""Priors by name: p(w)."""

PriorChoice: TypeAlias = str | PriorPart | Prior | Mapping[str, Any] | Callable[[Site], Any]
"""A name, a part, ``{"name": ..., setting: value}``, ``{pattern: choice}``, a function of the site, or a ``Prior``."""


def build_prior(choice: PriorChoice, layout: Layout, like: Tensor) -> Prior:
    """Return the prior of all sites; in a mapping of patterns the first that matches a parameter's name wins.

    ``like`` (P,) are the network's weights.
    """
    if isinstance(choice, Prior):
        if choice.layout != layout:
            raise CompositionError(f"prior {type(choice).__name__} belongs to other parameters than this network's")
        return choice
    parts = _parts_by_site(choice, layout)
    prior = _build(parts, layout, like)
    prior.parts = parts
    return prior


def describe_prior(prior: Prior) -> dict[str, Any]:
    """Return the settings of a prior as JSON-ready data, which ``build_prior`` accepts.

    A ``PosteriorPrior`` gives ``{"posterior": settings of the posterior}``; its numbers are in its ``state_dict``.
    """
    if isinstance(prior, PosteriorPrior):
        return {"posterior": describe(prior.posterior.part)}
    if all(part == prior.parts[0] for part in prior.parts):
        return describe(prior.parts[0])
    return {site.name: describe(part) for site, part in zip(prior.layout.sites, prior.parts, strict=True)}


def _parts_by_site(choice: PriorChoice, layout: Layout) -> tuple[PriorPart, ...]:
    if isinstance(choice, Mapping) and "name" not in choice:
        return _by_pattern(choice, layout)
    if callable(choice) and not isinstance(choice, type) and not hasattr(choice, "build"):
        return tuple(PRIORS.resolve(choice(site)) for site in layout.sites)
    return (PRIORS.resolve(choice),) * len(layout.sites)


def _by_pattern(choices: Mapping[str, Any], layout: Layout) -> tuple[PriorPart, ...]:
    parts = {pattern: PRIORS.resolve(choice) for pattern, choice in choices.items()}
    for pattern in parts:
        if not any(site.matches(pattern) for site in layout.sites):
            names = ", ".join(site.name for site in layout.sites)
            raise SettingError(f"prior: the pattern '{pattern}' matches no Bayesian parameter; there are: {names}")
    assigned = []
    for site in layout.sites:
        matching = [part for pattern, part in parts.items() if site.matches(pattern)]
        if not matching:
            raise SettingError(f"prior: no pattern matches '{site.name}'; add a last entry with the pattern '*'")
        assigned.append(matching[0])
    return tuple(assigned)


def _build(parts: tuple[PriorPart, ...], layout: Layout, like: Tensor) -> Prior:
    if all(part == parts[0] for part in parts):
        return parts[0].build(layout, like)
    gaussian = [part for part in parts if isinstance(part, GaussianPart)]
    if len(gaussian) == len(parts):
        return build_gaussian(gaussian, layout, like)
    priors, start = [], 0
    for part, pairs in groupby(zip(parts, layout.sites, strict=True), key=lambda pair: pair[0]):
        run = Layout(tuple(site for _, site in pairs))
        priors.append(part.build(run, like[start : start + run.size]))
        start += run.size
    return JoinedPrior(layout, priors)
