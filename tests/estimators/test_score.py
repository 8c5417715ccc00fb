"""The score function: the gradient of the exact expectation, and what the control variate saves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import BatchContext
from bayeswell.core.random import make_generator
from bayeswell.estimators import ScoreSampling
from bayeswell.estimators.score import subtract_baseline
from bayeswell.likelihoods import Gaussian
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO
from helpers import LinearRegression, assert_mean_close

PROBLEM = LinearRegression.make(count=5, dimension=2)


def regression_model() -> BayesianModule:
    return bayesian(nn.Linear(2, 1, bias=False).double(), {"name": "mean_field", "initial_std": 0.3})


def gradient_samples(estimator: ScoreSampling, count: int) -> tuple[Tensor, BayesianModule]:
    model, generator = regression_model(), make_generator(1)
    parameters, rows = list(model.posterior.parameters()), []
    for _ in range(count):
        batch = BatchContext(PROBLEM.x, PROBLEM.y, Gaussian("known", 0.9), generator=generator)
        weights = model.posterior.rsample(estimator.noise(model, batch))
        rows.append(torch.cat(torch.autograd.grad(estimator.nll(model, weights, batch)[0], parameters)))
    return torch.stack(rows), model


@pytest.mark.parametrize("estimator", [ScoreSampling(), ScoreSampling(3), ScoreSampling(3, "leave_one_out")], ids=repr)
def test_mean_gradient_is_that_of_the_expectation(estimator: ScoreSampling) -> None:
    """E_q[NLL] = mean_n [(y_n - x_n m)^2 + x_n^2 s^2] / (2 noise^2) + constant."""
    samples, model = gradient_samples(estimator, 800)
    mean, std = model.posterior.mean, model.posterior.std()
    squares = (PROBLEM.y - PROBLEM.x @ mean).square() + PROBLEM.x.square() @ std.square()
    truth = torch.autograd.grad((squares / (2 * 0.81)).mean(), list(model.posterior.parameters()))
    assert_mean_close(samples, torch.cat(truth))


def test_leave_one_out_lowers_the_variance() -> None:
    plain, _ = gradient_samples(ScoreSampling(4), 200)
    controlled, _ = gradient_samples(ScoreSampling(4, "leave_one_out"), 200)
    assert controlled.var(0).sum() < 0.5 * plain.var(0).sum()


def test_baseline_is_the_mean_of_the_others() -> None:
    values = torch.tensor([1.0, 4.0, -2.0, 0.5])
    truth = torch.stack([values[i] - torch.cat([values[:i], values[i + 1 :]]).mean() for i in range(4)])
    torch.testing.assert_close(subtract_baseline(values, "leave_one_out"), truth)


def test_network_need_not_be_differentiable() -> None:
    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).round()

    model = bayesian(Rounded(), {"name": "mean_field", "initial_std": 0.5})
    elbo = ELBO("gaussian", 5, estimator=ScoreSampling(), divergence="score_function")
    elbo(model, PROBLEM.x.float(), PROBLEM.y.float()).total.backward()
    assert model.posterior.mean.grad.abs().sum() > 0


def test_single_draw_with_leave_one_out_is_refused() -> None:
    with pytest.raises(SettingError, match="at least 2 draws"):
        ScoreSampling(1, "leave_one_out")
    with pytest.raises(SettingError, match="baseline"):
        ScoreSampling(2, "mean")
