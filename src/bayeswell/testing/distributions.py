"""Checks of priors and posteriors: draws, density, moments and KL belong to one distribution."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Unsupported
from ..core.layout import Layout, Site
from ..core.protocols import EMPIRICAL, ENTROPY, LOG_PROB, MIXTURE, POINT, Prior
from ..core.random import make_generator
from ..priors import build_prior
from .problems import DOUBLE, make_model, network, normal, require_draws_and_rebuilt, tangent_grid
from .report import Omitted, applies, require, require_close, require_mean

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
        applies(abs(rough - square) <= 1e-3 * square, "its second moment is infinite")
        require(abs(mean) < 1e-3 * std, f"its mean is {mean:.3g} away from center()")
        found = math.sqrt(square)
        require(abs(found / std - 1) < 2e-3, f"std is {std:.6g}, but the root of the second moment is {found:.6g}")

    def check_log_prob_has_its_gradient(self) -> None:
        std = float(self.one.std()[0])
        values, step = (std * normal(20, seed=3)).requires_grad_(), 1e-5 * std
        (found,) = torch.autograd.grad(self._log_density(values).sum(), values)
        with torch.no_grad():
            expected = (self._log_density(values + step) - self._log_density(values - step)) / (2 * step)
        require_close("the gradient of log_prob", found, expected, 1e-4)

    def check_expected_log_prob_is_the_integral(self) -> None:
        applies(self.one.has_closed_form, "it has no closed form of E[log p(w)]")
        scale = self.one.std()
        for mean, std in ((0.4, 0.05), (-1.3, 0.4), (0.2, 1.7)):
            z, weights = tangent_grid(1.0)
            masses = weights * (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
            with torch.no_grad():
                expected = (self._log_density((mean + std * z) * scale) * masses).nan_to_num(0).sum()
            found = self.one.expected_log_prob(mean * scale, std * scale)
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


DRAWS, NETWORKS = 20_000, 500


class PosteriorChecks:
    """The posterior over a small network, with its parameters at generic values."""

    def __init__(self, part: Any) -> None:
        applies(not part.provides & {EMPIRICAL, MIXTURE}, "it is the end of a run, not a family to train")
        self.part = part
        self.model = make_model(network(4, 5, 2), "delta")
        self.start = self.model.posterior.mean.detach().clone()
        self.posterior = part.build(self.model.layout, self.model.prior, self.start, make_generator(1)).to(DOUBLE)
        self.begun = self.posterior.mean.detach().clone()
        with torch.no_grad():
            for place, parameter in enumerate(self.posterior.parameters()):
                parameter.add_(0.1 * normal(*parameter.shape, seed=20 + place))

    def _noise(self, rows: int, seed: int = 4) -> Tensor:
        return normal(rows, self.posterior.noise_size, seed=seed)

    def _need(self, *words: str) -> None:
        for word in words:
            applies(word in self.part.provides, f"it does not provide '{word}'")

    def check_starts_at_the_mean(self) -> None:
        require_close("the mean at the start", self.begun, self.start)

    def check_draws_have_its_moments(self) -> None:
        with torch.no_grad():
            weights, mean, std = self.posterior.rsample(self._noise(DRAWS)), self.posterior.mean, self.posterior.std()
        require(weights.shape == (DRAWS, len(mean)), f"rsample returns shape {tuple(weights.shape)}")
        require_mean("a draw", weights, mean)
        require_mean("the squared distance of a draw from the mean", (weights - mean).square(), std.square())

    def check_draws_are_networks(self) -> None:
        require_draws_and_rebuilt(self.posterior, self.model)
        if self.posterior.noise_size == 0:
            return
        drawn = self.posterior.draws(NETWORKS, make_generator(9))
        with torch.no_grad():
            weights = torch.stack([self.model.layout.flatten(tensors) for tensors in drawn])
            scaled = (weights - self.posterior.mean) / self.posterior.std()
        require_mean("the scaled square of a drawn network", scaled.square().mean(1), 1.0)

    def check_covariance_is_that_of_the_draws(self) -> None:
        known = self.posterior.covariance()
        applies(known is not None and not known.matrices, "it has no covariance of diagonal and factor")
        direction = normal(len(self.start), seed=11)
        with torch.no_grad():
            moved = (self.posterior.rsample(self._noise(DRAWS)) - self.posterior.mean) @ direction
            expected = known.variances @ direction.square()
            if known.factor is not None:
                expected = expected + (direction @ known.factor).square().sum()
        require_mean("the variance along a direction", moved.square(), expected.reshape(1))

    def check_density_is_that_of_the_draws(self) -> None:
        """E[(w - mean) . d log q / dw] = -P and E[d log q / dw] = 0 (Stein)."""
        self._need(LOG_PROB)
        with torch.no_grad():
            weights, mean = self.posterior.rsample(self._noise(DRAWS)), self.posterior.mean.clone()
        weights.requires_grad_()
        (slope,) = torch.autograd.grad(self.posterior.log_prob(weights).sum(), weights)
        require_mean("(w - mean) . d log q / dw", ((weights - mean) * slope).sum(1), -float(weights.shape[1]))
        require_mean("d log q / dw", slope, torch.zeros(weights.shape[1]))

    @torch.no_grad()
    def check_entropy_is_that_of_the_density(self) -> None:
        self._need(ENTROPY)
        self._need(LOG_PROB)
        found = -self.posterior.log_prob(self.posterior.rsample(self._noise(DRAWS)))
        require_mean("-log q of a draw, against entropy(),", found, self.posterior.entropy().reshape(1))

    @torch.no_grad()
    def check_kl_is_that_of_the_draws(self) -> None:
        posterior, prior = self.posterior, self.model.prior
        if POINT in self.part.provides:
            expected = -prior.log_prob(posterior.mean[None])[0]
            require_close("the KL of a point estimate", posterior.rsample_and_kl(None, prior)[1].reshape(()), expected)
            return
        self._need(ENTROPY)
        noise = self._noise(DRAWS)
        weights, kl = posterior.rsample_and_kl(noise, prior)
        none, same = posterior.rsample_and_kl(None, prior)
        require(none is None and weights is not None, "rsample_and_kl must return draws if and only if there is noise")
        require_close("the draws of rsample_and_kl", weights, posterior.rsample(noise))
        require_close("the KL without noise", same, kl)
        found = -posterior.entropy() - prior.log_prob(weights)
        require_mean("-entropy() - log p of a draw, against the KL,", found, kl.reshape(1))

    def check_gradients_reach_every_parameter(self) -> None:
        parameters = dict(self.posterior.named_parameters())
        weights = self.posterior.rsample(self._noise(20))
        loss = (weights * normal(*weights.shape, seed=8)).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            require(bool(gradient.isfinite().all()), f"the gradient of '{name}' is not finite")
            require(bool(gradient.any()), f"no gradient of a draw reaches '{name}'")
