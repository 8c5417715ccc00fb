"""Quantiles, intervals and drawn targets of the mixture over draws: closed forms, scipy's roots, coverage."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor, nn
from torch import distributions as td

import bayeswell as bw
from bayeswell.errors import AbsentError, SettingError
from bayeswell.likelihoods import Gaussian, NegativeBinomial, Poisson, StudentT
from bayeswell.predictive import RealPrediction, accumulate, predict
from truths.statistics import assert_mean_close

LEVELS = (0.003, 0.05, 0.31, 0.5, 0.95, 0.998)


class Given(nn.Module):
    """Its draws' outputs (D, S, ...) are written down; the inputs say which examples."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.register_buffer("outputs", outputs)

    def draws(self, count: int, generator: Any) -> Iterator[Mapping[str, Tensor]]:
        assert count in (1, len(self.outputs))  # one to try whole numbers with, then all
        yield from ({"outputs": outputs} for outputs in self.outputs[:count])

    def call(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return weights["outputs"][x]


def predicted(outputs: Tensor, likelihood: Any, **named: Any) -> RealPrediction:
    found = predict(Given(outputs), torch.arange(outputs.shape[1]), likelihood, draws=len(outputs), **named)
    assert isinstance(found, RealPrediction)
    return found


def outputs(draws: int, *shape: int, seed: int = 5) -> Tensor:
    return torch.randn(draws, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def root_of(laws: Any, level: float) -> float:
    """The quantile of the mixture of scipy's laws, one for each draw, side by side in one object."""

    def excess(value: float) -> float:
        return float(laws.cdf(value).mean()) - level

    edges = laws.ppf(level)
    low, high = float(edges.min()), float(edges.max())
    return low if high - low < 1e-12 else float(optimize.brentq(excess, low, high, xtol=1e-10))


# ---------------------------------------------------------------------------------------------------------
# Against known answers


def test_one_gaussian_has_its_own_quantiles() -> None:
    f = outputs(1, 7, 2)
    found = predicted(f, Gaussian("known", 0.7))
    for level in LEVELS:
        np.testing.assert_allclose(found.quantile(level).numpy(), stats.norm(f[0], 0.7).ppf(level), atol=1e-8)
    lower, upper = found.interval(0.8)
    torch.testing.assert_close(upper - lower, torch.full_like(f[0], 2 * 0.7 * stats.norm.ppf(0.9)))


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (Gaussian("known", 0.3), lambda f: stats.norm(f, 0.3)),
        (StudentT("known", 0.3, 3.1), lambda f: stats.t(3.1, f, 0.3)),
        (StudentT("known", 0.3, 0.9), lambda f: stats.t(0.9, f, 0.3)),
        (lambda f: td.Laplace(f, 0.4), lambda f: stats.laplace(f, 0.4)),
        (lambda f: td.LogNormal(f, 0.4), lambda f: stats.lognorm(0.4, scale=np.exp(f))),
    ],
    ids=["gaussian", "student_t", "without moments", "laplace", "log_normal"],
)
@pytest.mark.parametrize("draws", [2, 5])
def test_mixtures_have_the_quantiles_that_brentq_finds(likelihood: Any, law: Any, draws: int) -> None:
    f = 2 * outputs(draws, 4, 2)
    found = predicted(f, likelihood).quantile(LEVELS).numpy()
    for place in np.ndindex(4, 2):
        laws = law(f[(slice(None), *place)].numpy())
        expected = [root_of(laws, level) for level in LEVELS]
        np.testing.assert_allclose(found[(slice(None), *place)], expected, rtol=1e-6, atol=1e-7)


