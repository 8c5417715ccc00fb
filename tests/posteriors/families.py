"""Posteriors at generic values over a small network, and what they are by definition."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeswell.core.layout import Layout, Site
from bayeswell.core.protocols import Posterior, Prior
from bayeswell.posteriors import POSTERIORS
from bayeswell.priors import build_prior

LAYOUT = Layout(
    (
        Site(("conv.weight",), (3, 2, 2), "Conv1d", 4, 6),
        Site(("conv.bias",), (3,), "Conv1d", 4, 6),
        Site(("up.weight",), (3, 2, 2), "ConvTranspose1d", 6, 4, output_dim=1),
        Site(("up.bias",), (2,), "ConvTranspose1d", 6, 4),
        Site(("dense.weight",), (2, 6), "Linear", 6, 2),
        Site(("dense.bias",), (2,), "Linear", 6, 2),
    )
)
"""43 weights: a kernel, a transposed kernel, a matrix and vectors."""

DENSE: list[dict[str, Any]] = [
    {"name": "mean_field"},
    {"name": "mean_field", "parameter": "rho"},
    {"name": "shared_std"},
    {"name": "shared_std", "by": "all"},
    {"name": "k_tied", "rank": 1},
    {"name": "k_tied", "rank": 2},
    {"name": "low_rank", "rank": 3},
    {"name": "matrix_normal"},
    {"name": "full"},
]
"""Families with a density."""


def label(choice: dict[str, Any]) -> str:
    return "-".join(str(value) for value in choice.values())


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def a_prior(choice: Any = None, layout: Layout = LAYOUT, dtype: torch.dtype = torch.float64) -> Prior:
    return build_prior(choice or {"name": "normal", "std": 0.6}, layout, torch.zeros(layout.size, dtype=dtype))


def start(
    choice: Any, prior: Prior | None = None, layout: Layout = LAYOUT, dtype: torch.dtype = torch.float64
) -> Posterior:
    """Return the posterior as it starts, at a generic mean."""
    mean = 0.5 * normal(layout.size, seed=1, dtype=dtype)
    prior = a_prior(layout=layout, dtype=dtype) if prior is None else prior
    return POSTERIORS.resolve(choice).build(layout, prior, mean, torch.Generator().manual_seed(2))


def generic(choice: Any, prior: Prior | None = None, layout: Layout = LAYOUT) -> Posterior:
    """Return a posterior whose parameters are all moved from where they start, with stds around 0.2."""
    posterior = start({"initial_std": 0.2, **choice}, prior, layout)
    with torch.no_grad():
        for index, parameter in enumerate(posterior.parameters()):
            parameter.add_(0.3 * normal(*parameter.shape, seed=10 + index))
    return posterior


def covariance_of(posterior: Posterior) -> Tensor:
    """(P, P), from draws alone: they are linear in their noise."""
    with torch.no_grad():
        basis = torch.eye(posterior.noise_size, dtype=torch.float64)
        columns = posterior.rsample(basis) - posterior.mean
    return columns.T @ columns
