"""Gradients of E_q[NLL] for linear regression, written out: a step takes a fraction of a millisecond."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.types import Step
from truths.linear_regression import LinearRegression


class LinearGradients:
    """Leaves in ``mean.grad`` and ``log_std.grad`` what the ELBO at temperature 0 and ``backward`` leave there.

    The noise is that of the model's own estimator. That both ways give the same is asserted when it is made.
    """

    def __init__(self, problem: LinearRegression, model: bw.BayesianModule) -> None:
        self.model, self.noise_std = model, problem.noise_std
        self.x, self.y = problem.tensors()
        self.posterior: Any = model.posterior
        elbo = bw.ELBO(bw.Gaussian("known", self.noise_std), len(self.y), temperature=0.0, check=False)
        batch = torch.arange(0, len(self.y), 3)
        elbo(model, self.x[batch], self.y[batch], generator=bw.make_generator(4)).total.backward()
        expected = [self.posterior.mean.grad, self.posterior.log_std.grad]
        self(batch, bw.make_generator(4))
        torch.testing.assert_close([self.posterior.mean.grad, self.posterior.log_std.grad], expected)

    @torch.no_grad()
    def __call__(self, batch: Tensor | slice = slice(None), generator: torch.Generator | None = None) -> None:
        x, y = self.x[batch], self.y[batch].reshape(-1)
        noise = self.model.estimator.noise(self.model, Step(None, generator=generator))
        assert noise is not None
        mean, std = self.posterior.mean, self.posterior.log_std.exp()
        by_draw = ((mean + std * noise) @ x.T - y) @ x / (self.noise_std**2 * len(y))
        self.posterior.mean.grad = by_draw.mean(0)
        self.posterior.log_std.grad = (by_draw * noise).mean(0) * std