def test_two_gaussians_far_apart_are_split_where_they_meet() -> None:
    """A quarter of the mixture is the median of the lower one, three quarters that of the upper."""
    f = torch.tensor([[-40.0], [60.0]], dtype=torch.float64)
    found = predicted(f, Gaussian("known", 1.5))
    np.testing.assert_allclose(found.quantile([0.25, 0.75])[:, 0].numpy(), [-40, 60], atol=1e-6)
    # A Gaussian with the mixture's moments would say 10 - 50 * 0.674.
    assert float(found.std) == pytest.approx(math.hypot(50, 1.5))


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (Poisson(), lambda f: stats.poisson(np.exp(f))),
        (NegativeBinomial("known", 0.6), lambda f: stats.nbinom(1 / 0.6, 1 / (1 + 0.6 * np.exp(f)))),
    ],
)
def test_counts_have_whole_quantiles_and_cover_at_least_the_level(likelihood: Any, law: Any) -> None:
    f = 1.5 * outputs(3, 8, 1) + 1
    found = predicted(f, likelihood)
    laws = law(f[:, :, 0].numpy())
    for level in LEVELS:
        k = found.quantile(level)[:, 0].numpy()
        assert np.array_equal(k, k.round())
        assert (laws.cdf(k).mean(0) >= level).all()
        assert (laws.cdf(k - 1).mean(0) < level).all()
    lower, upper = (end[:, 0].numpy() for end in found.interval(0.9))
    covered = laws.cdf(upper).mean(0) - laws.cdf(lower - 1).mean(0)
    assert (covered >= 0.9).all()
    assert (covered - laws.pmf(lower).mean(0) - laws.pmf(upper).mean(0) < 0.9).all()


