"""P(y <= value) of every likelihood of numbers, against scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import distributions as td

from bayeswell.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    NegativeBinomial,
    Poisson,
    RealLikelihood,
    StudentT,
    for_outputs,
)
from bayeswell.likelihoods.incomplete_beta import incomplete_beta

OUTPUTS = torch.tensor([[-1.3, 0.4], [0.7, 2.1], [3.2, -0.2]], dtype=torch.float64)
VALUES = torch.tensor([[-2.0, 3.0], [1.0, 7.0], [19.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (Gaussian("known", 0.7), lambda f: stats.norm(f, 0.7)),
        (Gaussian("known", (0.7, 1.9)), lambda f: stats.norm(f, [0.7, 1.9])),
        (Gaussian("learned", 0.7, noise_factor=1.3), lambda f: stats.norm(f, 0.91)),
        (StudentT("known", 1.7, 0.8), lambda f: stats.t(0.8, f, 1.7)),
        (StudentT("learned", 0.6, 5.5, noise_factor=1.2), lambda f: stats.t(5.5, f, 0.72)),
        (Poisson(), lambda f: stats.poisson(np.exp(f))),
        (NegativeBinomial("known", 0.4), lambda f: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(f)))),
        (lambda f: td.Laplace(f, 0.6), lambda f: stats.laplace(f, 0.6)),
        (lambda f: td.Gamma(f.exp(), torch.tensor(1.7).double()), lambda f: stats.gamma(np.exp(f), scale=1 / 1.7)),
        (lambda f: td.LogNormal(f, 0.5), lambda f: stats.lognorm(0.5, scale=np.exp(f))),
        (lambda f: td.Uniform(f, f + 2.5), lambda f: stats.uniform(f, 2.5)),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_distribution_function_is_scipys(likelihood: Any, law: Callable[[Any], Any]) -> None:
    part = for_outputs(LIKELIHOODS.resolve(likelihood), OUTPUTS)
    assert isinstance(part, RealLikelihood)
    found = part.cdf(OUTPUTS, VALUES).detach()  # type: ignore[attr-defined]
    # Settings that are learned are kept as float32.
    np.testing.assert_allclose(found.numpy(), law(OUTPUTS.numpy()).cdf(VALUES.numpy()), rtol=2e-6, atol=1e-12)


def test_heteroscedastic_noise_is_read_from_the_outputs() -> None:
    outputs = torch.cat([OUTPUTS, OUTPUTS / 3], dim=1)
    found = Gaussian("per_input").cdf(outputs, VALUES)
    expected = stats.norm(OUTPUTS.numpy(), np.exp(OUTPUTS.numpy() / 3)).cdf(VALUES.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial("known", 0.4)])
def test_counts_step_at_whole_numbers_and_begin_at_zero(likelihood: Any) -> None:
    f = torch.full((4,), 0.9, dtype=torch.float64)
    low, at, between, after = likelihood.cdf(f, torch.tensor([-0.5, 2.0, 2.9, 3.0])).tolist()
    assert low == 0
    assert at == between < after


@pytest.mark.parametrize(
    "function",
    [
        lambda f: td.Poisson(f.exp()),
        lambda f: td.MultivariateNormal(f, torch.eye(2, dtype=f.dtype)),
        lambda f: td.StudentT(4.0, f),
    ],
)
def test_what_torch_does_not_know_has_no_cdf_but_draws(function: Any) -> None:
    part = for_outputs(LIKELIHOODS.resolve(function), OUTPUTS)
    assert not hasattr(part, "cdf")
    assert part.sample_targets(OUTPUTS, torch.Generator().manual_seed(0)).shape == OUTPUTS.shape


def test_the_incomplete_beta_function_is_scipys() -> None:
    """From 0.01 to 10^5 and over four standard deviations of the law; digits of log gamma are lost as they grow."""
    generator = np.random.default_rng(3)
    for low, high, tolerance in ((-2, 2, 1e-12), (-1, 5, 1e-9)):
        a, b = 10 ** generator.uniform(low, high, (2, 3000))
        mean, std = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
        x = np.clip(mean + 2 * std * generator.normal(size=3000), 0, 1)
        found = incomplete_beta(*(torch.from_numpy(value) for value in (a, b, x, 1 - x)))
        np.testing.assert_allclose(found.numpy(), special.betainc(a, b, x), atol=tolerance)
