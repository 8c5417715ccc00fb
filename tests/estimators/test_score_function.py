"""The whole score-function estimator of the ELBO (Book 2020, eq. 2.2.2): right on average, and noisy.

Linear regression has the expected gradient in closed form. Statistical checks fail correct code at a rate of 1e-6 each,
with fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bayeswell as bw
from bayeswell import baselines
from bayeswell.estimators import score_function
from bayeswell.methods import resolve
from bayeswell.types import Step
from linear_models import lift, objective, set_mean_and_std
from truths.arrays import Array
from truths.linear_regression import LinearRegression
from truths.statistics import assert_mean_close

PROBLEM = LinearRegression.make(1, count=20, dimension=2)
MEAN, STD, TEMPERATURE = np.array([0.5, -0.9]), np.array([0.3, 0.45]), 0.6

WHOLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"draws": 3}, {}),
    ({"draws": 3, "baseline": "leave_one_out"}, {"baseline": "leave_one_out"}),
]
"""Settings of estimator and divergence; the last is the estimator that one would use."""


def model_with(estimator: Any) -> bw.BayesianModule:
    model = lift(PROBLEM, "mean_field", estimator)
    set_mean_and_std(model, MEAN, STD)
    return model


def gradients(estimator: Any, divergence: Any, count: int, seed: int = 6) -> Tensor:
    """(count, 4): gradients of the loss in the means and the log stds, each step with noise of its own.

    All steps are taken side by side; the test of equation 2.2.2 takes them one after the other, as training does.
    """
    x, y = PROBLEM.tensors()
    elbo = objective(PROBLEM, divergence=divergence, temperature=TEMPERATURE, check=False)
    loss = bw.Loss(elbo, model_with(estimator))
    loss.generator = bw.make_generator(seed)
    at = {name: value.detach().repeat(count, 1).requires_grad_() for name, value in loss.named_parameters()}
    totals = torch.vmap(lambda given: functional_call(loss, given, (x, y)), randomness="different")(at)
    return torch.cat(torch.autograd.grad(totals.sum(), list(at.values())), dim=1)


def expected_gradient() -> Array:
    """Of -ELBO / N in (mean, log std): E|y - A w|^2 = |y - A m|^2 + sum_i (A'A)_ii s_i^2, and the KL's own."""
    a, y, noise, prior = PROBLEM.design, PROBLEM.y, PROBLEM.noise_std**2, PROBLEM.prior_std**2
    count = len(y)
    mean = -a.T @ (y - a @ MEAN) / (noise * count) + TEMPERATURE * MEAN / prior / count
    log_std = np.diag(a.T @ a) * STD**2 / (noise * count) + TEMPERATURE * (STD**2 / prior - 1) / count
    return np.concatenate([mean, log_std])


def check_expected_gradient(estimator: dict[str, Any], divergence: dict[str, Any], count: int = 4000) -> None:
    found = gradients({"name": "score_function", **estimator}, {"name": "score_function", **divergence}, count)
    assert_mean_close(found, expected_gradient())


@pytest.mark.parametrize(("estimator", "divergence"), WHOLE)
def test_the_whole_gradient_is_right_on_average(estimator: dict[str, Any], divergence: dict[str, Any]) -> None:
    check_expected_gradient(estimator, divergence)


@pytest.mark.parametrize("divergence", ["analytic", "monte_carlo", "path_derivative"])
def test_the_likelihoods_part_goes_with_every_divergence(divergence: str) -> None:
    found = gradients({"name": "score_function", "draws": 2, "baseline": "leave_one_out"}, divergence, 4000)
    assert_mean_close(found, expected_gradient())


def test_each_gradient_is_equation_2_2_2() -> None:
    """(NLL + T KL / N) d log q, with both at the same draw: eps / s for the mean and eps^2 - 1 for log s."""
    model = model_with("score_function")
    elbo = objective(PROBLEM, divergence="score_function", temperature=TEMPERATURE, check=False)
    x, y = PROBLEM.tensors()
    of_the_loss, generator = bw.make_generator(6), bw.make_generator(6)
    for _ in range(50):
        total = elbo(model, x, y, generator=of_the_loss).total
        row = torch.cat(torch.autograd.grad(total, list(model.parameters()))).numpy()
        noise = model.estimator.noise(model, Step(x, y, generator=generator))
        assert noise is not None
        eps = noise.numpy()[0]
        weights = MEAN + STD * eps
        residual = PROBLEM.y - PROBLEM.design @ weights
        nll = 0.5 * np.mean(residual**2) / PROBLEM.noise_std**2 + 0.5 * np.log(2 * np.pi * PROBLEM.noise_std**2)
        log_ratio = np.sum(-0.5 * eps**2 - np.log(STD) + 0.5 * (weights / PROBLEM.prior_std) ** 2)
        value = nll + TEMPERATURE * (log_ratio + np.log(PROBLEM.prior_std).sum()) / len(PROBLEM.y)
        np.testing.assert_allclose(row, value * np.concatenate([eps / STD, eps**2 - 1]), rtol=1e-9, atol=1e-12)


def test_the_value_is_that_of_weight_sampling_with_the_same_draws() -> None:
    x, y = PROBLEM.tensors()
    values = []
    for name in ("score_function", "weight_sampling"):
        elbo = objective(PROBLEM, temperature=TEMPERATURE)
        model = model_with({"name": name, "draws": 3})
        values.append(elbo(model, x, y, generator=bw.make_generator(2)))
    torch.testing.assert_close(values[0].total, values[1].total)
    torch.testing.assert_close(values[0].nll, values[1].nll)


def test_its_variance_is_larger_than_the_reparameterised_one_and_a_baseline_helps() -> None:
    """The thesis: "will yield a high variance". At equal draws, in every coordinate."""
    draws = {"draws": 3}
    score = gradients({"name": "score_function", **draws}, "score_function", 4000).var(0)
    left_out = gradients(
        {"name": "score_function", **draws, "baseline": "leave_one_out"},
        {"name": "score_function", "baseline": "leave_one_out"},
        4000,
    ).var(0)
    path = gradients({"name": "weight_sampling", **draws}, "monte_carlo", 4000).var(0)
    # Estimated to some 5 to 10 percent each: factors of 2 are many standard errors.
    assert bool((score > 2 * left_out).all()), (score, left_out)
    assert bool((left_out > 2 * path).all()), (left_out, path)


def test_leave_one_out_is_the_mean_of_the_others() -> None:
    values = torch.tensor([0.3, -1.2, 2.5, 0.9], dtype=torch.float64)
    others = torch.stack([values[[j for j in range(4) if j != d]].mean() for d in range(4)])
    torch.testing.assert_close(baselines.deviations(values, "leave_one_out"), values - others)
    torch.testing.assert_close(baselines.deviations(values, "none"), values)


def test_leave_one_out_is_refused_for_draws_in_pairs() -> None:
    """Of +noise and -noise each knows the other: means moved twice as far as they should, and stds not at all."""
    pairs = {"name": "weight_sampling", "draws": 2, "antithetic": True}
    divergence = {"name": "score_function", "baseline": "leave_one_out"}
    with pytest.raises(bw.CompositionError, match="'weight_sampling' come in pairs: antithetic=False, or baseline="):
        resolve(bw.find_method("bbb").changed(estimator=pairs, divergence=divergence))
    resolve(bw.find_method("bbb").changed(estimator=pairs, divergence="score_function"))
    resolve(bw.find_method("bbb").changed(estimator=pairs | {"antithetic": False}, divergence=divergence))


def _with_itself(values: Tensor, baseline: str) -> Tensor:
    """The mean of all draws, the own among them: shrinks the gradient by (D - 1) / D."""
    return values - values.mean()


def _attached(values: Tensor, baseline: str) -> Tensor:
    return 2 * values


@pytest.mark.parametrize("plant", [_with_itself, _attached], ids=["the own draw in its baseline", "counted twice"])
def test_the_check_of_the_gradient_sees_a_wrong_surrogate(
    plant: Callable[[Tensor, str], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_function, "deviations", plant)
    with pytest.raises(AssertionError, match="mean is off"):
        check_expected_gradient(*WHOLE[2])


class Step1(torch.autograd.Function):
    """A hard threshold, whose derivative nobody may ask for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise AssertionError("a gradient went through the network")


class Threshold(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Step1.apply(self.linear(x))
        return found


def test_networks_need_not_be_differentiable_and_the_rest_keeps_its_gradient() -> None:
    """A hard threshold between Bayesian weights and learned noise: means, stds and the noise all get a gradient."""
    model = bw.bayesian(Threshold(), "mean_field", estimator={"name": "score_function", "draws": 2})
    likelihood = bw.Gaussian("learned", std=0.7)
    elbo = bw.ELBO(likelihood, 9, divergence="score_function")
    elbo(model, torch.randn(5, 3), torch.randn(5, 2), generator=bw.make_generator(1)).total.backward()
    for parameter in [*model.parameters(), *likelihood.parameters()]:
        assert parameter.grad is not None
        assert bool(parameter.grad.abs().sum() > 0)


def test_deterministic_parameters_have_the_gradient_of_weight_sampling() -> None:
    found = []
    for name in ("score_function", "weight_sampling"):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
        model = bw.bayesian(net, "mean_field", estimator={"name": name, "draws": 2})
        elbo = bw.ELBO("categorical", 9)
        x, y = torch.linspace(-1, 1, 15).view(5, 3), torch.arange(5) % 2
        elbo(model, x, y, generator=bw.make_generator(1)).total.backward()
        assert isinstance(model.net[1].weight, nn.Parameter)
        found.append(model.net[1].weight.grad)
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"posterior": "delta"}, "estimator 'score_function' needs a density.*posterior 'delta'.*'weight_sampling'"),
        ({"sharpness": bw.Sharpness(0.05)}, "sharpness.*gradient.*estimator 'score_function'.*'weight_sampling'"),
        ({"stepper": "ivon"}, "optimizer 'ivon'.*gradient.*estimator 'score_function'.*'weight_sampling'"),
    ],
)
def test_what_cannot_work_with_it_is_refused_with_both_names(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(bw.CompositionError, match=message) as caught:
        resolve(bw.find_method("bbb").changed(estimator="score_function", **settings))
    assert "\n" not in str(caught.value)


def test_sharpness_is_refused_in_a_loop_of_ones_own_too() -> None:
    x, y = PROBLEM.tensors()
    sharp = bw.Sharpness(0.05).wrap(objective(PROBLEM))
    with pytest.raises(bw.CompositionError, match="estimator 'score_function'"):
        sharp(model_with("score_function"), x, y)
    bw.Sharpness(0.0).wrap(objective(PROBLEM))(model_with("score_function"), x, y)  # no neighbour, nothing to refuse


def test_baselines_that_cannot_be_are_refused() -> None:
    with pytest.raises(bw.SettingError, match="draws = 1; use an estimator with draws of at least 2"):
        bw.ESTIMATORS.resolve({"name": "score_function", "baseline": "leave_one_out"})
    with pytest.raises(bw.SettingError, match="baseline = 'leave_one'; did you mean 'leave_one_out'"):
        bw.ESTIMATORS.resolve({"name": "score_function", "draws": 2, "baseline": "leave_one"})
    with pytest.raises(bw.SettingError, match="baseline = 'mean'; allowed"):
        bw.DIVERGENCES.resolve({"name": "score_function", "baseline": "mean"})
    x, y = PROBLEM.tensors()
    elbo = objective(PROBLEM, divergence={"name": "score_function", "baseline": "leave_one_out"})
    with pytest.raises(bw.SettingError, match=r"divergence score_function.*draws = 1"):
        elbo(model_with("weight_sampling"), x, y)
