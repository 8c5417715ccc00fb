"""Checks of posteriors: draws, density, entropy and KL belong to one distribution."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core.protocols import EMPIRICAL, ENTROPY, FACTORIZED, LOG_PROB, MIXTURE, POINT
from ..core.random import make_generator
from .problems import DOUBLE, make_model, network, normal, require_draws, require_rebuilt
from .report import Omitted, require, require_close, require_mean

DRAWS, NETWORKS = 20_000, 500


class PosteriorChecks:
    """The posterior over a small network, with its parameters at generic values."""

    def __init__(self, part: Any) -> None:
        if part.provides & {EMPIRICAL, MIXTURE}:
            raise Omitted("it is the end of a run, not a family to train")
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
            if word not in self.part.provides:
                raise Omitted(f"it does not provide '{word}'")

    def check_starts_at_the_mean(self) -> None:
        require_close("the mean at the start", self.begun, self.start)

    def check_draws_have_its_moments(self) -> None:
        with torch.no_grad():
            weights, mean, std = self.posterior.rsample(self._noise(DRAWS)), self.posterior.mean, self.posterior.std()
        require(weights.shape == (DRAWS, len(mean)), f"rsample returns shape {tuple(weights.shape)}")
        require_mean("a draw", weights, mean)
        require_mean("the squared distance of a draw from the mean", (weights - mean).square(), std.square())

    def check_draws_are_networks(self) -> None:
        require_draws(self.posterior, self.model)
        if self.posterior.noise_size == 0:
            return
        drawn = self.posterior.draws(NETWORKS, make_generator(9))
        with torch.no_grad():
            weights = torch.stack([self.model.layout.flatten(tensors) for tensors in drawn])
            scaled = (weights - self.posterior.mean) / self.posterior.std()
        require_mean("the scaled square of a drawn network", scaled.square().mean(1), 1.0)

    def check_covariance_is_that_of_the_draws(self) -> None:
        known = self.posterior.covariance()
        if known is None or known.matrices:
            raise Omitted("it has no covariance of diagonal and factor")
        variances = known.variances if known.factor is None else known.variances + known.factor.square().sum(1)
        require_close("the diagonal of covariance()", variances, self.posterior.std().square())
        direction = normal(len(variances), seed=11)
        with torch.no_grad():
            moved = (self.posterior.rsample(self._noise(DRAWS)) - self.posterior.mean) @ direction
            expected = known.variances @ direction.square()
            expected = expected if known.factor is None else expected + (direction @ known.factor).square().sum()
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

    def check_density_is_gaussian(self) -> None:
        self._need(LOG_PROB, FACTORIZED)
        weights, std = self.posterior.rsample(self._noise(5)), self.posterior.std()
        z = (weights - self.posterior.mean) / std
        expected = (-0.5 * z.square() - std.log() - 0.5 * math.log(2 * math.pi)).sum(1)
        require_close("log q", self.posterior.log_prob(weights), expected)

    @torch.no_grad()
    def check_entropy_is_that_of_the_density(self) -> None:
        self._need(ENTROPY)
        self._need(*([] if POINT not in self.part.provides else ["a density"]))
        entropy, std = self.posterior.entropy(), self.posterior.std()
        if FACTORIZED in self.part.provides:
            expected = std.log().sum() + 0.5 * len(std) * math.log(2 * math.pi * math.e)
            require_close("entropy()", entropy, expected)
        self._need(LOG_PROB)
        found = -self.posterior.log_prob(self.posterior.rsample(self._noise(DRAWS)))
        require_mean("-log q of a draw, against entropy(),", found, entropy.reshape(1))

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

    def check_state_round_trip(self) -> None:
        require_rebuilt(self.posterior, self.model)

    def check_gradients_reach_every_parameter(self) -> None:
        parameters = dict(self.posterior.named_parameters())
        weights = self.posterior.rsample(self._noise(20))
        loss = (weights * normal(*weights.shape, seed=8)).sum()
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True, allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            require(bool(gradient.isfinite().all()), f"the gradient of '{name}' is not finite")
            require(bool(gradient.any()), f"no gradient of a draw reaches '{name}'")
