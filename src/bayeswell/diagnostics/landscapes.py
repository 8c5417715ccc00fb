"""The loss along random lines and planes through a network, with directions as long as its filters.

Li et al. 2018, "Visualizing the loss landscape of neural nets": a direction d ~ N(0, I) in which each filter d_i (the
weights into one output unit) is given the norm of the network's own filter w_i; biases and other vectors do not move.
So a distance of 1 is as much as the weights themselves, whatever the scale of the layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, require_count, require_positive
from ..lifting import BayesianModule
from ..predictive.losses import DataLoss
from ..random import make_generator, standard_normal
from ..tree import Layout
from ..types import FACTORISED, Inputs, Likelihood
from .records import Record


@dataclass(frozen=True)
class LossLine(Record):
    """``losses[i]`` is L(w + ``distances[i]`` d) in nats per datum.

    ``posterior_std`` is the std of the posterior along d, in the same units as the distances; None for a posterior with
    correlated weights, or a point.
    """

    distances: tuple[float, ...]
    losses: tuple[float, ...]
    posterior_std: float | None
    examples: int
    seed: int


@dataclass(frozen=True)
class LossPlane(Record):
    """``losses[i][j]`` is L(w + ``distances[i]`` d + ``distances[j]`` d') in nats per datum; stds as for a line."""

    distances: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    posterior_stds: tuple[float, float] | None
    examples: int
    seed: int


def loss_line(
    model: BayesianModule,
    likelihood: Likelihood,
    data: tuple[Inputs, Any],
    *,
    reach: float = 1.0,
    points: int = 21,
    around: Mapping[str, Tensor] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> LossLine:
    """The loss at ``points`` places from -reach to reach along a random filter-normalised direction.

    Around the posterior's mean, or around a network of one's own (``model.draw()``; a bank has no mean to go around).
    One pass over the data a point.
    """
    loss, centre, rest, (direction,) = _prepare(model, likelihood, data, around, batch_size, seed, reach, points, 1)
    places = _places(reach, points)
    losses = tuple(loss.at(centre + place * direction, rest) for place in places)
    spread = _spread(model, direction)
    return LossLine(places, losses, spread, loss.examples, seed)


def loss_plane(
    model: BayesianModule,
    likelihood: Likelihood,
    data: tuple[Inputs, Any],
    *,
    reach: float = 1.0,
    points: int = 11,
    around: Mapping[str, Tensor] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> LossPlane:
    """The loss on a grid of ``points`` x ``points`` in the plane of two such directions; else as ``loss_line``."""
    loss, centre, rest, (first, second) = _prepare(model, likelihood, data, around, batch_size, seed, reach, points, 2)
    places = _places(reach, points)
    losses = tuple(tuple(loss.at(centre + i * first + j * second, rest) for j in places) for i in places)
    stds = (_spread(model, first), _spread(model, second))
    known = None if stds[0] is None or stds[1] is None else (stds[0], stds[1])
    return LossPlane(places, losses, known, loss.examples, seed)


def filter_normalised(layout: Layout, centre: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(P,): a random direction in which each filter is as long as the centre's; zero for biases and other vectors."""
    direction = standard_normal(centre.shape, like=centre, generator=generator)
    pieces = []
    for site, part in zip(layout.sites, layout.slices.values(), strict=True):
        if site.matrix_shape is None:
            pieces.append(torch.zeros_like(centre[part]))
            continue
        drawn, own = (site.to_matrix(vector[part].view(site.shape)) for vector in (direction, centre))
        scaled = drawn * (own.norm(dim=1, keepdim=True) / drawn.norm(dim=1, keepdim=True))
        pieces.append(site.from_matrix(scaled).reshape(-1))
    return torch.cat(pieces)


def _prepare(
    model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], around: Mapping[str, Tensor] | None,
    batch_size: int | None, seed: int, reach: float, points: int, directions: int,
) -> tuple[DataLoss, Tensor, Mapping[str, Tensor], list[Tensor]]:  # fmt: skip
    require_positive("loss landscape", "reach", reach)
    require_count("loss landscape", "points", points)
    loss = DataLoss(model, likelihood, data, batch_size)
    rest = dict(model.centre()) if around is None else dict(around)
    centre = model.layout.flatten(rest).detach()
    generator = make_generator(seed, centre.device)
    drawn = [filter_normalised(model.layout, centre, generator) for _ in range(directions)]
    if not all(float(direction.norm()) > 0 for direction in drawn):
        raise DataError("loss landscape: the network has no Bayesian weight matrix with weights other than 0 to vary")
    return loss, centre, rest, drawn


def _places(reach: float, points: int) -> tuple[float, ...]:
    return tuple(torch.linspace(-reach, reach, points, dtype=torch.float64).tolist()) if points > 1 else (0.0,)


@torch.no_grad()
def _spread(model: BayesianModule, direction: Tensor) -> float | None:
    """sqrt(sum_i d_i^2 s_i^2) / |d|^2: the std of the projection onto d, as a multiple of d."""
    if FACTORISED not in model.posterior_part.provides:
        return None
    return float((direction * model.posterior.std_vector()).norm() / direction.square().sum())
