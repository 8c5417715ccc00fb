"""From several trained members (an ensemble, the chains of a sampler) to one posterior.

Networks (points, and the draws of chains) become a bank, one behind the other. Distributions become a mixture of them:
kept as they are, and drawn from equally often. Where a family cannot be written down by name (a part of one's own that
is not registered), so many draws of each member go into the bank that there are ``DRAWS`` of all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FileError
from ..lifting import BayesianModule
from ..lifting.dropout import seeds_of_masks
from ..posteriors import POSTERIORS, Empirical, EmpiricalPosterior, Mixture, MixturePosterior
from ..registry import settings_of
from ..types import BANK, LOG_PROB, POINT
from .records import EpochRecord, History
from .saved_state import require_alike

DRAWS = 100


@dataclass(frozen=True)
class Contribution:
    """What one member leaves: its networks as rows, or its posterior's state; what it learned of noise; its history.

    ``extras`` are the network's other parameters and buffers: a row for each network, or one for the distribution.
    """

    weights: Tensor
    extras: Mapping[str, Tensor]
    likelihood: Mapping[str, Tensor]
    history: History
    posterior: Mapping[str, Tensor] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data."""
        return {
            "weights": self.weights,
            "extras": dict(self.extras),
            "likelihood": dict(self.likelihood),
            "history": [record.as_state() for record in self.history.epochs],
            "posterior": dict(self.posterior),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Contribution:
        """The inverse of ``state_dict``."""
        history = History([EpochRecord(**record) for record in state["history"]])
        kept = state.get("posterior", {})  # not in files of older versions
        return cls(state["weights"], state["extras"], state["likelihood"], history, kept)

    def require_fit(self, model: BayesianModule, likelihood: Any) -> None:
        """Refuse what was saved of a member of another run, before more is trained beside it."""
        learned = dict(likelihood.state_dict()) if isinstance(likelihood, nn.Module) else {}
        require_alike(self.likelihood, learned, "finished/likelihood")
        if self.posterior:
            require_alike(self.posterior, dict(model.posterior.state_dict()), "finished/posterior")
        else:
            require_alike(self.weights, model.posterior.like().new_empty(0, model.layout.size), "finished/weights")
        own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
        for name, rows in self.extras.items():
            like = own.get(name)
            if like is None:
                raise FileError(f"the saved state has values of '{name}', which this network has not")
            networks = 1 if self.posterior else len(self.weights)
            require_alike(rows, like.detach().expand(networks, *like.shape), f"finished/{name}")


def contribution(
    model: BayesianModule, likelihood: Any, history: History, members: int, generator: torch.Generator
) -> Contribution:
    """A bank gives all it has, in order; a point itself; a distribution itself, or draws."""
    learned = dict(likelihood.state_dict()) if isinstance(likelihood, nn.Module) else {}
    own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
    for name in seeds_of_masks(model.net):  # a draw's own, not the network's
        own.pop(name, None)
    if _can_be_mixed(model):
        extras = {name: value.detach().clone()[None] for name, value in own.items()}
        kept = {name: value.detach().clone() for name, value in model.posterior.state_dict().items()}
        return Contribution(model.posterior.like().new_empty(0), extras, learned, history, kept)
    posterior, provides = model.posterior, model.posterior_part.provides
    networks: Iterator[dict[str, Tensor]]
    if BANK in provides:
        networks = (posterior.member(index) for index in range(posterior.members))
    else:
        networks = posterior.draws(1 if POINT in provides else math.ceil(DRAWS / members), generator)
    weights: list[Tensor] = []
    rows: dict[str, list[Tensor]] = {}
    for tensors in networks:
        weights.append(model.layout.flatten(tensors))
        for name, value in own.items():
            rows.setdefault(name, []).append(tensors.get(name, value).detach().clone())
    stacked = {name: torch.stack(values) for name, values in rows.items()}
    return Contribution(torch.stack(weights), stacked, learned, history)


def gather(model: BayesianModule, contributions: Sequence[Contribution]) -> BayesianModule:
    """All members as one posterior; ``model`` is any of them."""
    extras = {name: torch.cat([m.extras[name] for m in contributions]) for name in contributions[0].extras}
    if contributions[0].posterior:
        components = [copy.deepcopy(model.posterior) for _ in contributions]
        for component, member in zip(components, contributions, strict=True):
            component.load_state_dict(dict(member.posterior))
        part = Mixture(len(components), settings_of(model.posterior_part), tuple(extras))
        return model.with_posterior(part, MixturePosterior(model.layout, components, extras))
    weights = torch.cat([member.weights for member in contributions])
    posterior = EmpiricalPosterior(model.layout, weights, extras)
    return model.with_posterior(Empirical(len(weights), tuple(extras)), posterior)


def mean_likelihood(likelihood: Any, contributions: Sequence[Contribution]) -> Any:
    """One likelihood for all members: what they learned of the noise, averaged."""
    states = [member.likelihood for member in contributions]
    if states and states[0] and isinstance(likelihood, nn.Module):
        likelihood.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
    return likelihood


def _can_be_mixed(model: BayesianModule) -> bool:
    """A distribution with a density whose family a file can call by name."""
    part = model.posterior_part
    known = POSTERIORS.knows(part.name) and type(part) is POSTERIORS[part.name]
    return known and LOG_PROB in part.provides and not part.provides & {POINT, BANK}
