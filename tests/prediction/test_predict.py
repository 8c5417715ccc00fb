from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor, nn

from bayeswell.core.errors import DataError, SettingError, Unsupported
from bayeswell.core.protocols import Likelihood
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import LIKELIHOODS
from bayeswell.nn import bayesian
from bayeswell.posteriors import set_std
from bayeswell.prediction import (
    PredictiveMixture,
    RealPrediction,
    expected_nll,
    nll_matrix,
    outputs,
    predict,
    predictive_nll,
)

NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
X = torch.linspace(-2, 2, 24).view(6, 4)


def wide_model(net: nn.Module = NET) -> Any:
    model = bayesian(net)
    set_std(model.posterior, torch.full((model.layout.size,), 0.4))
    return model


def all_outputs(model: Any, count: int = 20, x: Tensor = X) -> Tensor:
    return torch.stack(list(outputs(model, x, count, make_generator(5)))).double()


def test_class_prediction_matches_its_formulas() -> None:
    model = wide_model()
    found = predict(model, X, "categorical", 20, seed=5, keep_samples=True)
    p = all_outputs(model).softmax(-1)
    mean = p.mean(0)
    total, own = (-(q * q.log()).sum(-1) for q in (mean, p))
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found.probabilities.double(), mean, **close)
    torch.testing.assert_close(found.probability_std.double(), p.std(0, correction=0), **close)
    torch.testing.assert_close(found.entropy.double(), total, **close)
    torch.testing.assert_close(found.aleatoric.double(), own.mean(0), **close)
    torch.testing.assert_close(found.epistemic.double(), total - own.mean(0), **close)
    torch.testing.assert_close(found.samples.double(), p, **close)
    assert torch.equal(found.labels, mean.argmax(1))
    assert torch.equal(found.confidence, found.probabilities.amax(1))


@pytest.mark.parametrize("noise", ["known", "per_input"])
def test_real_prediction_is_the_law_of_total_variance(noise: str) -> None:
    net = nn.Linear(4, 4)
    likelihood = {"name": "gaussian", "noise": noise} | ({"std": 0.7} if noise == "known" else {})
    model = wide_model(net)
    found = predict(model, X, likelihood, 20, seed=5)
    f = all_outputs(model)
    means, variances = (f, torch.full_like(f, 0.49)) if noise == "known" else (f[..., :2], (2 * f[..., 2:]).exp())
    torch.testing.assert_close(found.mean.double(), means.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.epistemic.double(), means.var(0, correction=0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.aleatoric.double(), variances.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.std**2, found.epistemic_std**2 + found.aleatoric_std**2)


def test_small_spread_keeps_its_digits_far_from_zero() -> None:
    model = bayesian(nn.Linear(1, 1).double())
    with torch.no_grad():
        model.posterior.mean.copy_(torch.tensor([0.0, 1e6]))
    found = predict(model, torch.ones(3, 1, dtype=torch.float64), "gaussian", 200, seed=5)
    f = torch.stack(list(outputs(model, torch.ones(3, 1, dtype=torch.float64), 200, make_generator(5))))
    torch.testing.assert_close(found.epistemic, f.var(0, correction=0), rtol=1e-6, atol=0)


def test_groups_of_draws_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wide_model()
    expected = predict(model, X, "gaussian", 20, seed=1)
    monkeypatch.setattr(sys.modules["bayeswell.prediction.outputs"], "GROUP", 1)
    found = predict(model, X, "gaussian", 20, seed=1)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.epistemic, expected.epistemic)


@pytest.mark.parametrize(("likelihood", "targets"), [("categorical", [0, 2, 1, 1, 0, 2]), ("gaussian", None)])
def test_nlls_match_the_mixture(likelihood: str, targets: Any) -> None:
    model = wide_model()
    y = torch.randn(6, 3) if targets is None else torch.tensor(targets)
    matrix = nll_matrix(model, X, y, likelihood, 20, seed=5)
    f = all_outputs(model)
    if targets is None:
        expected = -stats.norm.logpdf(y.double()[None], f).sum(-1)
    else:
        expected = -f.log_softmax(-1)[:, torch.arange(6), y].numpy()
    np.testing.assert_allclose(matrix.numpy(), expected, rtol=1e-5)
    assert expected_nll(model, X, y, likelihood, 20, seed=5) == pytest.approx(expected.mean(), rel=1e-5)
    mixed = -np.log(np.exp(-expected).mean(0))
    np.testing.assert_allclose(predictive_nll(model, X, y, likelihood, 20, seed=5), mixed, rtol=1e-5)


