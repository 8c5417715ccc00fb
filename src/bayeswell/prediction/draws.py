"""Networks drawn from the posterior: weights, BatchNorm statistics and dropout masks by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ..core.protocols import POINT
from ..core.random import derived_generator
from ..nn import BayesianModule, DrawnDropout, draw_masks
from ..posteriors import Mixture

Network = Mapping[str, Tensor]
"""Tensors by name, for ``model.call``."""


def has_masks(net: nn.Module) -> bool:
    """Return True if dropout masks are drawn with the weights."""
    return any(isinstance(module, DrawnDropout) for module in net.modules())


def num_distinct_draws(model: BayesianModule, count: int) -> int:
    """Return how many of ``count`` draws differ: one of a point estimate, each network of a set once."""
    if has_masks(model.net):
        return count
    if POINT in model.posterior.provides:
        return 1
    networks = model.posterior.num_networks
    return count if networks is None else min(count, networks)


def draws(model: BayesianModule, count: int, generator: torch.Generator | None) -> Iterator[Network]:
    """Return drawn networks for ``model.call``, made one at a time; draws that only repeat others are left out."""
    networks: Iterator[Network]
    if not has_masks(model.net):
        networks = model.posterior.draws(num_distinct_draws(model, count), generator)
        return networks
    # A separate generator: a posterior may draw several networks before it yields the first.
    masks = derived_generator(generator)
    networks = model.posterior.draws(count, generator)
    return ({**weights, **draw_masks(model.net, masks)} for weights in networks)


def mean_networks(model: BayesianModule) -> Iterator[Network]:
    """Yield the network at the posterior mean, without dropout; for a mixture that of each component."""
    posterior = model.posterior
    if isinstance(posterior, Mixture):
        yield from posterior.centers()
    else:
        yield model.layout.unflatten(posterior.mean.detach())
