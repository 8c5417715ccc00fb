"""A bank of networks: what samplers and ensembles leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import SettingError, require_count
from ..tree import Layout, Site
from ..types import BANK, Posterior, Prior


class EmpiricalPosterior(Posterior):
    """Equal weight on each of K weight vectors (K, P).

    ``extras`` are the deterministic parameters and buffers (BatchNorm statistics) that belong to each member,
    stacked along the first axis, by their name in the network. With ``copied=False`` the bank keeps the very tensors
    that it is given, which may be mapped from a file.
    """

    weights: Tensor

    def __init__(
        self, layout: Layout, weights: Tensor, extras: Mapping[str, Tensor] | None = None, *, copied: bool = True
    ) -> None:
        super().__init__()
        if len(weights) == 0:
            raise SettingError("empirical posterior: the bank has no draw; train longer or start collecting earlier")
        self.layout = layout
        self.noise_size = 0
        self.register_buffer("weights", _own(weights, copied))
        self.extra_names = tuple(extras or ())
        for index, name in enumerate(self.extra_names):
            self.register_buffer(f"extra_{index}", _own((extras or {})[name], copied))

    @property
    def members(self) -> int:
        """K."""
        return len(self.weights)

    def mean_vector(self) -> Tensor:
        """(P,): the mean of the members."""
        return self.weights.mean(0)

    def std_vector(self) -> Tensor:
        """(P,): the spread of the members (dividing by K)."""
        return self.weights.std(0, correction=0)

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Members without replacement, in random order; a new round starts when all have been drawn."""
        device = None if generator is None else generator.device
        order: list[int] = []
        for _ in range(count):
            if not order:
                order = torch.randperm(len(self.weights), generator=generator, device=device).tolist()
            yield self.member(order.pop())

    def member(self, index: int) -> dict[str, Tensor]:
        """One network of the bank: tensors by name."""
        tensors = self.layout.views(self.weights[index])
        for position, name in enumerate(self.extra_names):
            tensors[name] = getattr(self, f"extra_{position}")[index]
        return tensors

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        # A saved bank has its own number of members and of extras.
        for name in ("weights", *(f"extra_{index}" for index in range(len(self.extra_names)))):
            if f"{prefix}{name}" in state_dict:
                self.register_buffer(name, torch.empty_like(state_dict[f"{prefix}{name}"]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"empirical ({len(self.weights)} draws)"


def _own(tensor: Tensor, copied: bool) -> Tensor:
    return tensor.detach().clone() if copied else tensor.detach()


@dataclass(frozen=True)
class Empirical:
    """A bank of ``count`` networks with equal weight: the end of a sampler or an ensemble, not trained itself."""

    count: int = 1
    extras: tuple[str, ...] = ()

    name: ClassVar[str] = "empirical"
    paper: ClassVar[str] = "Neal 1996; Lakshminarayanan et al. 2017"
    provides: ClassVar[frozenset[str]] = frozenset({BANK})

    def __post_init__(self) -> None:
        require_count("empirical", "count", self.count)

    def numbers(self, layout: Layout) -> int:
        """How many numbers a posterior of this kind holds at least."""
        return self.count * layout.size

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """A bank that holds the same weights in every place, to be filled."""
        # Not copied: a row for each member is made when they are there.
        bank = EmpiricalPosterior(layout, means.expand(self.count, -1), copied=False)
        bank.extra_names = self.extras
        return bank
