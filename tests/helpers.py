"""Closed forms and statistical assertions that the tests of several rooms need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor


def assert_mean_close(samples: Any, truth: Any, rate: float = 1e-6) -> None:
    """The mean over the first axis equals ``truth``: a t-test of each number, together failing at this rate."""
    values = np.asarray(torch.as_tensor(samples).detach(), dtype=np.float64)
    expected = np.asarray(torch.as_tensor(truth).detach(), dtype=np.float64)
    count = len(values)
    quantile = -special.stdtrit(count - 1, rate / (2 * max(expected.size, 1)))
    tolerance = quantile * values.std(0, ddof=1) / np.sqrt(count) + 1e-12 * np.abs(values).max()
    excess = np.abs(values.mean(0) - expected) - tolerance
    assert (excess <= 0).all(), f"off by {excess.max():.3g} more than the tolerance; found {values.mean(0)}"


def kl_gaussian(mean: Tensor, covariance: Tensor, prior_mean: Tensor, prior_covariance: Tensor) -> float:
    """KL(N(m, S) || N(m0, S0)) = (tr(S0^-1 S) + d' S0^-1 d - P + log det S0 - log det S) / 2."""
    inverse, distance = torch.linalg.inv(prior_covariance), prior_mean - mean
    quadratic = (inverse * covariance).sum() + distance @ inverse @ distance
    return float(0.5 * (quadratic - len(mean) + torch.logdet(prior_covariance) - torch.logdet(covariance)))


@dataclass(frozen=True)
class LinearRegression:
    """Bayesian linear regression with known noise: y = X w + N(0, noise_std^2), w_i ~ N(0, prior_std^2).

    The tempered posterior p(y | w)^(1/T) p(w) / Z is N(mean, Lambda^-1) with Lambda = X'X / (T noise^2) + I / prior^2.
    """

    x: Tensor
    y: Tensor
    noise_std: float = 0.7
    prior_std: float = 1.3

    @classmethod
    def make(cls, seed: int = 3, count: int = 60, dimension: int = 4) -> LinearRegression:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        x = normal(count, dimension) @ (torch.eye(dimension, dtype=torch.float64) + 0.5 * normal(dimension, dimension))
        return cls(x, x @ (1.3 * normal(dimension)) + 0.7 * normal(count))

    def precision(self, temperature: float = 1.0) -> Tensor:
        prior = torch.eye(self.x.shape[1], dtype=torch.float64) / self.prior_std**2
        return self.x.T @ self.x / (temperature * self.noise_std**2) + prior

    def covariance(self, temperature: float = 1.0) -> Tensor:
        return torch.linalg.inv(self.precision(temperature))

    def mean(self, temperature: float = 1.0) -> Tensor:
        return self.covariance(temperature) @ self.x.T @ self.y / (temperature * self.noise_std**2)

    def log_evidence(self, temperature: float = 1.0) -> float:
        """log Z; at temperature 1 the log marginal likelihood."""
        precision, mean, noise = self.precision(temperature), self.mean(temperature), self.noise_std**2
        log_z = -len(self.y) / (2 * temperature) * np.log(2 * np.pi * noise)
        log_z -= 0.5 * float(self.y @ self.y / (temperature * noise) - mean @ precision @ mean)
        return float(log_z - len(mean) * np.log(self.prior_std) - 0.5 * torch.logdet(precision))

    def elbo(self, mean: Tensor, covariance: Tensor, temperature: float = 1.0) -> float:
        """E_q log p(y | w) - T KL(q || p) of q = N(mean, covariance), in nats."""
        residual = self.y - self.x @ mean
        squares = residual @ residual + ((self.x @ covariance) * self.x).sum()
        constant = len(self.y) * np.log(2 * np.pi * self.noise_std**2)
        prior = self.prior_std**2 * torch.eye(len(mean), dtype=torch.float64)
        kl = kl_gaussian(mean, covariance, torch.zeros_like(mean), prior)
        return float(-0.5 * (constant + squares / self.noise_std**2)) - temperature * kl
