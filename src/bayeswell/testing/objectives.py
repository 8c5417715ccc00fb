"""Checks of estimators and divergences: their means are known for linear regression and mean-field."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.protocols import WEIGHT_SAMPLE, BatchContext
from ..core.random import make_generator
from ..nn import BayesianModule
from .problems import DOUBLE, PRIOR_STD, LinearRegression, make_model, network, normal, untouched
from .report import applies, require, require_close, require_mean

REPETITIONS = 500


class EstimatorChecks:
    """Linear regression, for which E_q[NLL] has a closed form, and a small network."""

    def __init__(self, part: Any, exact: bool = True) -> None:
        self.part, self.exact = part, exact
        self.problem = LinearRegression()
        self.linear, self.deep = make_model(self.problem.net), make_model(network(3, 4, 2))
        self.inputs, self.targets = normal(6, 3, seed=1), normal(6, 2, seed=2)

    def _estimate(self, model: BayesianModule, inputs: Tensor, targets: Tensor, **settings: Any) -> Tensor:
        batch = BatchContext(inputs, targets, self.problem.likelihood, **settings)
        noise = self.part.noise(model, batch)
        weights = model.posterior.mean if noise is None else model.posterior.rsample(noise)
        value: Tensor = self.part.nll(model, weights, batch)[0]
        return value

    def _deep(self, sample_weight: Tensor | None = None) -> Tensor:
        settings = {"sample_weight": sample_weight, "generator": make_generator(1)}
        return self._estimate(self.deep, self.inputs, self.targets, **settings)

    def _linear(self, generator: torch.Generator) -> Tensor:
        return self._estimate(self.linear, self.problem.inputs, self.problem.targets, generator=generator)

    def _summary(self, value: Tensor) -> Tensor:
        posterior, layout = self.linear.posterior, self.linear.layout
        found = torch.autograd.grad(value, list(posterior.parameters()), materialize_grads=True, allow_unused=True)
        sums = [part.sum(0).reshape(-1) for gradient in found for part in layout.unflatten(gradient).values()]
        return torch.cat([value.detach().reshape(1), *sums])

    def check_generator_decides(self) -> None:
        first = self._deep()
        require(first.dim() == 0, f"nll returns shape {tuple(first.shape)}, expected a single number")
        require(torch.equal(first, self._deep()), "two estimates with the same generator differ")

    def check_leaves_the_model_as_it_was(self) -> None:
        for training in (True, False):
            self.deep.train(training)
            with untouched(self.deep):
                self._deep()
        self.deep.train()

    def check_mean_is_the_expected_nll(self) -> None:
        applies(self.exact, "exact=False was given")
        generator = make_generator(2)
        samples = torch.stack([self._summary(self._linear(generator)) for _ in range(REPETITIONS)])
        expected = self._summary(self.problem.expected_nll(self.linear))
        require_mean("the estimate", samples[:, :1], expected[:1])
        require_mean("the gradient in the means (summed over outputs)", samples[:, 1:5], expected[1:5])
        require_mean("the gradient in the stds (summed over outputs)", samples[:, 5:], expected[5:])

    def check_example_weights_count(self) -> None:
        twos = torch.full((6,), 2.0, dtype=DOUBLE)
        require_close("the estimate with weights of 2", self._deep(sample_weight=twos), 2 * self._deep())


DRAWS = 4


class DivergenceChecks:
    """KL(q || p) of a mean-field q and a normal p."""

    def __init__(self, part: Any) -> None:
        self.part, self.model = part, make_model(network(4, 5, 2))
        self.posterior, self.prior = self.model.posterior, self.model.prior
        self.parameters = list(self.posterior.parameters())

    def _closed_form(self) -> Tensor:
        mean, std = self.posterior.mean, self.posterior.std()
        return ((PRIOR_STD / std).log() + (std.square() + mean.square()) / (2 * PRIOR_STD**2) - 0.5).sum()

    def _noise(self, seed: int) -> Tensor:
        return normal(DRAWS, self.posterior.noise_size, seed=seed)

    def _summary(self, value: Tensor) -> Tensor:
        # The value, and for each parameter the sum of its gradient and a projection of it.
        found = torch.autograd.grad(value, self.parameters, materialize_grads=True, allow_unused=True)
        sums = [gradient.sum() for gradient in found]
        along = [gradient.flatten() @ normal(gradient.numel(), seed=50) for gradient in found]
        return torch.stack([value.detach(), *sums, *along])

    def check_returns_the_draws_of_the_noise(self) -> None:
        noise = self._noise(1)
        weights = self.part(self.posterior, self.prior, noise)[0]
        require(weights is not None, "it returns no draws although there is noise; the estimator needs them")
        require_close("the draws", weights, self.posterior.rsample(noise))

    def check_works_without_draws(self) -> None:
        applies(WEIGHT_SAMPLE not in self.part.needs, f"it needs '{WEIGHT_SAMPLE}'")
        weights, kl = self.part(self.posterior, self.prior, None)
        require(weights is None, "it returns draws although there is no noise")
        require_close("the KL without draws", kl, self._closed_form())

    def check_mean_is_the_kl(self) -> None:
        expected = self._summary(self._closed_form())
        found = [self.part(self.posterior, self.prior, self._noise(100 + i))[1] for i in range(REPETITIONS)]
        samples = torch.stack([self._summary(value) for value in found])
        require_mean("the KL", samples[:, :1], expected[:1])
        require_mean("the gradient of the KL", samples[:, 1:], expected[1:])
