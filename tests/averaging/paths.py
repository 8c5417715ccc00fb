"""A small Bayesian network whose means and stds follow a given path, and an averager that watches it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayeswell.averaging import AVERAGERS
from bayeswell.core.protocols import Averager, Posterior, Progress
from bayeswell.core.random import make_generator
from bayeswell.nn import BayesianModule, bayesian

Array = np.ndarray
BATCHES = 4


def small_model(posterior: Any = "mean_field", dtype: torch.dtype = torch.float64) -> BayesianModule:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).to(dtype)
    return bayesian(net, posterior, where=["0.*", "3.*"], generator=make_generator(1))


def path(steps: int, size: int, seed: int = 3) -> tuple[Array, Array, Array]:
    """Means far from zero, stds, and values of the BatchNorm scale."""
    generator = np.random.default_rng(seed)
    means = 50.0 + np.cumsum(generator.standard_normal((steps, size)), 0)
    return means, np.exp(0.3 * generator.standard_normal((steps, size)) - 2), generator.standard_normal((steps, 3))


@torch.no_grad()
def put(model: BayesianModule, means: Array, stds: Array, scales: Array) -> None:
    model.posterior.mean.copy_(torch.from_numpy(means))
    if hasattr(model.posterior, "log_std"):
        model.posterior.log_std.copy_(torch.from_numpy(np.log(stds)))
    next(iter(model.net.parameters())).copy_(torch.from_numpy(scales))


def watch(averager: Averager, model: BayesianModule, rows: tuple[Array, Array, Array], first: int = 0) -> Averager:
    """Show the model at each point of the path from step ``first`` on."""
    for step in range(first, len(rows[0])):
        put(model, *(row[step] for row in rows))
        averager.after_step(model, Progress(step, len(rows[0]), step % BATCHES, BATCHES))
    return averager


def averaged(choice: Any, steps: int = 40, posterior: Any = "mean_field") -> tuple[Posterior, Averager, tuple]:
    model = small_model(posterior)
    rows = path(steps, model.layout.size)
    averager = watch(AVERAGERS.resolve(choice).build(model, steps, BATCHES), model, rows)
    return averager.finalize(model), averager, rows


def covariance_of(posterior: Posterior) -> Array:
    found = posterior.covariance()
    assert found is not None
    full = torch.diag(found.variances)
    if found.factor is not None:
        full = full + found.factor @ found.factor.T
    return full.detach().numpy()


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().numpy()
