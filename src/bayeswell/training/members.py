"""From several trained members (an ensemble, the chains of a sampler) to one bank of networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..lifting import BayesianModule
from ..lifting.dropout import seeds_of_masks
from ..posteriors import Empirical, EmpiricalPosterior
from ..types import BANK, POINT
from .records import EpochRecord, History

_DRAWS_PER_MEMBER = 10


@dataclass(frozen=True)
class Contribution:
    """What one member leaves: its networks as rows, what it learned of the noise, and its history."""

    weights: Tensor
    extras: Mapping[str, Tensor]
    likelihood: Mapping[str, Tensor]
    history: History

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data."""
        return {
            "weights": self.weights,
            "extras": dict(self.extras),
            "likelihood": dict(self.likelihood),
            "history": [record.as_state() for record in self.history.epochs],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Contribution:
        """The inverse of ``state_dict``."""
        history = History([EpochRecord(**record) for record in state["history"]])
        return cls(state["weights"], state["extras"], state["likelihood"], history)


def contribution(model: BayesianModule, likelihood: Any, history: History, generator: torch.Generator) -> Contribution:
    """A bank gives all it has, in order; a point itself; a distribution a few draws."""
    weights: list[Tensor] = []
    extras: dict[str, list[Tensor]] = {}
    own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
    for name in seeds_of_masks(model.net):  # a draw's own, not the network's
        own.pop(name, None)
    for tensors in _networks(model, generator):
        weights.append(model.layout.flatten(tensors))
        for name, value in own.items():
            extras.setdefault(name, []).append(tensors.get(name, value).detach().clone())
    stacked = {name: torch.stack(values) for name, values in extras.items()}
    learned = dict(likelihood.state_dict()) if isinstance(likelihood, nn.Module) else {}
    return Contribution(torch.stack(weights), stacked, learned, history)


def gather(model: BayesianModule, contributions: Sequence[Contribution]) -> BayesianModule:
    """All members as one bank, one behind the other."""
    weights = torch.cat([member.weights for member in contributions])
    extras = {name: torch.cat([m.extras[name] for m in contributions]) for name in contributions[0].extras}
    posterior = EmpiricalPosterior(model.layout, weights, extras)
    return model.with_posterior(Empirical(len(weights), tuple(extras)), posterior)


def mean_likelihood(likelihood: Any, contributions: Sequence[Contribution]) -> Any:
    """One likelihood for all members: what they learned of the noise, averaged."""
    states = [member.likelihood for member in contributions]
    if states and states[0] and isinstance(likelihood, nn.Module):
        likelihood.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
    return likelihood


def _networks(model: BayesianModule, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    posterior = model.posterior
    if BANK in model.posterior_part.provides:
        return (posterior.member(index) for index in range(posterior.members))
    return posterior.draws(1 if POINT in model.posterior_part.provides else _DRAWS_PER_MEMBER, generator)
