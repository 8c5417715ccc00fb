"""Student's t against scipy and quadrature. Monte Carlo comparisons fail falsely once in a million runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from bayeswell.errors import DataError, SettingError
from bayeswell.likelihoods import LIKELIHOODS, Gaussian, StudentT
from bayeswell.random import make_generator
from truths.statistics import assert_distribution_close, assert_mean_close

MANY = 100_000
SCALE, DF = 0.6, 3.5
LOCATIONS = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize(("noise", "learn_df"), [("known", False), ("learned", False), ("known", True)])
def test_nll_against_scipy(shape: tuple[int, ...], noise: str, learn_df: bool) -> None:
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(1))
    targets = torch.randn(shape, dtype=torch.float64, generator=make_generator(2)) * 5
    likelihood = StudentT(noise, SCALE, DF, learn_df).double()
    expected = -scipy.stats.t.logpdf(targets.numpy(), DF, outputs.numpy(), SCALE).reshape(5, -1).sum(1)
    # What is learned starts as float32.
    tolerance = 1e-12 if noise == "known" and not learn_df else 1e-6
    likelihood.check(targets, outputs)
    np.testing.assert_allclose(likelihood.nll(outputs, targets).detach(), expected, rtol=tolerance)


@pytest.mark.parametrize("df", [0.7, 1.5, 40.0, 1e6])
def test_nll_in_float32_keeps_its_digits(df: float) -> None:
    outputs, targets = torch.zeros(4), torch.tensor([0.0, 0.3, -2.0, 30.0])
    expected = -scipy.stats.t.logpdf(targets.numpy().astype(float), df, 0, SCALE)
    np.testing.assert_allclose(StudentT("known", SCALE, df).nll(outputs, targets), expected, rtol=2e-4)


def test_many_degrees_of_freedom_are_a_gaussian() -> None:
    outputs, targets = LOCATIONS, torch.tensor([0.1, 0.2, 2.2], dtype=torch.float64)
    far = StudentT("known", SCALE, 1e8).nll(outputs, targets)
    torch.testing.assert_close(far, Gaussian("known", SCALE).nll(outputs, targets), rtol=1e-6, atol=1e-6)


def test_draws_have_the_law() -> None:
    likelihood = StudentT("known", SCALE, DF)
    drawn = likelihood.sample_targets(LOCATIONS.expand(MANY, 3), make_generator(3))
    assert_distribution_close(drawn, lambda y: scipy.stats.t.cdf(y, DF, LOCATIONS.numpy(), SCALE))


def test_mean_and_variance() -> None:
    mean, variance = StudentT("known", SCALE, DF).mean_and_variance(LOCATIONS)
    torch.testing.assert_close(mean, LOCATIONS)
    np.testing.assert_allclose(variance, scipy.stats.t.var(DF, scale=SCALE), rtol=1e-10)
    for df in (2.0, 1.5, 0.7):
        mean, variance = StudentT("known", SCALE, df).mean_and_variance(LOCATIONS)
        torch.testing.assert_close(mean, LOCATIONS)
        assert (variance == math.inf).all()


def test_curvature_is_the_expected_hessian() -> None:
    likelihood = StudentT("known", SCALE, DF)

    y = np.linspace(-40, 40, 20_001)
    f = torch.full((len(y), 1), 0.4, dtype=torch.float64, requires_grad=True)
    loss = likelihood.nll(f, torch.from_numpy(y)[:, None]).sum()
    (slope,) = torch.autograd.grad(loss, f, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), f)
    exact = scipy.integrate.simpson(second[:, 0].numpy() * scipy.stats.t.pdf(y, DF, 0.4, SCALE), x=y)
    diagonal = likelihood.curvature_diagonal(LOCATIONS)
    np.testing.assert_allclose(diagonal, exact, rtol=1e-5)
    u = likelihood.curvature_root(LOCATIONS.expand(MANY, 3), make_generator(4))
    # Squares of signs are 1: only what lies off the diagonal has a Monte Carlo error.
    torch.testing.assert_close(u.square(), diagonal.expand(MANY, 3))
    assert_mean_close(torch.stack([u[:, i] * u[:, j] for i in range(3) for j in range(i)], 1), torch.zeros(3))
    # And the scores of draws, which are bounded.
    rows = LOCATIONS.repeat(MANY, 1).requires_grad_()
    drawn = likelihood.sample_targets(rows, make_generator(5))
    (score,) = torch.autograd.grad(likelihood.nll(rows, drawn).sum(), rows)
    assert_mean_close(score, torch.zeros(3, dtype=torch.float64))
    assert_mean_close(score.square(), diagonal)


def test_scale_and_df_are_learned_where_scipy_finds_them() -> None:
    rng = np.random.default_rng(6)
    values = scipy.stats.t.rvs(4.0, 0, 0.7, size=600, random_state=rng)
    df, _, scale = scipy.stats.t.fit(values, floc=0)
    likelihood = StudentT("learned", float(scale), float(df), learn_df=True).double()
    assert sorted(name for name, _ in likelihood.named_parameters()) == ["log_df", "log_scale"]
    likelihood.nll(torch.zeros(600, dtype=torch.float64), torch.from_numpy(values)).mean().backward()
    for parameter in likelihood.parameters():
        assert parameter.grad is not None
        assert abs(parameter.grad.item()) < 1e-4
    for factors, name in (((2, 1), "log_scale"), ((1, 3), "log_df")):
        off = StudentT("learned", float(scale) * factors[0], float(df) * factors[1], learn_df=True).double()
        off.nll(torch.zeros(600, dtype=torch.float64), torch.from_numpy(values)).mean().backward()
        slope = off.get_parameter(name).grad
        assert slope is not None
        assert slope.item() > 1e-3


@pytest.mark.parametrize("residual", [0.0, 1e-25, 1e9, 1e20, 1e37])
@pytest.mark.parametrize("settings", [("known", 0.6, 3.5), ("learned", 1e-8, 1e-8), ("known", 1e6, 1e8)])
def test_wild_outputs_stay_finite(residual: float, settings: tuple[str, float, float]) -> None:
    likelihood, f = StudentT(*settings), torch.tensor([-residual], requires_grad=True)
    loss = likelihood.nll(f, torch.zeros(1)).sum()
    (slope,) = torch.autograd.grad(loss, f, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), f)
    assert loss.isfinite()
    assert slope.isfinite().all()
    assert second.isfinite().all()
    assert likelihood.curvature_root(f, make_generator(7)).isfinite().all()


def test_an_outlier_pulls_less_than_under_a_gaussian() -> None:
    f = torch.zeros(2, requires_grad=True)
    StudentT("known", SCALE, DF).nll(f, torch.tensor([1.0, 100.0])).sum().backward()
    assert f.grad is not None
    assert f.grad[1].abs() < f.grad[0].abs()


@pytest.mark.parametrize(
    ("targets", "outputs", "words"),
    [
        (torch.tensor([0.1, math.nan]), torch.zeros(2, 1), ["target nan", "index 1"]),
        (torch.tensor([1e39]).double() * 1e39, torch.zeros(1), ["float32"]),
        (torch.zeros(5), torch.zeros(5, 5), ["(5,)", "(5, 5)"]),
        (torch.zeros(2, dtype=torch.complex64), torch.zeros(2), ["complex64"]),
    ],
)
def test_targets_that_cannot_be_meant_are_refused(targets: Tensor, outputs: Tensor, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        StudentT().check(targets, outputs)
    assert all(word in str(caught.value) for word in ["student_t: ", *words]), caught.value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"scale": -1.0}, ["scale = -1.0"]),
        ({"df": 0.0}, ["df = 0.0"]),
        ({"noise": "leaned"}, ["did you mean 'learned'"]),
        ({"learn_df": 1}, ["learn_df = 1", "true or false"]),
        ({"df": 1e12, "learn_df": True}, ["df = 1000000000000.0", "must start in"]),
    ],
)
def test_bad_settings_are_one_line(settings: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        LIKELIHOODS.resolve({"name": "student_t", **settings})
    assert all(word in str(caught.value) for word in words), caught.value