def mixture(likelihood: Any, outputs: Tensor) -> RealPrediction:
    part = LIKELIHOODS.resolve(likelihood)
    mean, variance = part.mean_and_variance(outputs.flatten(0, 1))
    means, variances = (one.detach().unflatten(0, (len(outputs), -1)) for one in (mean, variance))
    spread = means.var(0, correction=0)
    law = PredictiveMixture(outputs, part)
    return RealPrediction(means.mean(0), spread, variances.mean(0), len(outputs), None, law)


GAUSSIAN = {"name": "gaussian", "noise": "known", "std": 0.6}
F = torch.tensor([[[-1.2, 0.3], [2.0, 2.1]], [[0.7, 0.1], [2.3, -5.0]], [[1.9, 0.2], [2.2, 0.0]]], dtype=torch.float64)


def test_gaussian_quantiles_solve_the_mixture_cdf() -> None:
    prediction = mixture(GAUSSIAN, F)
    for level in (0.01, 0.25, 0.9):
        found = prediction.quantile(level)
        for index in np.ndindex(2, 2):
            centers = F[:, index[0], index[1]].numpy()
            exact = optimize.brentq(
                lambda y, c=centers, q=level: stats.norm.cdf(y, c, 0.6).mean() - q, -50, 50, xtol=1e-12
            )
            assert float(found[index]) == pytest.approx(exact, abs=1e-9)
    torch.testing.assert_close(prediction.cdf(found), torch.full((2, 2), 0.9, dtype=torch.float64))


def test_interval_contains_its_level_of_drawn_targets() -> None:
    prediction = mixture(GAUSSIAN, F)
    drawn = prediction.sample_targets(30_000, seed=3)
    lower, upper = prediction.interval(0.8)
    share = ((drawn >= lower) & (drawn <= upper)).double().mean(0)
    assert float((share - 0.8).abs().max()) < 5 * math.sqrt(0.16 / 30_000)
    assert ((lower <= prediction.mean) & (prediction.mean <= upper)).all()


def test_drawn_targets_have_the_moments_of_the_mixture() -> None:
    prediction = mixture(GAUSSIAN, F)
    drawn = prediction.sample_targets(30_000, seed=4)
    z = (drawn.mean(0) - prediction.mean) / (prediction.std / math.sqrt(30_000))
    assert float(z.abs().max()) < 5
    torch.testing.assert_close(drawn.var(0), prediction.variance, rtol=0.05, atol=0)


def test_quantiles_of_counts_are_the_smallest_that_reach_the_level() -> None:
    outputs = torch.tensor([[[0.2], [3.0]], [[1.5], [6.0]]], dtype=torch.float64)
    prediction = mixture("poisson", outputs)
    for level in (0.05, 0.5, 0.99):
        for row, value in enumerate(prediction.quantile(level).flatten().tolist()):
            rates = outputs[:, row, 0].exp().numpy()
            assert stats.poisson.cdf(value, rates).mean() >= level > stats.poisson.cdf(value - 1, rates).mean()
    below = prediction.mixture.cdf_below(torch.tensor([[3.0], [20.0]]))
    expected = [stats.poisson.cdf(k - 1, outputs[:, i, 0].exp().numpy()).mean() for i, k in enumerate((3, 20))]
    np.testing.assert_allclose(below.flatten(), expected, rtol=1e-9)


def test_quantiles_without_cdf_come_from_drawn_targets() -> None:
    likelihood = lambda f: torch.distributions.Gamma(f.exp().squeeze(-1), torch.ones(()))  # noqa: E731
    model = bayesian(nn.Linear(4, 1))
    found = predict(model, X, likelihood, 5, seed=0)
    levels = found.cdf(found.quantile(0.3))
    assert float((levels - 0.3).abs().max()) < 0.03


