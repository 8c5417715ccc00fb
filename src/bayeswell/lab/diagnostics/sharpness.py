"""Sharpness: how much worse the loss becomes around networks drawn from the posterior.

    max over |e| <= rho of L(w + e) - L(w)               plain
    max over |e / |w|| <= rho of L(w + e) - L(w)         adaptive (Kwon et al. 2021): invariant to a rescaling of layers

L is the mean NLL over the given data, with BatchNorm in evaluation mode. Nothing is trained: the published code of
Nguyen et al. 2023 takes a training step in each batch that it measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.errors import check_integer, check_number
from ...core.protocols import Likelihood
from ...core.pytree import num_examples
from ...core.random import make_generator, standard_normal
from ...metrics import Estimate, estimate_mean
from ...nn import BayesianModule, evaluation_mode
from ...prediction import draws as drawn_networks
from ...prediction.inputs import as_inputs, as_targets, batches_of, like_of, on_device

LONGER, SHORTER = 1.5, 0.5
"""Factors of the step after a success and a failure; not inverse to each other, which could cycle."""
LONGEST = 16.0
"""Longest step in units of rho: beyond it only the direction counts."""


@dataclass(frozen=True)
class SharpnessReport:
    """Means over the drawn networks, in nats per datum, with standard errors over draws.

    Args:
        loss: L(w).
        one_step: L(w + e) - L(w) of one step of length rho along the gradient.
        ascent: the largest difference that projected gradient ascent found; never below ``one_step`` or 0.
        values: (draws, 3): loss, one_step and ascent of each network.
    """

    rho: float
    adaptive: bool
    loss: Estimate
    one_step: Estimate
    ascent: Estimate
    values: Tensor


class DataLoss:
    """L(w) and its gradient in the Bayesian weights, in batches."""

    def __init__(
        self, model: BayesianModule, likelihood: Likelihood, inputs: Any, targets: Any, batch_size: int | None
    ) -> None:
        self.model, self.likelihood, self.like = model, likelihood, like_of(model)
        found = as_inputs(model, inputs)
        self.examples = num_examples(found)
        device = self.like.device
        self.batches = [on_device(batch, device) for batch in batches_of(found, batch_size)]
        self.targets = as_targets(targets, self.examples).to(device).split([num_examples(b) for b in self.batches])

    def with_gradient(self, weights: Tensor, others: Mapping[str, Tensor]) -> tuple[float, Tensor]:
        """Return L and dL/dw at flat weights (P,); ``others`` are masks and statistics of the drawn network."""
        leaf = weights.detach().clone().requires_grad_()
        total, gradient = 0.0, torch.zeros_like(leaf)
        with torch.enable_grad(), evaluation_mode(self.model):
            for inputs, targets in zip(self.batches, self.targets, strict=True):
                outputs = self.model.call({**others, **self.model.layout.unflatten(leaf)}, inputs)
                loss = self.likelihood.nll(outputs.double(), targets).sum() / self.examples
                gradient += torch.autograd.grad(loss, leaf)[0]
                total += float(loss.detach())
        return total, gradient


def sharpness(
    model: BayesianModule,
    likelihood: Likelihood,
    data: tuple[Any, Any],
    *,
    rho: float = 0.05,
    adaptive: bool = False,
    draws: int = 5,
    steps: int = 20,
    batch_size: int | None = None,
    seed: int = 0,
) -> SharpnessReport:
    """Return the sharpness of networks drawn from the posterior; it costs ``draws * steps`` gradients of the data.

    Args:
        model: a Bayesian network.
        likelihood: with its learned noise.
        data: inputs and targets.
        rho: radius of the neighborhood.
        adaptive: measure the radius relative to each weight.
        draws: the number of networks.
        steps: gradients of the ascent in each neighborhood.
        batch_size: examples of one pass; None: all.
        seed: of the draws.
    """
    check_number("sharpness", "rho", rho, 0, above=True)
    check_integer("sharpness", "draws", draws)
    check_integer("sharpness", "steps", steps)
    loss, found = DataLoss(model, likelihood, data[0], data[1], batch_size), []
    generator = make_generator(seed, loss.like.device)
    for network in drawn_networks(model, draws, generator):
        weights = model.layout.flatten(network).detach()
        scale = weights.abs() if adaptive else torch.ones_like(weights)
        found.append(_climb(loss, weights, network, scale, rho, steps, generator))
    values = torch.tensor(found, dtype=torch.float64)
    loss_mean, one_step, ascent = (estimate_mean(values[:, column]) for column in range(3))
    return SharpnessReport(rho, adaptive, loss_mean, one_step, ascent, values)


def _climb(
    loss: DataLoss,
    weights: Tensor,
    others: Mapping[str, Tensor],
    scale: Tensor,
    rho: float,
    steps: int,
    generator: torch.Generator,
) -> tuple[float, float, float]:
    """Return loss, one-step difference and best difference within the ball |d| <= rho, d = e / scale.

    A step that does not raise the loss is taken back and halved, else the next one is longer.
    """
    start, gradient = loss.with_gradient(weights, others)
    place, best = torch.zeros_like(weights), start
    direction, length, one_step = scale * gradient, rho, 0.0
    for step in range(steps):
        trial = place + length * _unit(direction, scale, generator)
        trial = trial * (rho / trial.norm()).clamp_max(1)
        value, gradient = loss.with_gradient(weights + scale * trial, others)
        if step == 0:
            one_step = value - start
        if value > best:
            place, best, direction = trial, value, scale * gradient
            length = min(LONGER * length, LONGEST * rho)
        else:
            length = SHORTER * length
    return start, one_step, best - start


def _unit(direction: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor:
    # At a stationary point a random direction shows the curvature.
    if not float(direction.norm()) > 0:
        direction = standard_normal(direction.shape, like=direction, generator=generator) * (scale > 0)
    length: Tensor = direction.norm().clamp_min(torch.finfo(direction.dtype).tiny)
    return direction / length
