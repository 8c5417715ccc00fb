"""A mixture of posteriors: what an ensemble of distributions leaves behind (multi-SWAG, ensembles of k-tied)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import BayeswellError, SettingError, require_count
from ..registry import AXES
from ..tree import Layout, Site
from ..types import BANK, LOG_PROB, MIXTURE, POINT, Posterior, PosteriorPart, Prior


class MixturePosterior(Posterior):
    """q(w) = (1/M) sum_c q_c(w).

    ``extras`` are the deterministic parameters and buffers (BatchNorm statistics) that belong to each component,
    stacked along the first axis, by their name in the network.
    """

    def __init__(
        self, layout: Layout, components: Sequence[Posterior], extras: Mapping[str, Tensor] | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        self.layout = layout
        self.components = nn.ModuleList(components)
        self.noise_size = components[0].noise_size + 1
        self.log_std_speed = components[0].log_std_speed
        self.extra_names = tuple(extras or ())
        for index, name in enumerate(self.extra_names):
            self.register_buffer(f"extra_{index}", (extras or {})[name].detach().clone())

    def _each(self) -> list[Posterior]:
        return [component for component in self.components if isinstance(component, Posterior)]

    def like(self) -> Tensor:
        """Any tensor with the dtype and device of the weights."""
        return self._each()[0].like()

    def mean_vector(self) -> Tensor:
        """(P,): (1/M) sum_c m_c. Of members that were trained apart it is no network that fits anything."""
        return torch.stack([component.mean_vector() for component in self._each()]).mean(0)

    def variance_vector(self) -> Tensor:
        """(P,): within and between the components, (1/M) sum_c [v_c + (m_c - m)^2]."""
        means = torch.stack([component.mean_vector() for component in self._each()])
        within = torch.stack([component.variance_vector() for component in self._each()]).mean(0)
        return within + means.var(0, correction=0)

    def std_vector(self) -> Tensor:
        """(P,): the root of that."""
        return self.variance_vector().sqrt()

    def centres(self) -> Iterator[dict[str, Tensor]]:
        """The mean network of each component: tensors by name."""
        for index, component in enumerate(self._each()):
            tensors = self.layout.unflatten(component.mean_vector().detach())
            for position, name in enumerate(self.extra_names):
                tensors[name] = getattr(self, f"extra_{position}")[index]
            yield tensors

    def sample(self, noise: Tensor) -> Tensor:
        """The last number of each row of noise, through the normal's distribution function, chooses the component."""
        each = self._each()
        chosen = (torch.special.ndtr(noise[:, -1]) * len(each)).long().clamp(max=len(each) - 1)
        drawn = torch.stack([component.sample(noise[:, :-1]) for component in each])
        return drawn[chosen, torch.arange(len(noise), device=noise.device)]

    def forward(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log (1/M) sum_c exp log q_c(w)."""
        each = self._each()
        return torch.stack([component(weights) for component in each]).logsumexp(0) - math.log(len(each))

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """From all components equally often: in random order, a new round when each has had its turn."""
        device = None if generator is None else generator.device
        each = self._each()
        order: list[int] = []
        for _ in range(count):
            if not order:
                order = torch.randperm(len(each), generator=generator, device=device).tolist()
            index = order.pop()
            tensors = next(iter(each[index].draws(1, generator)))
            for position, name in enumerate(self.extra_names):
                tensors[name] = getattr(self, f"extra_{position}")[index]
            yield tensors
            del tensors

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in (f"extra_{index}" for index in range(len(self.extra_names))):
            if f"{prefix}{name}" in state_dict:
                self.register_buffer(name, torch.empty_like(state_dict[f"{prefix}{name}"]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"mixture of {len(self.components)}: {self._each()[0].explain(site)}"


@dataclass(frozen=True)
class Mixture:
    """``count`` posteriors of one family with equal weight, each drawn from equally often.

    The end of an ensemble of distributions: M Gaussians are kept as such, so that a prediction may take any number of
    draws, where a bank would keep some draws of each. ``of`` describes the family: a name, or a name with settings. It
    is not trained itself.
    """

    count: int = 2
    of: str | Mapping[str, Any] = "mean_field"
    extras: tuple[str, ...] = field(default=())

    name: ClassVar[str] = "mixture"
    paper: ClassVar[str] = "Wilson & Izmailov 2020"
    provides: ClassVar[frozenset[str]] = frozenset({MIXTURE, LOG_PROB})

    def __post_init__(self) -> None:
        require_count("mixture", "count", self.count)
        self._family()
        if not isinstance(self.extras, tuple) or not all(isinstance(name, str) for name in self.extras):
            raise SettingError(f"mixture: extras = {self.extras!r}; it must be a tuple of names")

    def numbers(self, layout: Layout) -> int:
        """How many numbers a posterior of this kind holds at least."""
        each = getattr(self._family(), "numbers", None)
        return self.count * (layout.size if each is None else int(each(layout)))

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """All components start at the same means; what is drawn at their start (k-tied) differs."""
        family = self._family()
        mixture = MixturePosterior(layout, [family.build(layout, prior, means) for _ in range(self.count)])
        mixture.extra_names = self.extras
        return mixture

    def _family(self) -> PosteriorPart:
        try:
            part: PosteriorPart = AXES["posterior"].resolve(self.of)
        except BayeswellError as error:
            raise SettingError(f"mixture: of = {self.of!r}; {error}") from error
        if part.provides & {BANK, MIXTURE, POINT}:
            raise SettingError(f"mixture: of = {self.of!r}; it must be a distribution such as 'mean_field'")
        return part
