"""A mixture of posteriors: what an ensemble of distributions ends with (multi-SWAG, ensembles of k-tied)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ..core.errors import SettingError
from ..core.layout import Layout
from ..core.protocols import LOG_PROB, MIXTURE, NoMean, Posterior, Prior
from ..core.registry import REGISTRIES, describe
from .empirical import WithExtras, random_rounds


class Mixture(WithExtras):
    """q(w) = 1/M sum_c q_c(w).

    Args:
        components: posteriors with a density.
        extras: other parameters and buffers of each component, stacked along the first axis.
    """

    def __init__(self, components: Sequence[Posterior], extras: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        if not components or any(LOG_PROB not in component.provides for component in components):
            raise SettingError("mixture: components must be distributions such as mean_field")
        self.layout = components[0].layout
        self.noise_size = 1 + max(component.noise_size for component in components)
        self.components = nn.ModuleList(components)
        self.set_extras(extras or {})

    @property
    def part(self) -> MixturePart:  # type: ignore[override]
        return MixturePart(tuple(describe(component.part) for component in self.each()), self.extra_names)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        raise NoMean(f"the posterior is a mixture of {len(self.components)}; it has no mean network")

    def each(self) -> list[Posterior]:
        return [cast(Posterior, component) for component in self.components]

    def std(self) -> Tensor:
        """Root of the variance within and between the components, 1/M sum_c [v_c + (m_c - m)^2]."""
        means = torch.stack([component.mean for component in self.each()])
        within = torch.stack([component.std().square() for component in self.each()]).mean(0)
        return (within + means.var(0, correction=0)).sqrt()

    def centers(self) -> Iterator[dict[str, Tensor]]:
        """Yield the mean network of each component: tensors by name."""
        for index, component in enumerate(self.each()):
            yield {**self.layout.unflatten(component.mean.detach()), **self.extras(index)}

    def rsample(self, noise: Tensor) -> Tensor:
        """Draw from all components; the last column of the noise chooses one, by the normal distribution function."""
        each = self.each()
        chosen = (torch.special.ndtr(noise[:, -1]) * len(each)).long().clamp(max=len(each) - 1)
        drawn = torch.stack([component.rsample(noise[:, : component.noise_size]) for component in each])
        return drawn[chosen, torch.arange(len(noise), device=noise.device)]

    def log_prob(self, weights: Tensor) -> Tensor:
        """log 1/M sum_c exp log q_c(w)."""
        each = self.each()
        return torch.stack([component.log_prob(weights) for component in each]).logsumexp(0) - math.log(len(each))

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Yield drawn networks, from all components equally often."""
        each = self.each()
        for index in random_rounds(count, len(each), generator):
            yield {**next(iter(each[index].draws(1, generator))), **self.extras(index)}


@dataclass(frozen=True)
class MixturePart:
    """A mixture of posteriors with equal weight, the end of an ensemble of distributions; not trained itself.

    Args:
        components: description of each component: its name and settings.
        extras: names of further tensors of each component.
    """

    components: tuple[Mapping[str, Any], ...]
    extras: tuple[str, ...] = ()

    name: ClassVar[str] = "mixture"
    paper: ClassVar[str] = "Wilson & Izmailov 2020"
    provides: ClassVar[frozenset[str]] = frozenset({MIXTURE, LOG_PROB})

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "extras", tuple(self.extras))

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        parts = [REGISTRIES["posterior"].resolve(component) for component in self.components]
        built = [part.build(layout, prior, mean, generator) for part in parts]
        return Mixture(built, {name: mean.new_empty(0) for name in self.extras})
