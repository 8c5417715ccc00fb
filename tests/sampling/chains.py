"""Chains that run side by side, and the samplers that run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from bayeswell.core.protocols import OptimizerContext
from bayeswell.core.random import make_generator
from bayeswell.sampling import Sampler
from bayeswell.sampling.sampler import SamplerPart

Array = np.ndarray


def build(part: SamplerPart, weights: nn.Parameter, steps: int, seed: int = 1, **settings: Any) -> Sampler:
    made = OptimizerContext(
        **{"dataset_size": 40, "total_steps": steps, "batches": 10, "generator": make_generator(seed), **settings}
    )
    sampler = part.build([{"name": "means", "params": [weights], "noise": True}], made)
    assert isinstance(sampler, Sampler)
    return sampler


def run(
    part: SamplerPart, gradient: Callable[[Tensor], Tensor], start: Tensor, steps: int, **settings: Any
) -> tuple[Tensor, Sampler]:
    """Return the chains (first axis of ``start``) after so many steps, and their sampler."""
    weights = nn.Parameter(start.clone())
    sampler = build(part, weights, steps, **settings)
    for _ in range(steps):
        weights.grad = gradient(weights.detach())
        sampler.step()
    return weights.detach(), sampler


def z_scores(draws: Tensor, mean: Array, covariance: Array) -> Array:
    """Return z-scores of means, variances and correlations; draws are independent and Gaussian."""
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
