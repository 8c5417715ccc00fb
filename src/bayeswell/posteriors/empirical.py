"""A set of networks with equal weight: what samplers, snapshots and ensembles end with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import SettingError, check_integer
from ..core.layout import Layout
from ..core.protocols import EMPIRICAL, NoMean, Posterior, Prior


class WithExtras(Posterior):
    """Posterior whose networks bring other parameters and buffers along."""

    def set_extras(self, extras: Mapping[str, Tensor]) -> None:
        """Keep tensors by name, stacked along the first axis: one row for each network."""
        self.extra_names = tuple(extras)
        for index, tensor in enumerate(extras.values()):
            self.register_buffer(f"extra_{index}", tensor.detach())

    def extras(self, index: int) -> dict[str, Tensor]:
        """Return the extra tensors of one network by name."""
        return {name: getattr(self, f"extra_{i}")[index] for i, name in enumerate(self.extra_names)}

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *rest: Any) -> None:
        # The part knows the names of the extra tensors, but not their shapes.
        for index in range(len(self.extra_names)):
            saved = state_dict.get(f"{prefix}extra_{index}")
            if saved is not None:
                self.register_buffer(f"extra_{index}", torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Empirical(WithExtras):
    """q(w) = 1/M sum_m delta(w - w_m). State: ``weights`` (M, P) and the extra tensors; nothing is trained.

    Args:
        layout: the sites.
        weights: (M, P), not copied; ``torch.from_file`` maps them from a file.
        extras: other parameters and buffers by name, stacked along the first axis.
    """

    weights: Tensor

    def __init__(self, layout: Layout, weights: Tensor, extras: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        if len(weights) == 0:
            raise SettingError("empirical: the posterior needs at least one network; train longer, or keep more")
        self.layout, self.noise_size = layout, 0
        self.register_buffer("weights", weights.detach())
        self.set_extras(extras or {})

    @classmethod
    def from_networks(
        cls, layout: Layout, networks: Sequence[Mapping[str, Tensor]], extra_names: Sequence[str] = ()
    ) -> Empirical:
        """Stack networks that are given as tensors by name."""
        weights = torch.stack([layout.flatten(network).detach() for network in networks])
        return cls(layout, weights, {name: torch.stack([net[name] for net in networks]) for name in extra_names})

    @property
    def part(self) -> EmpiricalPart:  # type: ignore[override]
        return EmpiricalPart(self.num_networks, self.extra_names)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        raise NoMean(f"the posterior is a set of {self.num_networks} networks; it has no mean network")

    @property
    def num_networks(self) -> int:
        return len(self.weights)

    def std(self) -> Tensor:
        """(P,): std of each weight over the networks (dividing by M)."""
        return self.weights.std(0, correction=0)

    def network(self, index: int) -> dict[str, Tensor]:
        """Return one network: tensors by name, with its extra tensors."""
        return {**self.layout.unflatten(self.weights[index]), **self.extras(index)}

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Yield networks without replacement, in random order; a new round starts after the last."""
        for index in random_rounds(count, self.num_networks, generator):
            yield self.network(index)


def random_rounds(count: int, size: int, generator: torch.Generator | None) -> Iterator[int]:
    """Yield ``count`` indices below ``size``: permutations, one after another."""
    device = None if generator is None else generator.device
    for first in range(0, count, size):
        order = torch.randperm(size, generator=generator, device=device).tolist()
        yield from order[: count - first]


@dataclass(frozen=True)
class EmpiricalPart:
    """A set of networks with equal weight, the end of a sampler or an ensemble; ``build`` repeats the mean network.

    Args:
        count: number of networks.
        extras: names of further tensors of each network.
    """

    count: int = 1
    extras: tuple[str, ...] = ()

    name: ClassVar[str] = "empirical"
    paper: ClassVar[str] = "Neal 1996; Lakshminarayanan et al. 2017"
    provides: ClassVar[frozenset[str]] = frozenset({EMPIRICAL})

    def __post_init__(self) -> None:
        check_integer(self.name, "count", self.count)
        object.__setattr__(self, "extras", tuple(self.extras))

    def build(self, layout: Layout, prior: Prior, mean: Tensor, generator: torch.Generator | None) -> Posterior:
        return Empirical(layout, mean.detach().repeat(self.count, 1), {name: mean.new_empty(0) for name in self.extras})
