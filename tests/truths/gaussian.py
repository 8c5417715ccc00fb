"""Divergences of Gaussians from common priors: closed forms, and quadrature where there is none.

All KL are KL(q || p) with q the Gaussian given first, in nats, summed over weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import integrate, special

from .arrays import Array, ArrayLike, float64

LogDensity = Callable[[Array], Array]


def entropy_diagonal(std: ArrayLike) -> float:
    """sum_i (1 + log(2 pi std_i^2)) / 2."""
    return float(np.sum(0.5 + 0.5 * np.log(2 * np.pi) + np.log(float64(std))))


def kl_diagonal(mean: ArrayLike, std: ArrayLike, prior_mean: ArrayLike, prior_std: ArrayLike) -> float:
    """sum_i log(s_i / std_i) + (std_i^2 + (mean_i - m_i)^2) / (2 s_i^2) - 1/2 for a prior N(m, diag(s^2))."""
    q_mean, q_std, p_mean, p_std = np.broadcast_arrays(*map(float64, (mean, std, prior_mean, prior_std)))
    return float(np.sum(np.log(p_std / q_std) + (q_std**2 + (q_mean - p_mean) ** 2) / (2 * p_std**2) - 0.5))


def kl_full(mean: ArrayLike, covariance: ArrayLike, prior_mean: ArrayLike, prior_covariance: ArrayLike) -> float:
    """(tr(P^-1 S) + (m - mean)' P^-1 (m - mean) - d + log det P - log det S) / 2; covariances S of q, P."""
    q_cov, p_cov = float64(covariance), float64(prior_covariance)
    shift = float64(prior_mean) - float64(mean)
    quadratic = np.trace(np.linalg.solve(p_cov, q_cov)) + shift @ np.linalg.solve(p_cov, shift)
    log_ratio = np.linalg.slogdet(p_cov)[1] - np.linalg.slogdet(q_cov)[1]
    return float(0.5 * (quadratic - len(shift) + log_ratio))


def kl_to_laplace(mean: ArrayLike, std: ArrayLike, scale: ArrayLike, location: ArrayLike = 0.0) -> float:
    """KL(N(mean, std^2) || Laplace(location, scale)), closed form through the folded normal.

    E|w - location| = std sqrt(2/pi) exp(-d^2 / (2 std^2)) + d erf(d / (std sqrt 2)), d = mean - location;
    KL = log(2 scale) + E|w - location| / scale - entropy of q.
    """
    q_mean, q_std, b, centre = np.broadcast_arrays(*map(float64, (mean, std, scale, location)))
    d = q_mean - centre
    folded = q_std * np.sqrt(2 / np.pi) * np.exp(-0.5 * (d / q_std) ** 2)
    folded = folded + d * special.erf(d / (q_std * np.sqrt(2)))
    return float(np.sum(np.log(2 * b) + folded / b)) - entropy_diagonal(q_std)


def log_density_normal(weight: ArrayLike, std: ArrayLike, mean: ArrayLike = 0.0) -> Array:
    """Log density of N(mean, std^2), elementwise."""
    z = (float64(weight) - float64(mean)) / float64(std)
    return -0.5 * z**2 - np.log(float64(std)) - 0.5 * np.log(2 * np.pi)


def log_density_laplace(weight: ArrayLike, scale: ArrayLike, location: ArrayLike = 0.0) -> Array:
    """Log density of Laplace(location, scale), elementwise."""
    return -np.abs(float64(weight) - float64(location)) / float64(scale) - np.log(2 * float64(scale))


def log_density_scale_mixture(weight: ArrayLike, mixing: float, first_std: float, second_std: float) -> Array:
    """log(mixing N(w; 0, first_std^2) + (1 - mixing) N(w; 0, second_std^2)), elementwise.

    Blundell et al. 2015, Weight Uncertainty in Neural Networks, equation 7.
    """
    return np.logaddexp(
        np.log(mixing) + log_density_normal(weight, first_std),
        np.log1p(-mixing) + log_density_normal(weight, second_std),
    )


def expected_log_density(
    mean: ArrayLike, std: ArrayLike, log_density: LogDensity, breaks: Sequence[float] = (0.0,)
) -> Array:
    """E_q log p(w_i) for each w_i ~ N(mean_i, std_i^2), by adaptive quadrature; `log_density` is elementwise.

    `breaks` are weights where log p has a kink or changes fast (0 for Laplace and scale mixtures): the
    quadrature splits there. Cutting at 12 std loses less than 1e-29; an error estimate above 1e-9 raises.
    """

    def expectation(m: float, s: float) -> float:
        def integrand(z: float) -> float:
            value = log_density(np.asarray(m + s * z, dtype=np.float64))
            return float(value) * float(np.exp(-0.5 * z**2)) / float(np.sqrt(2 * np.pi))

        inside = [(b - m) / s for b in breaks if abs(b - m) < 12 * s]
        value, error = integrate.quad(
            integrand, -12, 12, points=sorted([*inside, 0.0]), limit=1000, epsabs=1e-12, epsrel=1e-12
        )
        if error > 1e-9 * max(1.0, abs(value)):
            raise ArithmeticError(f"quadrature error {error:.1e} at mean {m}, std {s}: add breaks where log p is sharp")
        return float(value)

    means, stds = np.broadcast_arrays(float64(mean), float64(std))
    return np.vectorize(expectation, otypes=[np.float64])(means, stds)


def kl_by_quadrature(
    mean: ArrayLike, std: ArrayLike, log_density: LogDensity, breaks: Sequence[float] = (0.0,)
) -> float:
    """KL(N(mean, diag(std^2)) || prod_i p) for any elementwise prior log density."""
    means, stds = np.broadcast_arrays(float64(mean), float64(std))
    return -entropy_diagonal(stds) - float(expected_log_density(means, stds, log_density, breaks).sum())
