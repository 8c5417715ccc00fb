"""SWAG of a training that is over, from the checkpoints it left."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..averaging import SWAG, SWAGDiagonal
from ..errors import BayeswellWarning, SettingError, nearest
from ..lifting import Where, bayesian
from ..lifting.statistics import has_statistics, statistics_over
from ..likelihoods import LIKELIHOODS
from ..nested import map_tensors
from ..priors import PriorChoice
from ..random import derive_seed, make_generator
from ..registry import label_of
from ..training import as_batches
from ..training.as_given import learned_noise, outputs_and_targets, settle_noise
from ..training.examples import dtype_of
from ..training.finalize import average_the_rest, with_own_statistics
from ..types import Inputs, Progress
from .checkpoints import AveragedBuffers, Checkpoint, networks_of, put_buffers
from .result import PostHoc

_STRUCTURES = ("low_rank", "diagonal")


def swag(
    net: nn.Module,
    checkpoints: Iterable[Checkpoint],
    data: Any = None,
    likelihood: Any = "categorical",
    *,
    structure: str = "low_rank",
    rank: int | None = None,
    scale: float | None = None,
    where: Where = "all",
    prior: PriorChoice = "kaiming",
    batch_size: int = 100,
    seed: int = 0,
) -> PostHoc:
    """A Gaussian around the checkpoints of a training that is over (Maddox et al. 2019). Nothing is trained.

    Mean and covariance are those of the collector ``swag`` for the same snapshots; the network's other trained
    parameters (BatchNorm's scale and offset) end at their average.

    Args:
        net: the network; it is copied, its own weights do not matter.
        checkpoints: at least two snapshots of late training, in their order, all counting alike: state dicts, networks,
            or paths of .safetensors files, which are read one at a time.
        data: the training data (or inputs of their kind), as in ``fit``: BatchNorm's statistics are re-estimated for
            each of 30 draws, as after training, and noise that the likelihood learns is found.
        likelihood: as in ``fit``.
        structure: "low_rank" (variances and the last ``rank`` deviations, 20 or as many as there are), or "diagonal".
        scale: of the covariance; None: the paper's, 1/2, and 1 of a diagonal.
        where: which parameters are Bayesian, as in ``bayesian``.
        prior: as in ``bayesian``; it only says what the spread is compared with.
        batch_size: examples at a time; a DataLoader keeps its own.
        seed: decides those draws, and the order of the data.
    """
    given = list(checkpoints)
    if len(given) < 2:
        raise SettingError(f"swag: {len(given)} checkpoints; a spread needs at least two")
    if rank is not None and rank > len(given):
        raise SettingError(f"swag: rank = {rank} exceeds the {len(given)} checkpoints; use at most {len(given)}")
    if structure not in _STRUCTURES:
        raise SettingError(f"swag: structure = {structure!r}; {nearest(str(structure), _STRUCTURES)}")
    own = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    if data is None and learned_noise(own):
        raise SettingError(
            f"swag: likelihood {label_of(own)} learns its noise, which checkpoints of the network do not tell: give "
            "data=, or a likelihood whose noise is known"
        )
    batches = None if data is None else as_batches(data, batch_size, dtype_of(net))
    every_step: dict[str, Any] = {"start": 0.0, "cycle": 1, **({} if scale is None else {"scale": scale})}
    part = SWAG(rank=rank, **every_step) if structure == "low_rank" else SWAGDiagonal(**every_step)
    model = bayesian(net, "delta", prior, where=where)
    collector = part.build(model, len(given), 1)
    buffers = AveragedBuffers()
    for step, found in enumerate(networks_of(net, given)):
        parameters = dict(found.named_parameters())
        with torch.no_grad():
            model.posterior.mean_vector().copy_(model.layout.flatten(parameters))
            for name, parameter in model.net.named_parameters():
                parameter.copy_(parameters[name])
        buffers.add(found)
        collector.observe(model, Progress(step, len(given), 0, 1))
    put_buffers(model.net, buffers.means)
    model = model.with_posterior(*collector.result())
    average_the_rest(model, collector)
    device = model.posterior.mean_vector().device

    def one_pass() -> Iterator[tuple[Inputs, Tensor]]:
        assert batches is not None
        for inputs, targets in batches.epoch(derive_seed(seed, "ending")):
            yield map_tensors(inputs, lambda tensor: tensor.to(device)), targets.to(device)

    if batches is not None:
        own_statistics = statistics_over(model, itertools.repeat(model.centre()), (x for x, _ in one_pass()))
        put_buffers(model.net, own_statistics)
    if learned_noise(own):
        if isinstance(own, nn.Module):
            own.to(device)
        settle_noise(own, *outputs_and_targets(model, own, one_pass()))
    if has_statistics(model.net) and batches is None:
        warnings.warn(
            "swag: the network has BatchNorm, whose statistics belong to the weights they were gathered with; without "
            "data all draws use the average of the checkpoints' own: give data= to have them re-estimated",
            BayeswellWarning,
            stacklevel=2,
        )
    elif has_statistics(model.net):
        generator = make_generator(derive_seed(seed, "draws"), device)
        model = with_own_statistics(model, lambda: (inputs for inputs, _ in one_pass()), generator)
    return PostHoc(model, own)
