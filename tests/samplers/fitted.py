"""Linear regression with a posterior in closed form, and a sampler that fits itself to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeswell.random import make_generator
from bayeswell.samplers.fitting import FittedSampler

NOISE = 0.3


@dataclass(frozen=True)
class Linear:
    """y = x w + noise of known std, w ~ N(0, I): N(mean, covariance) at temperature T. Inputs of unequal scales."""

    inputs: Tensor
    targets: Tensor
    temperature: float = 1.0

    @classmethod
    def made(cls, condition: float, examples: int = 400, weights: int = 6, temperature: float = 1.0) -> Linear:
        generator = make_generator(77)
        scales = torch.logspace(0, -math.log10(condition) / 2, weights, dtype=torch.float64)
        inputs = scales * torch.randn(examples, weights, dtype=torch.float64, generator=generator)
        truth, noise = (torch.randn(n, dtype=torch.float64, generator=generator) for n in (weights, examples))
        return cls(inputs, inputs @ truth + NOISE * noise, temperature)

    @property
    def posterior(self) -> tuple[Tensor, Tensor]:
        """Mean and stds."""
        precision = self.inputs.T @ self.inputs / NOISE**2 / self.temperature
        covariance = torch.linalg.inv(precision + torch.eye(len(precision), dtype=torch.float64))
        mean = covariance @ self.inputs.T @ self.targets / NOISE**2 / self.temperature
        return mean, covariance.diag().sqrt()

    def batches(self, size: int, steps: int, seed: int) -> list[tuple[Tensor, Tensor]]:
        """Passes over the data in random orders."""
        examples, generator = len(self.targets), make_generator(seed)
        each = examples // size
        found: list[tuple[Tensor, Tensor]] = []
        while len(found) < steps:
            order = torch.randperm(examples, generator=generator)
            found += [(self.inputs[rows], self.targets[rows]) for rows in order.split(size)[:each]]
        return found[:steps]

    def slope(self, weights: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[float, Tensor]:
        """The objective -log joint / N of a batch and its gradient; rows of weights are summed over."""
        inputs, targets = batch
        error = weights @ inputs.T - targets
        scale, examples = self.temperature / len(self.targets), len(targets)
        total = 0.5 * error.square().sum() / NOISE**2 / examples + 0.5 * scale * weights.square().sum()
        return float(total), error @ inputs / NOISE**2 / examples + scale * weights


class Chain:
    """A sampler at work on it, as the training loop would drive it.

    ``copies`` of the weights are chains side by side, which share nothing but the sampler and its rate.
    """

    def __init__(
        self, part: Any, problem: Linear, batch_size: int, steps: int, seed: int = 1, copies: int | None = None
    ) -> None:
        self.problem, self.batches = problem, problem.batches(batch_size, steps, seed)
        shape = (problem.inputs.shape[1],) if copies is None else (copies, problem.inputs.shape[1])
        self.weights = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        made = part.tempered(problem.temperature).build(
            [self.weights], len(problem.targets), make_generator(seed), steps
        )
        assert isinstance(made, FittedSampler)
        self.sampler = made
        self.draws: list[Tensor] = []

    def run(self, steps: int | None = None, disturb: Callable[[int, Tensor], float] | None = None) -> Chain:
        """Further steps, to the end or so many; ``disturb`` may add to the objective of a step."""
        done = self.sampler.steps
        last = len(self.batches) if steps is None else done + steps
        for step in range(done, last):
            total = self._gradient(step)
            if disturb is not None:
                total += disturb(step, self.weights.detach())
            if self.sampler.observe(total, lambda step=step: self._gradient(step)):  # type: ignore[misc]
                self.sampler.step()
            if self.sampler.collects(step):
                self.draws.append(self.weights.detach().clone())
        return self

    def _gradient(self, step: int) -> float:
        total, self.weights.grad = self.problem.slope(self.weights.detach(), self.batches[step])
        return total

    def ratios(self) -> tuple[Tensor, Tensor]:
        """Errors of the mean in stds, and std ratios, of the draws kept."""
        mean, std = self.problem.posterior
        draws = torch.stack(self.draws).reshape(-1, len(mean))
        return (draws.mean(0) - mean) / std, draws.std(0) / std
