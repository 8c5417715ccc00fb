"""Chains that run side by side, and the samplers that run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.random import make_generator
from bayeswell.samplers import PSGLD, SGHMC, SGLD, CyclicalSGLD, Sampler
from bayeswell.samplers.stepping import SamplerPart

Z = 6.0

Array = np.ndarray


def run(
    part: SamplerPart, gradient: Callable[[Tensor], Tensor], start: Tensor, steps: int, dataset_size: int, seed: int = 1
) -> Tensor:
    """Where the chains (first axis of ``start``) stand after so many steps, in float64."""
    weights = nn.Parameter(start.clone())
    sampler = part.build([weights], dataset_size, make_generator(seed), steps)
    for _ in range(steps):
        weights.grad = gradient(weights.detach())
        sampler.step()
    return weights.detach().double()


def z_scores(draws: Tensor, mean: Array, covariance: Array) -> Array:
    """Of the means, the variances and the correlations; draws are independent and Gaussian."""
    values, count = draws.numpy(), len(draws)
    variance = np.diag(covariance)
    found = np.cov(values.T)
    upper = np.triu_indices(len(mean), 1)
    wanted_r, found_r = (c[upper] / np.sqrt(np.outer(np.diag(c), np.diag(c)))[upper] for c in (covariance, found))
    return np.concatenate(
        [
            (values.mean(0) - mean) / np.sqrt(variance / count),
            (np.diag(found) - variance) / (variance * np.sqrt(2 / count)),
            # Fisher's transform: normal with variance 1/(n - 3), whatever the correlation.
            (np.arctanh(found_r) - np.arctanh(wanted_r)) * np.sqrt(count - 3),
        ]
    )


PARTS: dict[str, Any] = {
    "sgld": SGLD(lr=0.3, temperature=1.4, gamma=0.6, b=3.0),
    "sghmc euler": SGHMC(lr=0.2, temperature=1.4, momentum=0.7, integrator="euler", gamma=0.8, b=5.0),
    "sghmc baoab": SGHMC(lr=0.2, temperature=1.4, momentum=0.7, integrator="baoab", gamma=0.8, b=5.0),
    "psgld": PSGLD(lr=0.1, temperature=1.4, decay=0.8, damping=0.1, adapt_steps=6, gamma=0.7, b=4.0),
    "cyclical_sgld": CyclicalSGLD(lr=0.2, temperature=1.4, cycles=2, exploration=0.3, collection=0.6),
}

each_part = pytest.mark.parametrize("name", PARTS)


def random_gradients(steps: int, *shapes: tuple[int, ...], seed: int = 21) -> list[list[Tensor]]:
    generator = make_generator(seed)
    return [[torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes] for _ in range(steps)]


def take(sampler: Sampler, params: Sequence[Tensor], gradients: Sequence[Sequence[Tensor]]) -> None:
    for row in gradients:
        for param, grad in zip(params, row, strict=True):
            param.grad = grad.clone()
        sampler.step()
