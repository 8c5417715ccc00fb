"""Poisson and negative binomial against scipy, exact sums over all counts, and the frequencies of what they draw.

Monte Carlo comparisons fail falsely once in a million runs with other seeds; seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from bayeswell.errors import DataError, SettingError
from bayeswell.likelihoods import LIKELIHOODS, NegativeBinomial, Poisson
from bayeswell.random import make_generator
from truths.statistics import assert_mean_close

MANY = 200_000
GROUP = 1_000
LOG_MEANS = torch.tensor([0.7, -1.3, 2.1, 0.2], dtype=torch.float64)
DISPERSION = 0.4
Counts = Poisson | NegativeBinomial
BOTH = [Poisson(), NegativeBinomial("known", DISPERSION)]


def log_pmf(likelihood: Counts, counts: np.ndarray, log_mean: np.ndarray) -> np.ndarray:
    mean = np.exp(log_mean)
    if isinstance(likelihood, Poisson):
        return np.asarray(scipy.stats.poisson.logpmf(counts, mean))
    r = 1 / likelihood.dispersion
    return np.asarray(scipy.stats.nbinom.logpmf(counts, r, r / (r + mean)))


@pytest.mark.parametrize("likelihood", BOTH)
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (6, 2, 3)])
@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.float32, torch.float64])
def test_nll_against_scipy(likelihood: Counts, shape: tuple[int, ...], kind: torch.dtype) -> None:
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(1)) * 2
    counts = torch.randint(12, shape, generator=make_generator(2))
    expected = -log_pmf(likelihood, counts.numpy(), outputs.numpy()).reshape(6, -1).sum(1)
    likelihood.check(counts.to(kind), outputs)
    np.testing.assert_allclose(likelihood.nll(outputs, counts.to(kind)), expected, rtol=1e-10)


@pytest.mark.parametrize("likelihood", BOTH)
def test_probabilities_sum_to_one(likelihood: Counts) -> None:
    counts = torch.arange(2000)
    for log_mean in LOG_MEANS.tolist():
        outputs = torch.full((2000,), log_mean, dtype=torch.float64)
        assert float(likelihood.nll(outputs, counts).neg().exp().sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("likelihood", BOTH)
def test_mean_and_variance_are_the_sums_over_all_counts(likelihood: Counts) -> None:
    counts = np.arange(3000)
    mean, variance = likelihood.mean_and_variance(LOG_MEANS)
    for index, log_mean in enumerate(LOG_MEANS.tolist()):
        p = np.exp(log_pmf(likelihood, counts, np.array(log_mean)))
        assert mean[index].item() == pytest.approx((p * counts).sum(), rel=1e-9)
        assert variance[index].item() == pytest.approx((p * (counts - mean[index].item()) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("likelihood", BOTH)
def test_draws_have_the_frequencies_of_the_model(likelihood: Counts) -> None:
    drawn = likelihood.sample_targets(LOG_MEANS.expand(MANY, 4), make_generator(3))
    likelihood.check(drawn, LOG_MEANS.expand(MANY, 4))
    several = torch.arange(8)
    # Shares in groups of draws: their mean and its standard error are those of the single draws.
    found = (drawn.reshape(-1, GROUP, 4, 1) == several).double().mean(1)
    expected = np.exp(log_pmf(likelihood, several.numpy(), LOG_MEANS.numpy()[:, None]))
    usual = expected > 1e-3  # rarer ones are far from a normal law
    assert usual.sum() > 20
    assert_mean_close(found[:, usual], expected[usual], std=np.sqrt(expected * (1 - expected) / GROUP)[usual])
    # The tail too: the mean is made of all counts.
    assert_mean_close(drawn, LOG_MEANS.exp())


@pytest.mark.parametrize("likelihood", BOTH)
def test_curvature_is_the_expected_hessian(likelihood: Counts) -> None:
    """The Hessian for every count, by autograd, averaged with its probability."""
    counts = torch.arange(3000)
    for place, log_mean in enumerate(LOG_MEANS.tolist()):
        f = torch.full((3000,), log_mean, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(likelihood.nll(f, counts).sum(), f, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), f)
        p = np.exp(log_pmf(likelihood, counts.numpy(), np.array(log_mean)))
        exact = float((p * second.numpy()).sum())
        assert likelihood.curvature_diagonal(LOG_MEANS)[place].item() == pytest.approx(exact, rel=1e-9)
    u = likelihood.curvature_root(LOG_MEANS.expand(MANY, 4), make_generator(4))
    diagonal = likelihood.curvature_diagonal(LOG_MEANS)
    # Squares of signs are 1: only what lies off the diagonal has a Monte Carlo error.
    torch.testing.assert_close(u.square(), diagonal.expand(MANY, 4))
    assert_mean_close(torch.stack([u[:, i] * u[:, j] for i in range(4) for j in range(i)], 1), torch.zeros(6))


@pytest.mark.parametrize("likelihood", BOTH)
def test_scores_of_draws_have_that_curvature_too(likelihood: Counts) -> None:
    rows = LOG_MEANS.repeat(MANY, 1).requires_grad_()
    drawn = likelihood.sample_targets(rows, make_generator(5))
    (score,) = torch.autograd.grad(likelihood.nll(rows, drawn).sum(), rows)
    assert_mean_close(score, torch.zeros(4, dtype=torch.float64))
    assert_mean_close(score.square(), likelihood.curvature_diagonal(LOG_MEANS))


@pytest.mark.parametrize("likelihood", BOTH)
def test_curvature_root_has_the_derivative_of_the_curvature(likelihood: Counts) -> None:
    f = LOG_MEANS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(likelihood.curvature_diagonal(f).sum(), f)
    u = likelihood.curvature_root(f, make_generator(6))
    (found,) = torch.autograd.grad(u.square().sum(), f)
    torch.testing.assert_close(found, expected)
    if isinstance(likelihood, Poisson):
        torch.testing.assert_close(expected, LOG_MEANS.exp())
    else:
        mean = LOG_MEANS.exp()
        torch.testing.assert_close(expected, mean / (1 + DISPERSION * mean) ** 2)


def test_little_dispersion_is_poisson() -> None:
    counts = torch.tensor([0, 3, 17, 1, 250])
    outputs = torch.tensor([0.4, 1.0, 2.5, -3.0, 5.0])
    near = NegativeBinomial("known", 1e-7).nll(outputs, counts)
    # In float32 and with log Gamma(1e7) inside: the digits must survive.
    torch.testing.assert_close(near, Poisson().nll(outputs, counts), rtol=1e-3, atol=1e-4)


def test_learned_dispersion_has_its_optimum_where_scipy_has_it() -> None:
    rng = np.random.default_rng(7)
    counts = rng.negative_binomial(2.5, 2.5 / (2.5 + 6.0), size=400)
    outputs = torch.full((400,), math.log(counts.mean()), dtype=torch.float64)
    r = np.linspace(1.0, 6.0, 5001)[:, None]
    values, times = np.unique(counts, return_counts=True)
    losses = -scipy.stats.nbinom.logpmf(values, r, r / (r + counts.mean())) @ times
    best = float(r[losses.argmin(), 0])
    likelihood = NegativeBinomial("learned", 1 / best).double()
    learned = likelihood.get_parameter("log_dispersion")
    likelihood.nll(outputs, torch.from_numpy(counts)).mean().backward()
    assert learned.grad is not None
    assert abs(learned.grad.item()) < 1e-4
    wrong = NegativeBinomial("learned", 2 / best).double()
    wrong.nll(outputs, torch.from_numpy(counts)).mean().backward()
    slope = wrong.get_parameter("log_dispersion").grad
    assert slope is not None
    assert slope.item() > 0.01


@pytest.mark.parametrize("likelihood", [*BOTH, NegativeBinomial("learned", 1e-8), NegativeBinomial("learned", 1e8)])
@pytest.mark.parametrize("output", [-1e4, -200.0, 45.0, 200.0, 1e4])
def test_wild_outputs_stay_finite_and_lead_back(likelihood: Counts, output: float) -> None:
    for count in (0.0, 7.0):
        f = torch.tensor([[output]], requires_grad=True)
        loss = likelihood.nll(f, torch.tensor([[count]])).sum()
        (slope,) = torch.autograd.grad(loss, f, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), f, allow_unused=True)
        assert loss.isfinite()
        assert slope.isfinite().all()
        assert second is None or second.isfinite().all()
        if count and abs(output) > 100:
            assert (slope > 0).item() == (output > 0)
    u = likelihood.curvature_root(f, make_generator(8))
    (gradient,) = torch.autograd.grad(u.square().sum(), f)
    assert u.isfinite().all()
    assert gradient.isfinite().all()
    drawn = likelihood.sample_targets(f, make_generator(9))
    assert drawn.isfinite().all()
    assert (drawn >= 0).all()
    assert likelihood.mean_and_variance(f)[0].isfinite().all()


@pytest.mark.parametrize("likelihood", BOTH)
def test_16_bit_outputs_are_scored_in_32_bits(likelihood: Counts) -> None:
    outputs, counts = torch.tensor([[10.5, -2.0]], dtype=torch.bfloat16), torch.tensor([[30000, 1]])
    assert likelihood.nll(outputs, counts).dtype == torch.float32
    torch.testing.assert_close(likelihood.nll(outputs, counts), likelihood.nll(outputs.float(), counts))
    assert likelihood.nll(outputs.float(), counts.double()).dtype == torch.float32


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
@pytest.mark.parametrize(
    ("targets", "outputs", "words"),
    [
        (torch.tensor([1.0, 0.5]), torch.zeros(2), ["target 0.5", "index 1", "whole numbers from 0"]),
        (torch.tensor([[1, -2]]), torch.zeros(1, 2), ["target -2", "index (0, 1)"]),
        (torch.tensor([math.nan]), torch.zeros(1), ["target nan"]),
        (torch.tensor([math.inf]), torch.zeros(1), ["target inf"]),
        (torch.zeros(5), torch.zeros(5, 5), ["(5,)", "(5, 5)"]),
        (torch.zeros(2, dtype=torch.complex64), torch.zeros(2), ["complex64"]),
        (torch.zeros(0), torch.zeros(0), ["no examples"]),
    ],
)
def test_targets_that_are_no_counts_are_refused(name: str, targets: Tensor, outputs: Tensor, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        LIKELIHOODS.resolve(name).check(targets, outputs)
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("likelihood", BOTH)
def test_a_last_axis_of_one_is_matched_and_never_broadcast(likelihood: Counts) -> None:
    outputs, counts = torch.randn(5, generator=make_generator(10)), torch.arange(5)
    expected = likelihood.nll(outputs, counts)
    torch.testing.assert_close(likelihood.nll(outputs[:, None], counts), expected)
    torch.testing.assert_close(likelihood.nll(outputs, counts[:, None]), expected)
    with pytest.raises(DataError):
        likelihood.nll(torch.zeros(5, 5), counts)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dispersion": 0}, ["dispersion = 0", "above 0"]),
        ({"dispersion": 1e-12}, ["dispersion = 1e-12", "poisson"]),
        ({"noise": "per_input"}, ["noise = 'per_input'", "known, learned"]),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        LIKELIHOODS.resolve({"name": "negative_binomial", **settings})
    assert all(word in str(caught.value) for word in words), caught.value
