"""Checks of estimators: E_q[NLL] where it is known, and a model that is left alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import CompositionError
from ..gradients import Sharpness
from ..likelihoods import Gaussian
from ..objectives import ELBO
from ..random import make_generator
from .problems import DOUBLE, LinearRegression, Untouched, lifted, network, normal
from .report import Omitted, Suite, require, require_close, require_mean

_REPETITIONS = 400
_WEIGHTS = (0.5, 2.0, 0.0, 1.5, 3.0)


class Case:
    """Linear regression, for which E_q[NLL] has a closed form, and a small network, for which it has none."""

    def __init__(self, part: Any, exact: bool = True) -> None:
        self.part, self.exact = part, exact
        self.problem = LinearRegression()
        self.linear = lifted(self.problem.net, estimator=part)
        self.deep = lifted(network(3, 4, 2), estimator=part)
        self.inputs, self.targets = normal(6, 3, seed=1), normal(6, 2, seed=2)
        self.elbo = ELBO(Gaussian("known", self.problem.noise_std), 6, divergence="analytic", check=False)

    def deep_nll(self, seed: int = 1, weights: Tensor | None = None) -> Tensor:
        """One estimate for the small network."""
        generator = make_generator(seed)
        return self.elbo.expected_nll(self.deep, self.inputs, self.targets, generator=generator, weights=weights)

    def linear_nll(self, generator: torch.Generator, weights: Tensor | None = None) -> Tensor:
        """One estimate for linear regression."""
        problem = self.problem
        return self.elbo.expected_nll(
            self.linear, problem.inputs, problem.targets, generator=generator, weights=weights
        )

    def summary(self, value: Tensor) -> Tensor:
        """The value, and the gradients of means and stds summed over the outputs: 1 + 2 (3 + 1) numbers."""
        posterior, layout = self.linear.posterior, self.linear.layout
        parameters = list(posterior.parameters())
        found = torch.autograd.grad(value, parameters, materialize_grads=True, allow_unused=True)
        sums = [part.sum(0).reshape(-1) for gradient in found for part in layout.unflatten(gradient).values()]
        return torch.cat([value.detach().reshape(1), *sums])


def is_a_number_that_the_generator_decides(case: Case) -> None:
    """The same generator gives the same estimate."""
    first = case.deep_nll()
    require(first.dim() == 0, f"expected_nll gives shape {tuple(first.shape)}, expected a single number")
    require(
        torch.equal(first, case.deep_nll()), "two estimates with the same generator differ: draw noise from it alone"
    )


def leaves_the_model_as_it_was(case: Case) -> None:
    """Numbers, modes and methods of the network are afterwards what they were, in both modes."""
    for training in (True, False):
        case.deep.train(training)
        with Untouched(case.deep):
            case.deep_nll()
    case.deep.train()


def is_the_nll_at_the_mean_without_spread(case: Case) -> None:
    """As the stds go to zero it is the NLL at the mean."""
    model = lifted(network(3, 4, 2), estimator=case.part)
    model.posterior.set_stds(torch.full((model.layout.size,), 1e-7, dtype=DOUBLE))
    found = case.elbo.expected_nll(model, case.inputs, case.targets, generator=make_generator(1))
    outputs = network(3, 4, 2)(case.inputs)
    require_close("the estimate at stds of 1e-7", found, case.elbo.likelihood.nll(outputs, case.targets).mean(), 1e-5)


def mean_is_the_expected_nll(case: Case) -> None:
    """For linear regression with Gaussian noise, value and gradients are right on average."""
    if not case.exact:
        raise Omitted("exact = False was given")
    generator = make_generator(2)
    samples = torch.stack([case.summary(case.linear_nll(generator)) for _ in range(_REPETITIONS)])
    expected = case.summary(case.problem.expected_nll(case.linear))
    require_mean("the estimate", samples[:, :1], expected[:1])
    require_mean("the gradient in the means (summed over outputs)", samples[:, 1:5], expected[1:5])
    require_mean("the gradient in the stds (summed over outputs)", samples[:, 5:], expected[5:])


def example_weights_count(case: Case) -> None:
    """Weights of 2 double the estimate; with any others it is the weighted mean on average."""
    twos = torch.full((6,), 2.0, dtype=DOUBLE)
    require_close("the estimate with weights of 2", case.deep_nll(weights=twos), 2 * case.deep_nll())
    if not case.exact:
        return
    generator, weights = make_generator(3), torch.tensor(_WEIGHTS, dtype=DOUBLE)
    with torch.no_grad():
        expected = case.problem.expected_nll(case.linear, weights)
    samples = torch.stack([case.linear_nll(generator, weights).detach() for _ in range(_REPETITIONS)])
    require_mean("the estimate with example weights", samples, expected)


def works_under_sharpness(case: Case) -> None:
    """The gradient at the worst neighbour is finite."""
    sharp = Sharpness(rho=0.05).wrap(case.elbo)
    try:
        total = sharp(case.deep, case.inputs, case.targets, generator=make_generator(1)).total
    except CompositionError as error:
        raise Omitted(str(error)) from error
    gradients = torch.autograd.grad(
        total, list(case.deep.posterior.parameters()), materialize_grads=True, allow_unused=True
    )
    require(all(bool(gradient.isfinite().all()) for gradient in gradients), "a gradient under sharpness is not finite")


_CHECKS = (
    is_a_number_that_the_generator_decides,
    leaves_the_model_as_it_was,
    is_the_nll_at_the_mean_without_spread,
    mean_is_the_expected_nll,
    example_weights_count,
    works_under_sharpness,
)
SUITE = Suite(Case, _CHECKS, ("exact",))
