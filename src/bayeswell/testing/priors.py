"""Checks of priors: a density, its moments, and its mean under a Gaussian."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..objectives import ELBO
from ..priors import lay_out
from ..registry import Completed
from .problems import DOUBLE, LinearRegression, lifted, network, normal
from .quadrature import real_line, under_gaussian
from .report import Omitted, Suite, require, require_close

_PRECISE = 1e-5


class Case:
    """A prior over the sites of a small network."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.model = lifted(network(4, 3, 2), "delta", prior=part)
        self.sites = self.model.layout.sites

    def parameters(self, index: int) -> list[Tensor]:
        """The density's parameters at one site."""
        return [torch.tensor(value, dtype=DOUBLE) for value in self.part.parameters(self.sites[index])]

    def std(self, index: int) -> float:
        """What the density calls its std."""
        return float(self.part.density.std(*self.parameters(index)))

    def log_prob(self, index: int) -> Callable[[Tensor], Tensor]:
        """The log-density of one weight."""
        return lambda weights: self.part.density.log_prob(weights, *self.parameters(index))


def log_prob_is_normalised(case: Case) -> None:
    """exp(log_prob) integrates to one at every site."""
    for index, site in enumerate(case.sites):
        total = real_line(lambda w, at=index: case.log_prob(at)(w).exp(), case.std(index))  # type: ignore[misc]
        require(abs(total - 1) < _PRECISE, f"exp(log_prob) of '{site.name}' integrates to {total:.6g}, expected 1")


def std_is_the_root_of_the_second_moment(case: Case) -> None:
    """std^2 is the integral of w^2 exp(log_prob), where that is finite."""
    for index, site in enumerate(case.sites):
        std = case.std(index)
        require(math.isfinite(std) and std > 0, f"std of '{site.name}' is {std!r}; stds of q start relative to it")

        def square(weights: Tensor, at: int = index) -> Tensor:
            return weights.square() * case.log_prob(at)(weights).exp()

        rough, fine = real_line(square, std, points=20_001), real_line(square, std)
        if abs(rough - fine) > 1e-3 * abs(fine):
            raise Omitted("the second moment is infinite, or its tails are too heavy to tell")
        require(
            abs(math.sqrt(fine) / std - 1) < 2e-3,
            f"std of '{site.name}' is {std:.6g}, but the second moment's root is {math.sqrt(fine):.6g}",
        )


def log_prob_has_its_gradient(case: Case) -> None:
    """autograd agrees with finite differences."""
    log_prob, std = case.log_prob(0), case.std(0)
    weights = (std * normal(20, seed=3)).requires_grad_()
    step = 1e-5 * std
    (found,) = torch.autograd.grad(log_prob(weights).sum(), weights, materialize_grads=True, allow_unused=True)
    with torch.no_grad():
        expected = (log_prob(weights + step) - log_prob(weights - step)) / (2 * step)
    require_close("the gradient of log_prob", found, expected, 1e-4)


def expected_log_prob_is_the_mean(case: Case) -> None:
    """Where ``analytic``, expected_log_prob is the integral of log_prob under N(mean, std^2)."""
    if not case.part.density.analytic:
        raise Omitted("the density is not `analytic`: Monte Carlo divergences evaluate log_prob instead")
    for index in range(len(case.sites)):
        mean = case.std(index) * normal(3, seed=4)
        std = case.std(index) * torch.tensor([0.05, 0.4, 1.7], dtype=DOUBLE)
        found = case.part.density.expected_log_prob(mean, std, *case.parameters(index)).expand(3)
        expected = torch.stack(
            [under_gaussian(case.log_prob(index), float(m), float(s)) for m, s in zip(mean, std, strict=True)]
        )
        require_close("expected_log_prob at generic means and stds", found, expected, _PRECISE)


def centre_moves_it(case: Case) -> None:
    """centre = "network" is the same density around the network's weights."""
    own = case.part.part if isinstance(case.part, Completed) else case.part
    fields = {field.name for field in dataclasses.fields(own)} if dataclasses.is_dataclass(own) else set()
    if "centre" not in fields:
        raise Omitted("it has no setting `centre`")
    weights = case.model.posterior.mean_vector().detach()
    around, at_zero = (
        lay_out(dataclasses.replace(own, centre=centre), case.model.layout, like=weights)
        for centre in ("network", "zero")
    )
    offsets = 0.4 * normal(3, len(weights), seed=6)
    require_close("log p around the network", around.log_prob(weights + offsets), at_zero.log_prob(offsets))


def trains_in_an_elbo(case: Case) -> None:
    """The loss of a mean-field posterior under this prior is finite, and so is its gradient."""
    problem = LinearRegression(2)
    model = lifted(problem.net, prior=case.part)
    terms = ELBO(problem.likelihood, 5)(model, problem.inputs, problem.targets)
    require(math.isfinite(float(terms.kl)), f"the KL is {float(terms.kl)!r}")
    terms.total.backward()
    for name, parameter in model.posterior.named_parameters():
        fine = parameter.grad is not None and bool(parameter.grad.isfinite().all())
        require(fine, f"the gradient of '{name}' is missing or not finite")


_CHECKS = (
    log_prob_is_normalised,
    std_is_the_root_of_the_second_moment,
    log_prob_has_its_gradient,
    expected_log_prob_is_the_mean,
    centre_moves_it,
    trains_in_an_elbo,
)
SUITE = Suite(Case, _CHECKS)