def test_heavy_tails_have_quantiles() -> None:
    prediction = mixture(lambda f: torch.distributions.StudentT(1.0, f), F[:1])
    levels = stats.cauchy.cdf(prediction.quantile(0.9), F[0].numpy())
    assert np.abs(levels - 0.9).max() < 5 * math.sqrt(0.09 / 10_000)


def test_rescaled_prediction_speaks_in_other_units() -> None:
    prediction, scale, shift = mixture(GAUSSIAN, F), torch.tensor([3.0, 0.5]), torch.tensor([1.0, -2.0])
    found = prediction.rescaled(scale, shift)
    torch.testing.assert_close(found.mean, prediction.mean * scale + shift)
    torch.testing.assert_close(found.std, prediction.std * scale)
    torch.testing.assert_close(found.quantile(0.9), prediction.quantile(0.9) * scale + shift)
    torch.testing.assert_close(found.cdf(found.quantile(0.3)), torch.full((2, 2), 0.3, dtype=torch.float64))
    torch.testing.assert_close(found.sample_targets(5), prediction.sample_targets(5) * scale + shift)


@pytest.mark.parametrize("scale", [-2.0, 0.0])
def test_rescaling_needs_a_scale_above_zero(scale: float) -> None:
    with pytest.raises(SettingError, match="above 0"):
        mixture(GAUSSIAN, F).rescaled(scale)


def test_values_are_broadcast_to_the_predictions_but_never_rearranged() -> None:
    prediction = mixture(GAUSSIAN, torch.randn(4, 3, 2, dtype=torch.float64))
    values = torch.tensor([0.3, -0.2], dtype=torch.float64)
    torch.testing.assert_close(prediction.cdf(values), prediction.cdf(values.expand(3, 2)))
    single = mixture(GAUSSIAN, torch.randn(4, 3, 1, dtype=torch.float64))
    torch.testing.assert_close(single.cdf([0.1, 0.2, 0.3]), single.cdf([[0.1], [0.2], [0.3]]))
    assert single.interval(0.9).contains([0.0, 9.0, 0.0]).shape == (3, 1)
    for method in (prediction.cdf, prediction.interval(0.9).contains):
        with pytest.raises(DataError, match=r"shape \(2, 3\); predicted were \(3, 2\)"):
            method(torch.zeros(2, 3))


def test_frames_have_a_row_for_each_example() -> None:
    pytest.importorskip("pandas")
    classes = predict(wide_model(), X, "categorical", 5, seed=0)
    assert list(classes.frame()) == ["label", "p_0", "p_1", "p_2", "entropy", "epistemic", "aleatoric"]
    assert classes.frame()["label"].tolist() == classes.labels.tolist()
    real = predict(wide_model(), X, "gaussian", 5, seed=0)
    assert len(real.frame()) == 6
    np.testing.assert_allclose(real.frame()["lower_2"], real.interval(0.9).lower[:, 1], rtol=1e-6)


def test_missing_capabilities_are_named() -> None:
    class Squares(Likelihood):
        name = "squares"

        def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs - targets).square().sum(1)

    with pytest.raises(Unsupported, match="squares has neither"):
        predict(wide_model(), X, Squares())
    assert predictive_nll(wide_model(), X, torch.zeros(6, 3), Squares()).shape == (6,)
    with pytest.raises(SettingError, match="both given"):
        predict(wide_model(), X, "categorical", seed=0, generator=make_generator(0))
    with pytest.raises(SettingError, match="draws"):
        predict(wide_model(), X, "categorical", 0)


def test_large_predictions_do_not_keep_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bayeswell.prediction.predict"], "MOST_KEPT", 10)
    found = predict(wide_model(), X, "gaussian", 5, seed=0)
    with pytest.raises(Unsupported, match="keep_samples=True"):
        found.quantile(0.5)
    assert predict(wide_model(), X, "gaussian", 5, seed=0, keep_samples=True).samples.shape == (5, 6, 3)
