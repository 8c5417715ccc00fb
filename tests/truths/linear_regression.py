"""Bayesian linear regression with known noise: every quantity of variational inference in closed form.

Model: y = A w + N(0, noise_std^2), w_i ~ N(0, prior_std_i^2), A = X or [X, 1] (bias last).
Objective at temperature beta, in nats, summed over the data:

    J_beta(q) = E_q log p(y | w) - beta KL(q || p)                              (beta = 1: the ELBO)
              = beta (log Z_beta - KL(q || p_beta)),
    p_beta(w) = p(y | w)^(1/beta) p(w) / Z_beta = N(mean, Lambda^-1),
    Lambda    = A'A / (beta noise_std^2) + diag(1 / prior_std^2),
    mean      = Lambda^-1 A'y / (beta noise_std^2).

Maximising over all Gaussians gives beta log Z_beta (log evidence at beta = 1); over diagonal ones the same
mean, std_i = 1/sqrt(Lambda_ii) and KL(q || p_beta) = (sum_i log Lambda_ii - log det Lambda) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .arrays import Array, ArrayLike, correlated_inputs, design_matrix, float64
from .gaussian import kl_full


@dataclass(frozen=True)
class LinearRegression:
    """Data, noise and prior; `prior_std` has one entry per column of `design`."""

    X: Array
    y: Array
    noise_std: float
    prior_std: Array
    with_bias: bool = False

    @classmethod
    def make(
        cls,
        seed: int,
        count: int = 200,
        dimension: int = 5,
        noise_std: float = 0.7,
        prior_std: ArrayLike = 1.3,
        with_bias: bool = False,
        mixing: float = 0.7,
    ) -> LinearRegression:
        """A generic problem: correlated inputs, true weights drawn from the prior."""
        generator = np.random.default_rng(seed)
        inputs = correlated_inputs(generator, count, dimension, mixing)
        stds = np.broadcast_to(float64(prior_std), (dimension + with_bias,)).copy()
        signal = design_matrix(inputs, with_bias) @ (stds * generator.standard_normal(len(stds)))
        targets = signal + noise_std * generator.standard_normal(count)
        # As for the inputs: one truth for float32 and float64.
        return cls(inputs, targets.astype(np.float32).astype(np.float64), noise_std, stds, with_bias)

    @property
    def design(self) -> Array:
        return design_matrix(self.X, self.with_bias)

    def tensors(self, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
        """(X: N x d without the bias column, y: N); the same numbers in float32 and float64."""
        return torch.tensor(self.X, dtype=dtype), torch.tensor(self.y, dtype=dtype)

    # The exact (tempered) posterior.

    def precision(self, temperature: float = 1.0) -> Array:
        """Lambda = A'A / (temperature noise_std^2) + diag(1 / prior_std^2)."""
        design = self.design
        return design.T @ design / (temperature * self.noise_std**2) + np.diag(self.prior_std**-2.0)

    def covariance(self, temperature: float = 1.0) -> Array:
        return np.linalg.inv(self.precision(temperature))

    def mean(self, temperature: float = 1.0) -> Array:
        """Mean of the exact posterior, and of the optimum of every Gaussian family with a free mean."""
        gradient = self.design.T @ self.y / (temperature * self.noise_std**2)
        return np.linalg.solve(self.precision(temperature), gradient)

    def full_elbo(self, temperature: float = 1.0) -> float:
        """max_q J_beta(q) = beta log Z_beta: what a full-covariance Gaussian attains."""
        precision, mean = self.precision(temperature), self.mean(temperature)
        log_z = -len(self.y) / (2 * temperature) * np.log(2 * np.pi * self.noise_std**2)
        log_z -= 0.5 * (self.y @ self.y / (temperature * self.noise_std**2) - mean @ precision @ mean)
        log_z -= np.log(self.prior_std).sum() + 0.5 * np.linalg.slogdet(precision)[1]
        return float(temperature * log_z)

    @property
    def log_evidence(self) -> float:
        """log p(y), the ceiling of every ELBO."""
        return self.full_elbo(1.0)

    # The mean-field optimum.

    def mean_field_std(self, temperature: float = 1.0) -> Array:
        """1 / sqrt(Lambda_ii): never above the marginal std sqrt((Lambda^-1)_ii)."""
        return np.diag(self.precision(temperature)) ** -0.5

    def mean_field_gap(self, temperature: float = 1.0) -> float:
        """KL(mean-field optimum || exact posterior) in nats."""
        precision = self.precision(temperature)
        return float(0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1]))

    def mean_field_elbo(self, temperature: float = 1.0) -> float:
        return self.full_elbo(temperature) - temperature * self.mean_field_gap(temperature)

    def low_rank_elbo_bounds(self, temperature: float = 1.0) -> tuple[float, float]:
        """(lower, upper) for the optimum of diagonal + rank r, any r >= 1.

        The upper one is attained from r = p - 1 on: Lambda^-1 - (its smallest eigenvalue) I has rank p - 1.
        """
        return self.mean_field_elbo(temperature), self.full_elbo(temperature)

    # The objective at any Gaussian.

    def expected_log_likelihood(self, mean: ArrayLike, covariance: ArrayLike) -> float:
        """E_q log p(y | w) for q = N(mean, covariance), summed over the data."""
        design, residual = self.design, self.y - self.design @ float64(mean)
        squares = residual @ residual + np.einsum("ni,ij,nj->", design, float64(covariance), design)
        constant = len(self.y) * np.log(2 * np.pi * self.noise_std**2)
        return float(-0.5 * (constant + squares / self.noise_std**2))

    def kl_to_prior(self, mean: ArrayLike, covariance: ArrayLike) -> float:
        return kl_full(mean, covariance, np.zeros_like(self.prior_std), np.diag(self.prior_std**2))

    def elbo_full(self, mean: ArrayLike, covariance: ArrayLike, temperature: float = 1.0) -> float:
        """J_beta of N(mean, covariance)."""
        kl = self.kl_to_prior(mean, covariance)
        return self.expected_log_likelihood(mean, covariance) - temperature * kl

    def elbo(self, mean: ArrayLike, std: ArrayLike, temperature: float = 1.0) -> float:
        """J_beta of the diagonal Gaussian N(mean, diag(std^2))."""
        return self.elbo_full(mean, np.diag(float64(std) ** 2), temperature)
