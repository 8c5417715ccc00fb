"""Problems whose posterior is known, and methods trained on them at temperature 1."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

import bayeswell as bw
from bayeswell.training import Result, fit
from make_references import (
    Problem,
)
from truths.arrays import Array
from truths.linear_regression import LinearRegression
from unjudged import unjudged


def network(problem: Problem, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(problem.widths):
        layers += [nn.Linear(inside, outside), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


LINEAR = LinearRegression.make(3, count=60, dimension=3, mixing=1.2)
"""Correlated inputs: the mean-field stds are 0.71, 0.56 and 0.72 of the marginal ones."""


def quiet_fit(*arguments: Any, **settings: Any) -> Result:
    with warnings.catch_warnings(), unjudged():
        # Short chains are said to be short.
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        return fit(*arguments, **settings)


def linear_fit(
    method: str, problem: LinearRegression = LINEAR, net: nn.Module | None = None, copies: int = 1, **settings: Any
) -> Result:
    """The problem in float64, all data in each step unless said otherwise.

    ``copies`` are outputs with the same targets, and so independent regressions side by side: a step of all of them
    costs no more than a step of one. They begin one posterior std away from the mean, unless ``means`` says otherwise.
    """
    torch.manual_seed(0)
    inputs, targets = problem.tensors()
    if copies > 1:
        net = nn.Linear(problem.X.shape[1], copies, bias=False)
        start = torch.from_numpy(problem.mean() + np.sqrt(np.diag(problem.covariance())))
        net.weight = nn.Parameter(start.repeat(copies, 1))
        targets = targets[:, None].repeat(1, copies)
    net = nn.Linear(problem.X.shape[1], 1, bias=False) if net is None else net
    likelihood = {"name": "gaussian", "noise": "known", "std": problem.noise_std}
    prior = {"name": "normal", "std": float(problem.prior_std[0])}
    settings = {"batch_size": len(problem.y), "temperature": 1.0, "prior": prior, **settings}
    return quiet_fit(net.double(), (inputs, targets), method, likelihood, **settings)


def chains_of(result: Result, members: int, copies: int, weights: int = 3) -> torch.Tensor:
    """The draws of a bank by chains, (members x copies, draws, weights): each copy of each member is a chain."""
    found: torch.Tensor = result.model.posterior.weights.reshape(members, -1, copies, weights)
    return found.transpose(1, 2).reshape(members * copies, -1, weights)


def moments(result: Result, copies: int = 1) -> tuple[Array, Array]:
    """Means and stds of the weights, averaged over copies: they differ by nothing but the noise of training."""
    posterior = result.model.posterior
    with torch.no_grad():
        mean, std = posterior.mean_vector().reshape(copies, -1), posterior.std_vector().reshape(copies, -1)
        return mean.mean(0).numpy(), std.mean(0).numpy()


def assert_moments(
    result: Result, mean: Array, std: Array, mean_tolerance: float, std_tolerance: float, copies: int = 1
) -> None:
    """Means within ``mean_tolerance`` of the stds that are expected, stds within the relative ``std_tolerance``."""
    found_mean, found_std = moments(result, copies)
    mean_errors, std_errors = np.abs(found_mean - mean) / std, np.abs(found_std / std - 1)
    assert mean_errors.max() < mean_tolerance, f"means are {mean_errors.round(3)} stds off"
    assert std_errors.max() < std_tolerance, f"stds are {std_errors.round(3)} off"
