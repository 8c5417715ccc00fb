"""Checks of estimators: E_q[NLL] where it is known, and a model that is left as it was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.errors import CompositionError
from ..core.protocols import BatchContext
from ..core.random import make_generator
from ..nn import BayesianModule
from ..objectives import ELBO, Sharpness
from ..posteriors import set_std
from .problems import DOUBLE, LinearRegression, make_model, network, normal, untouched
from .report import Omitted, require, require_close, require_mean

REPETITIONS = 400
WEIGHTS = (0.5, 2.0, 0.0, 1.5, 3.0)


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

    def _linear(self, generator: torch.Generator, sample_weight: Tensor | None = None) -> Tensor:
        settings = {"sample_weight": sample_weight, "generator": generator}
        return self._estimate(self.linear, self.problem.inputs, self.problem.targets, **settings)

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

    def check_without_spread_it_is_the_nll_at_the_mean(self) -> None:
        self.deep, before = make_model(network(3, 4, 2)), self.deep
        set_std(self.deep.posterior, torch.full((self.deep.layout.size,), 1e-7, dtype=DOUBLE))
        found, self.deep = self._deep(), before
        expected = self.problem.likelihood.nll(network(3, 4, 2)(self.inputs), self.targets).mean()
        require_close("the estimate at stds of 1e-7", found, expected, 1e-5)

    def check_mean_is_the_expected_nll(self) -> None:
        if not self.exact:
            raise Omitted("exact=False was given")
        generator = make_generator(2)
        samples = torch.stack([self._summary(self._linear(generator)) for _ in range(REPETITIONS)])
        expected = self._summary(self.problem.expected_nll(self.linear))
        require_mean("the estimate", samples[:, :1], expected[:1])
        require_mean("the gradient in the means (summed over outputs)", samples[:, 1:5], expected[1:5])
        require_mean("the gradient in the stds (summed over outputs)", samples[:, 5:], expected[5:])

    def check_example_weights_count(self) -> None:
        twos = torch.full((6,), 2.0, dtype=DOUBLE)
        require_close("the estimate with weights of 2", self._deep(sample_weight=twos), 2 * self._deep())
        if not self.exact:
            return
        generator, weights = make_generator(3), torch.tensor(WEIGHTS, dtype=DOUBLE)
        samples = torch.stack([self._linear(generator, weights).detach() for _ in range(REPETITIONS)])
        require_mean("the estimate with weights", samples, self.problem.expected_nll(self.linear, weights).detach())

    def check_works_under_sharpness(self) -> None:
        try:
            sharp = Sharpness(rho=0.05).wrap(ELBO(self.problem.likelihood, 6, estimator=self.part))
            total = sharp(self.deep, self.inputs, self.targets, generator=make_generator(1)).total
        except CompositionError as error:
            raise Omitted(str(error)) from error
        parameters = list(self.deep.posterior.parameters())
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True, allow_unused=True)
        require(all(bool(g.isfinite().all()) for g in gradients), "a gradient under sharpness is not finite")
