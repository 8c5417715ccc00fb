"""Sharpness: how much worse the loss gets in the neighbourhood of networks drawn from the posterior.

    max over |e| <= rho of L(w + e) - L(w)               plain
    max over |e / |w|| <= rho of L(w + e) - L(w)         adaptive (Kwon et al. 2021): does not change if layers are
                                                         rescaled against one another

L is the mean NLL over the given data (all of it, or a fixed part), with BatchNorm in evaluation mode. Nothing is
trained: the published code of Nguyen et al. 2023 takes a training step in each batch that it measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import require_count, require_positive
from ..lifting import BayesianModule
from ..metrics import estimate_mean
from ..predictive.losses import DataLoss
from ..random import make_generator, standard_normal
from ..types import Inputs, Likelihood
from .records import Record

_LONGER, _SHORTER = 1.5, 0.5
"""What a step is multiplied by after a success and a failure; not inverse to one another, which can go in a circle."""

_LONGEST = 16.0
"""The longest step, in units of rho: beyond it only the direction of the gradient counts anyway."""


@dataclass(frozen=True)
class DrawSharpness(Record):
    """One network: its loss L(w), and L(w + e) - L(w) for the one-step e and for the best e found by ascent."""

    loss: float
    one_step: float
    ascent: float


@dataclass(frozen=True)
class SharpnessReport(Record):
    """All draws, and their means with standard errors over draws (None of a single one)."""

    rho: float
    adaptive: bool
    steps: int
    examples: int
    draws: tuple[DrawSharpness, ...]
    loss: float
    one_step: float
    one_step_error: float | None
    ascent: float
    ascent_error: float | None


def sharpness(
    model: BayesianModule,
    likelihood: Likelihood,
    data: tuple[Inputs, Any],
    *,
    rho: float = 0.05,
    adaptive: bool = False,
    draws: int = 5,
    steps: int = 20,
    batch_size: int | None = None,
    seed: int = 0,
) -> SharpnessReport:
    """Sharpness of networks drawn from the posterior, in nats per datum.

    ``one_step`` goes the length rho along the gradient. ``ascent`` starts there and goes on for ``steps`` evaluations
    of the gradient, projected into the ball; a step that does not raise the loss is taken back and halved, else the
    next is longer, so it is never below one_step or 0, and never above the true maximum. The Bayesian weights
    are moved; deterministic parameters are not. Costs 3 passes over the data an evaluation.
    """
    require_positive("sharpness", "rho", rho)
    require_count("sharpness", "draws", draws)
    require_count("sharpness", "steps", steps)
    loss = DataLoss(model, likelihood, data, batch_size)
    generator = make_generator(seed, loss.home.device)
    found = []
    for tensors in model.draws(model.useful_draws(draws), generator):
        weights = model.layout.flatten(tensors).detach()
        scale = weights.abs() if adaptive else torch.ones_like(weights)
        found.append(_of_draw(loss, weights, tensors, scale, rho, steps, generator))
    average, one_step, ascent = (
        estimate_mean(torch.tensor([getattr(draw, name) for draw in found], dtype=torch.float64))
        for name in ("loss", "one_step", "ascent")
    )
    means = (average.value, one_step.value, one_step.error, ascent.value, ascent.error)
    return SharpnessReport(rho, adaptive, steps, loss.examples, tuple(found), *means)


def _of_draw(
    loss: DataLoss, weights: Tensor, rest: dict[str, Tensor], scale: Tensor, rho: float, steps: int,
    generator: torch.Generator,
) -> DrawSharpness:  # fmt: skip
    """In the coordinates d = e / scale the neighbourhood is the ball |d| <= rho."""
    start, gradient = loss.with_gradient(weights, rest)
    place, best = torch.zeros_like(weights), start
    direction, length, one_step = scale * gradient, rho, 0.0
    for step in range(steps):
        trial = _projected(place + length * _unit(direction, scale, generator), rho)
        value, gradient = loss.with_gradient(weights + scale * trial, rest)
        if step == 0:
            one_step = value - start
        if value > best:
            place, best, direction = trial, value, scale * gradient
            length = min(_LONGER * length, _LONGEST * rho)
        else:
            length = _SHORTER * length
    return DrawSharpness(start, one_step, best - start)


def _unit(direction: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor:
    """The direction with length 1; where there is none, a random one: at a stationary point curvature has to show."""
    length = direction.norm()
    if not float(length) > 0:
        direction = standard_normal(direction.shape, like=direction, generator=generator) * (scale > 0)
        length = direction.norm()
    unit: Tensor = direction / length.clamp_min(torch.finfo(direction.dtype).tiny)
    return unit


def _projected(place: Tensor, rho: float) -> Tensor:
    length = float(place.norm())
    return place * (rho / length) if length > rho else place