class Triangles:
    """y = f + the sum of two uniform numbers - 1; it knows no distribution function."""

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -(1 - (targets - outputs).abs()).clamp_min(1e-30).log().sum(1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, torch.full_like(outputs, 1 / 6)

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        noise = torch.rand(2, *outputs.shape, generator=generator, dtype=outputs.dtype)
        return outputs + noise.sum(0) - 1


def test_without_a_distribution_function_quantiles_come_from_drawn_targets() -> None:
    """Of 10,000 equally many from each draw: the level that is reached is off by at most sqrt(q (1 - q) / 10,000)."""
    f = 0.5 * outputs(4, 6, 1)
    found = predicted(f, Triangles())
    for level in (0.05, 0.5, 0.95):
        y = found.quantile(level)
        reached = stats.triang(0.5, f.numpy() - 1, 2).cdf(y.numpy()).mean(0)
        error = math.sqrt(level * (1 - level) / 10_000)
        assert np.abs(reached - level).max() < stats.norm.isf(1e-6 / 12) * error
        assert torch.equal(found.quantile(level), y)
        assert not torch.equal(found.quantile(level, seed=1), y)
    lower, upper = found.interval(0.9)
    assert bool((lower < upper).all())


def test_vectors_have_the_intervals_of_each_output() -> None:
    root = torch.tensor([[1.2, 0.0], [-0.7, 0.4]], dtype=torch.float64)

    def law(f: Tensor) -> td.MultivariateNormal:
        return td.MultivariateNormal(f, scale_tril=root)

    f = outputs(1, 3, 2)
    upper = predicted(f, law).interval(0.9).upper
    std = (root @ root.T).diagonal().sqrt()
    reached = stats.norm(f[0], std).cdf(upper)
    assert np.abs(reached - 0.95).max() < stats.norm.isf(1e-6 / 12) * math.sqrt(0.95 * 0.05 / 10_000)


# ---------------------------------------------------------------------------------------------------------
# Coverage


@pytest.mark.parametrize("likelihood", [Gaussian("known", 0.6), StudentT("known", 0.6, 2.5), Poisson()], ids=str)
def test_targets_from_the_mixture_are_covered_as_often_as_promised(likelihood: Any) -> None:
    """5,000 targets, each from one of its own draws: the share inside is binomial."""
    count, draws, level = 5_000, 4, 0.8
    f = outputs(draws, count, 1)
    generator = torch.Generator().manual_seed(8)
    chosen = torch.randint(draws, (count,), generator=generator)
    y = likelihood.sample_targets(f[chosen, torch.arange(count)], generator)
    found = predicted(f, likelihood)
    lower, upper = interval = found.interval(level)
    share = float(interval.contains(y).double().mean())
    promised = level
    if isinstance(likelihood, Poisson):
        laws = stats.poisson(f.exp().numpy())
        promised = float((laws.cdf(upper.numpy()).mean(0) - laws.cdf(lower.numpy() - 1).mean(0)).mean())
        assert promised > level
    error = math.sqrt(promised * (1 - promised) / count)
    assert abs(share - promised) < stats.norm.isf(5e-7) * error


# ---------------------------------------------------------------------------------------------------------
# Drawn targets, nats, units


def test_drawn_targets_have_the_mixtures_mean_and_variance() -> None:
    f = outputs(7, 3, 2)
    found = predicted(f, Gaussian("known", (0.7, 1.4)))
    drawn = found.sample_targets(70_000, seed=3)
    assert drawn.shape == (70_000, 3, 2)
    assert_mean_close(drawn, found.mean)
    assert_mean_close((drawn - found.mean).square(), found.variance)
    assert torch.equal(found.sample_targets(5, seed=3), found.sample_targets(5, seed=3))
    # Each sample is of one draw: the outputs of its examples go together.
    centred = (drawn - drawn.mean(0)).flatten(1)
    between = (f - f.mean(0)).flatten(1)
    together = between[:, 0] * between[:, 3]
    assert_mean_close(centred[:, :1] * centred[:, 3:4], together.mean()[None])


def test_drawn_labels_have_the_averaged_probabilities() -> None:
    found = predict(Given(outputs(4, 3, 5)), torch.arange(3), bw.Categorical(), draws=4)
    drawn = found.sample_targets(50_000, seed=2)
    assert drawn.shape == (50_000, 3)
    hits = torch.nn.functional.one_hot(drawn, 5).double()
    assert_mean_close(hits, found.probabilities)


def test_entropies_of_a_gaussian_and_of_two_far_apart() -> None:
    """H = log(std sqrt(2 pi e)) for each output; which of two is meant is worth log 2."""
    f = torch.tensor([[[0.0, 1.0]], [[90.0, -50.0]]], dtype=torch.float64)
    stds = (0.7, 1.9)
    own = sum(0.5 * math.log(2 * math.pi * math.e * std**2) for std in stds)
    found = predicted(f, Gaussian("known", stds)).in_nats(2000, seed=1)
    error = math.sqrt(1.0 / 4000)  # each output's -log p varies by 1/2
    assert float(found.aleatoric) == pytest.approx(own, abs=4.9 * error)
    assert float(found.epistemic) == pytest.approx(math.log(2), abs=1e-6)
    assert float(found.entropy) == pytest.approx(float(found.aleatoric + found.epistemic))
    one = predicted(f[:1], Gaussian("known", stds)).in_nats(2000, seed=1)
    assert float(one.epistemic) == pytest.approx(0, abs=1e-12)


def test_mutual_information_of_counts_is_the_sum_over_counts() -> None:
    f = torch.tensor([[[0.3]], [[1.9]], [[1.1]]], dtype=torch.float64)
    p = stats.poisson(np.exp(f[:, 0, 0].numpy())[:, None]).pmf(np.arange(80))
    mixed = p.mean(0)
    expected = float((stats.entropy(mixed) - stats.entropy(p, axis=1)).mean())
    logs = np.log(p / mixed)
    error = math.sqrt(float((p * logs**2).sum(1).mean() - expected**2) / 6000)
    found = predicted(f, Poisson()).in_nats(2000, seed=2)
    assert float(found.mutual_information) == pytest.approx(expected, abs=4.9 * error)


def test_other_units_move_and_stretch_everything() -> None:
    f = outputs(3, 5, 2)
    scale, shift = torch.tensor([2.5, 0.4]).double(), torch.tensor([-7.0, 30.0]).double()
    found = predicted(f, StudentT("known", 0.5, 4.2), keep_samples=True)
    there = found.rescaled(scale, shift)
    torch.testing.assert_close(there.mean, found.mean * scale + shift)
    torch.testing.assert_close(there.std, found.std * scale)
    torch.testing.assert_close(there.epistemic_std, found.epistemic_std * scale)
    torch.testing.assert_close(there.samples, found.samples * scale + shift)
    torch.testing.assert_close(there.quantile(LEVELS), found.quantile(LEVELS) * scale + shift)
    torch.testing.assert_close(there.sample_targets(9, seed=1), found.sample_targets(9, seed=1) * scale + shift)
    gained = float(scale.log().sum())
    here_nats, there_nats = found.in_nats(5), there.in_nats(5)
    torch.testing.assert_close(there_nats.entropy, here_nats.entropy + gained)
    torch.testing.assert_close(there_nats.epistemic, here_nats.epistemic)
    # Twice is once with both.
    twice = there.rescaled(3.0, 1.0)
    torch.testing.assert_close(twice.quantile(0.3), there.quantile(0.3) * 3 + 1)
    assert found.law is not None
    y = found.quantile(0.3)
    torch.testing.assert_close(there.law.cdf(y * scale + shift), torch.full_like(y, 0.3))  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------
# What is kept, and what is not


def test_what_was_predicted_stays_when_the_likelihood_learns_more() -> None:
    likelihood = Gaussian("learned", 0.7)
    found = predicted(outputs(3, 4, 1), likelihood)
    before = found.interval(0.9)
    with torch.no_grad():
        likelihood.log_std.add_(1.0)  # type: ignore[union-attr]
    assert torch.equal(found.interval(0.9).upper, before.upper)


def test_batches_change_no_quantile() -> None:
    f = outputs(6, 11, 2)
    whole, pieces = (predicted(f, Gaussian("known", 0.7), batch_size=size) for size in (None, 4))
    assert torch.equal(whole.quantile(0.2), pieces.quantile(0.2))


def test_large_predictions_keep_no_draws_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    f = outputs(6, 11, 2)
    monkeypatch.setattr(accumulate, "KEPT_NUMBERS", 6 * 11 * 2 - 1)
    found = predicted(f, Gaussian("known", 0.7), batch_size=4)
    assert found.law is None
    with pytest.raises(AbsentError, match=r"6 draws says was not kept.*keep_samples=True"):
        found.interval(0.9)
    asked = predicted(f, Gaussian("known", 0.7), keep_samples=True, batch_size=4)
    monkeypatch.setattr(accumulate, "KEPT_NUMBERS", 6 * 11 * 2)
    assert torch.equal(predicted(f, Gaussian("known", 0.7), batch_size=4).quantile(0.4), asked.quantile(0.4))


def test_hasattr_tells_what_is_not_there() -> None:
    found = predicted(outputs(2, 3, 1), Gaussian())
    assert not hasattr(found, "samples")
    assert getattr(found, "samples", None) is None
    assert copy.copy(found).draws == 2


class OnlyMoments:
    """Enough to train and to predict a mean with."""

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, torch.ones_like(outputs)


def test_what_cannot_be_known_is_said_in_one_line() -> None:
    found = predicted(outputs(2, 3, 1), OnlyMoments())
    with pytest.raises(AbsentError, match=r"`sample_targets` of the likelihood, or `cdf`.*OnlyMoments"):
        found.interval(0.9)
    for level in (0.0, 1.0, 1.5, -0.1, "0.9"):
        with pytest.raises(SettingError, match="level"):
            found.interval(level)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="quantile: q = 1"):
        predicted(outputs(2, 3, 1), Gaussian()).quantile([0.5, 1.0])
