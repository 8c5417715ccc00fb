"""BatchNorm statistics of a drawn or averaged network.

Running statistics belong to the weights they were gathered with. For a network drawn from a posterior, or an average of
weights, they are re-estimated:

    mean_c = (1/B) sum_b mean_{c,b},      variance_c = (1/B) sum_b variance_{c,b}    (unbiased in each batch b)

for channel c over B batches: one pass in training mode with a cumulative average (Izmailov et al. 2018, section 3.2;
Maddox et al. 2019, who weight batches by their size, which differs for a short last batch only).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..core.errors import DataError
from ..core.protocols import SAMPLED, Inputs
from ..core.random import replayable
from .functional import evaluation_mode
from .module import BayesianModule


def has_statistics(net: nn.Module) -> bool:
    """Return whether a network has BatchNorm layers with running statistics."""
    return bool(_layers(net))


@contextmanager
def kept_statistics(net: nn.Module) -> Iterator[None]:
    """Let BatchNorm layers update copies of their running statistics, which are dropped after the block."""
    layers = list(_layers(net).values())
    kept = [dict(layer._buffers) for layer in layers]
    try:
        # Copies, not restored values: the backward pass may still need the tensors of this pass.
        for layer in layers:
            layer._buffers.update({name: None if b is None else b.clone() for name, b in layer._buffers.items()})
        yield
    finally:
        for layer, buffers in zip(layers, kept, strict=True):
            layer._buffers.update(buffers)


def reestimate_statistics(
    model: BayesianModule, batches: Iterable[Inputs], generator: torch.Generator | None = None
) -> None:
    """Set the running statistics of the network to those of its posterior.

    With sampled predictions each batch is run by a new draw, as in training: E_q[mean_c] and E_q[variance_c].
    Otherwise they are those of the mean network.
    """
    if not has_statistics(model.net):
        return
    networks: Iterable[Mapping[str, Tensor]]
    if model.prediction == SAMPLED:
        networks = itertools.chain.from_iterable(model.posterior.draws(1, generator) for _ in itertools.count())
    else:
        networks = itertools.repeat(model.layout.unflatten(model.posterior.mean.detach()))
    with torch.no_grad():
        for name, value in statistics_of(model, networks, batches).items():
            model.net.get_buffer(name).copy_(value)


def statistics_of(
    model: BayesianModule, networks: Iterable[Mapping[str, Tensor]], batches: Iterable[Inputs]
) -> dict[str, Tensor]:
    """Return the statistics by name, for ``model.call``, with the next of ``networks`` for every batch.

    The model's buffers, modes and torch's generators do not change. ``itertools.repeat(weights)`` gives the
    statistics of one network. Empty for a network without running statistics.
    """
    layers = _layers(model.net)
    if not layers:
        return {}
    fresh = _fresh_statistics(layers)
    device = next(iter(fresh.values())).device
    momenta = {layer: layer.momentum for layer in layers.values()}
    count = 0
    with torch.no_grad(), replayable(None, device), evaluation_mode(model):
        try:
            for layer in momenta:
                layer.training, layer.momentum = True, None
            for batch, weights in zip(batches, networks, strict=False):
                model.call({**weights, **fresh}, batch)
                count += 1
        finally:
            for layer, momentum in momenta.items():
                layer.training, layer.momentum = False, momentum
    if count == 0:
        raise DataError("BatchNorm statistics need at least one batch of training inputs")
    return fresh


def _layers(net: nn.Module) -> dict[str, _BatchNorm]:
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def _fresh_statistics(layers: Mapping[str, _BatchNorm]) -> dict[str, Tensor]:
    # Mean 0, variance 1 and no batch seen, in new tensors that a pass updates in place.
    fresh = {}
    for prefix, layer in layers.items():
        for name, buffer in layer.named_buffers(prefix, recurse=False):
            fresh[name] = torch.ones_like(buffer) if name.endswith("running_var") else torch.zeros_like(buffer)
    return fresh
