"""BatchNorm statistics of a drawn or averaged network.

Running statistics belong to the weights they were gathered with. A network drawn from a posterior, or an average of
weights, was never run on the training data: its statistics are those of

    mean_c = (1/B) sum_b mean_{c,b},      variance_c = (1/B) sum_b variance_{c,b}    (unbiased in each batch b)

for channel c over B batches: one pass in training mode with a cumulative average (Izmailov et al. 2018, section 3.2;
Maddox et al. 2019, who weigh batches by their size, which differs for a short last batch only).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import DataError, NetworkError
from ..finite import all_finite
from ..modes import evaluation_mode
from ..random import replayable
from ..types import BayesianModel, Inputs


def has_statistics(net: nn.Module) -> bool:
    """Whether a network has BatchNorm layers with running statistics."""
    return bool(_layers(net))


def reestimate(
    model: BayesianModel, tensors: Mapping[str, Tensor], batches: Iterable[Inputs]
) -> dict[str, Tensor]:  # fmt: skip
    """The tensors of one network, together with the BatchNorm statistics that belong to it, for ``model.call``.

    Runs the network over ``batches`` (inputs alone, on the model's device) with BatchNorm in training mode and all
    else, dropout among it, in evaluation mode. The model's buffers, modes and torch's generators are left as they
    were. A network without running statistics comes back as it is, without a pass.
    """
    return {**tensors, **statistics_over(model, itertools.repeat(tensors), batches)}


def statistics_over(
    model: BayesianModel, networks: Iterable[Mapping[str, Tensor]], batches: Iterable[Inputs]
) -> dict[str, Tensor]:
    """The statistics by name, with the next of ``networks`` for every batch.

    Of draws from one posterior this gives E_q[mean_c] and E_q[variance_c] in one pass: what training on draws leaves in
    the running statistics, at the averaged posterior. Empty for a network without running statistics.
    """
    layers = _layers(model.net)
    if not layers:
        return {}
    fresh = _fresh_statistics(layers)
    device = next(iter(fresh.values())).device
    count = 0
    with torch.no_grad(), replayable(None, device), _only_statistics(model.net, layers.values()):
        for tensors, inputs in zip(networks, batches, strict=False):
            _run(model, {**tensors, **fresh}, inputs, count)
            count += 1
    if count == 0:
        raise DataError(
            "BatchNorm statistics cannot be re-estimated from no batches; give the training inputs in batches"
        )
    for name, tensor in fresh.items():
        if not all_finite([tensor]):
            raise NetworkError(f"the re-estimated statistics '{name}' hold NaN or inf: so do the network's activations")
    return fresh


def _layers(net: nn.Module) -> dict[str, _BatchNorm]:
    return {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def _fresh_statistics(layers: Mapping[str, _BatchNorm]) -> dict[str, Tensor]:
    """Mean 0, variance 1, no batch seen; in tensors of their own, which the pass updates in place."""
    fresh = {}
    for name, layer in layers.items():
        prefix = f"{name}." if name else ""
        for local_name, buffer in layer.named_buffers(recurse=False):
            if local_name in ("running_mean", "num_batches_tracked"):
                fresh[prefix + local_name] = torch.zeros_like(buffer)
            elif local_name == "running_var":
                fresh[prefix + local_name] = torch.ones_like(buffer)
    return fresh


@contextmanager
def _only_statistics(net: nn.Module, layers: Iterable[_BatchNorm]) -> Iterator[None]:
    """Evaluation mode but for BatchNorm, which takes cumulative averages; afterwards all is as it was."""
    momenta = [(layer, layer.momentum) for layer in layers]
    with evaluation_mode(net):
        try:
            for layer, _ in momenta:
                layer.training, layer.momentum = True, None
            yield
        finally:
            for layer, momentum in momenta:
                layer.momentum = momentum


def _run(model: BayesianModel, network: Mapping[str, Tensor], inputs: Inputs, number: int) -> None:
    try:
        model.call(network, inputs)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            f"batch {number} has a single value for each channel, from which BatchNorm cannot take a variance; give "
            "larger batches, or drop the last"
        ) from error
