"""Checks of priors: a density, its moments, and its mean under a Gaussian."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Unsupported
from ..core.layout import Layout, Site
from ..core.protocols import Prior
from ..objectives import ELBO
from ..priors import build_prior
from .problems import DOUBLE, LinearRegression, make_model, normal, tangent_grid, under_gaussian
from .report import Omitted, require, require_close

PRECISE = 1e-5


def layout_of(size: int) -> Layout:
    return Layout((Site(("layer.weight",), (size, 1), "Linear", fan_in=3, fan_out=2),))


class PriorChecks:
    """A prior over one weight, whose density can be integrated, and over several."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.start = torch.tensor([0.3, -0.2, 0.9], dtype=DOUBLE)
        self.one = build_prior(part, layout_of(1), self.start[:1])
        self.three = build_prior(part, layout_of(3), self.start)

    def _log_density(self, values: Tensor, prior: Prior | None = None) -> Tensor:
        return (self.one if prior is None else prior).log_prob(values.reshape(-1, 1))

    def _moments(self, prior: Prior, points: int = 200_001) -> tuple[float, float, float]:
        # Integral, mean and second moment around the center.
        away, weights = tangent_grid(float(prior.std()[0]), points)
        center = float(prior.center()[0])
        with torch.no_grad():
            masses = weights * self._log_density(center + away, prior).exp()
        return float(masses.sum()), float((masses * away).sum()), float((masses * away.square()).sum())

    def check_density_is_normalized(self) -> None:
        total = self._moments(self.one)[0]
        require(abs(total - 1) < PRECISE, f"exp(log_prob) integrates to {total:.6g}, expected 1")

    def check_center_and_std_are_its_moments(self) -> None:
        std = float(self.one.std()[0])
        require(math.isfinite(std) and std > 0, f"std is {std!r}; stds of posteriors start relative to it")
        (_, mean, square), rough = self._moments(self.one), self._moments(self.one, 20_001)[2]
        if abs(rough - square) > 1e-3 * square:
            raise Omitted("its second moment is infinite")
        require(abs(mean) < 1e-3 * std, f"its mean is {mean:.3g} away from center()")
        found = math.sqrt(square)
        require(abs(found / std - 1) < 2e-3, f"std is {std:.6g}, but the root of the second moment is {found:.6g}")

    def check_weights_are_independent(self) -> None:
        weights = normal(4, 3, seed=2)
        around = self.three.center() - self.one.center()
        single = torch.stack([self._log_density(weights[:, i] - around[i]) for i in range(3)]).sum(0)
        require_close("log_prob of three weights", self.three.log_prob(weights), single)

    def check_log_prob_has_its_gradient(self) -> None:
        std = float(self.one.std()[0])
        values, step = (std * normal(20, seed=3)).requires_grad_(), 1e-5 * std
        (found,) = torch.autograd.grad(self._log_density(values).sum(), values)
        with torch.no_grad():
            expected = (self._log_density(values + step) - self._log_density(values - step)) / (2 * step)
        require_close("the gradient of log_prob", found, expected, 1e-4)

    def check_expected_log_prob_is_the_integral(self) -> None:
        if not self.one.has_closed_form:
            raise Omitted("it has no closed form of E[log p(w)]")
        scale = self.one.std()
        for mean, std in ((0.4, 0.05), (-1.3, 0.4), (0.2, 1.7)):
            found = self.one.expected_log_prob(mean * scale, std * scale)
            expected = under_gaussian(self._log_density, mean * float(scale), std * float(scale))
            require_close("expected_log_prob", found.reshape(()), expected, PRECISE)

    def check_gaussian_terms_are_its_density(self) -> None:
        terms = self.three.gaussian
        if terms is None:
            raise Omitted("it is not Gaussian")
        weights = normal(4, 3, seed=5)
        inverse = terms.inverse_variances
        inverse = self.three.layout.repeat_by_site(inverse) if terms.by_site else inverse
        away = weights if terms.center is None else weights - terms.center
        expected = -0.5 * (inverse * away.square()).sum(1) - terms.log_std_sum - 1.5 * math.log(2 * math.pi)
        require_close("log_prob, against its `gaussian` terms,", self.three.log_prob(weights), expected)

    def check_scaled_prior_is_a_density(self) -> None:
        try:
            scaled = self.one.scaled(1.7)
        except Unsupported as error:
            raise Omitted(str(error)) from error
        require_close("the std of scaled(1.7)", scaled.std(), 1.7 * self.one.std())
        require_close("the integral of scaled(1.7)", torch.tensor(self._moments(scaled)[0]), torch.tensor(1.0), PRECISE)

    def check_trains_in_an_elbo(self) -> None:
        problem = LinearRegression(2)
        model = make_model(problem.net, prior=self.part)
        terms = ELBO(problem.likelihood, 5)(model, problem.inputs, problem.targets)
        require(math.isfinite(float(terms.kl)), f"the KL is {float(terms.kl)}")
        terms.total.backward()
        for name, parameter in model.posterior.named_parameters():
            finite = parameter.grad is not None and bool(parameter.grad.isfinite().all())
            require(finite, f"the gradient of '{name}' is missing or not finite")
