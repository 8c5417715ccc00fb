"""IVON: the published update, its fixed points, and a state that survives.

On linear regression the fixed point is known: the exact mean and std_i = 1/sqrt(precision_ii). `SigmaPoints` makes the
gradients there exact, so agreement is asked to many digits; then the same with one random draw a step and batches.
"""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.errors import CompositionError, SettingError
from bayeswell.optimizers import parameter_groups
from bayeswell.optimizers.ivon import IVON, IVONOptimizer
from bayeswell.types import Step
from linear_models import SigmaPoints
from optimizers.linear_gradients import LinearGradients
from truths.arrays import Array
from truths.linear_regression import LinearRegression

PRIOR = {"0.weight": bw.Normal(1.3), "*": bw.Normal(0.6)}


def build(model: bw.BayesianModule, dataset_size: int, **settings: Any) -> IVONOptimizer:
    part = IVON(**settings)
    return part.build(parameter_groups(model, part.lr), dataset_size=dataset_size, prior=model.prior)


def small_model(seed: int = 0, **settings: Any) -> bw.BayesianModule:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2)).double()
    return bw.bayesian(net, settings.pop("posterior", "mean_field"), PRIOR, **settings)


# The update itself.


def published(
    mean: Array, std: Array, noise: Array, gradients: Array, prior_std: Array, *, dataset_size: int, lr: float,
    beta1: float, beta2: float, temperature: float, clip: float | None, hess_init: float | None,
) -> tuple[Array, Array]:  # fmt: skip
    """The loop of Shen et al.'s algorithm 1 as their code has it, for given noise and gradients of the mean NLL."""
    ess, decay = dataset_size / temperature, temperature / (dataset_size * prior_std**2)
    hess = 1 / (ess * std**2) - decay if hess_init is None else np.full_like(mean, hess_init)
    rate, momentum = lr * (hess + decay), np.zeros_like(mean)
    for step, (eps, g) in enumerate(zip(noise, gradients, strict=True), start=1):
        offset = eps / np.sqrt(ess * (hess + decay))
        estimate = ess * (g * offset) * (hess + decay)
        momentum = beta1 * momentum + (1 - beta1) * g
        correction = 0.5 * (1 - beta2) ** 2 * (hess - estimate) ** 2 / (hess + decay)
        hess = beta2 * hess + (1 - beta2) * estimate + correction
        newton = (momentum / (1 - beta1**step) + decay * mean) / (hess + decay)
        mean = mean - rate * (newton if clip is None else np.clip(newton, -clip, clip))
    return mean, 1 / np.sqrt(ess * (hess + decay))


@pytest.mark.parametrize("block", [5, 1 << 17])
@pytest.mark.parametrize(("clip", "hess_init"), [(None, None), (0.7, None), (None, 0.21), (0.7, 0.21)])
def test_agrees_with_the_published_update(
    clip: float | None, hess_init: float | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the vectors are worked through in blocks."""
    monkeypatch.setattr("bayeswell.optimizers.stepping._BLOCK", block)
    model = small_model()
    settings: dict[str, Any] = {
        "lr": 0.13, "beta1": 0.8, "beta2": 0.93, "temperature": 0.4, "clip": clip, "hess_init": hess_init,
    }  # fmt: skip
    mean, std = (v.detach().numpy().copy() for v in (model.posterior.mean_vector(), model.posterior.std_vector()))
    generator = np.random.default_rng(2)
    noise, gradients = generator.standard_normal((2, 40, len(mean)))
    prior_std = model.prior.std_vector().numpy()
    expected = published(mean, std, noise, gradients, prior_std, dataset_size=31, **settings)
    assert prior_std.std() > 0.1, "one prior std for all would not test that decay is a vector"

    optimizer = build(model, 31, **settings)
    posterior: Any = model.posterior
    for eps, gradient in zip(noise, gradients, strict=True):
        posterior.mean.grad = torch.from_numpy(gradient)
        posterior.log_std.grad = torch.from_numpy(gradient * eps) * posterior.log_std.detach().exp()
        optimizer.step()
    np.testing.assert_allclose(posterior.mean.detach().numpy(), expected[0], rtol=1e-10)
    np.testing.assert_allclose(posterior.std_vector().detach().numpy(), expected[1], rtol=1e-10)


def test_the_gradient_of_log_std_is_prices_estimate_averaged_over_draws() -> None:
    """h^ = mean over draws of g eps / std, with g at the draw: what the update takes from `log_std.grad`."""
    model = small_model(estimator=bw.WeightSampling(draws=3))
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randint(0, 2, (8,))
    noise = model.estimator.noise(model, Step(None, generator=bw.make_generator(4)))
    assert noise is not None
    std = model.posterior.std_vector().detach()
    estimates, gradients = [], []
    for eps in noise:
        weights = (model.posterior.mean_vector().detach() + std * eps).requires_grad_()
        nll = bw.Categorical().nll(model.call(model.layout.unflatten(weights), x), y).mean()
        (gradient,) = torch.autograd.grad(nll, weights)
        estimates.append(gradient * eps / std)
        gradients.append(gradient)
    bw.ELBO("categorical", 31, temperature=0.0)(model, x, y, generator=bw.make_generator(4)).total.backward()
    posterior: Any = model.posterior
    torch.testing.assert_close(posterior.log_std.grad / std.square(), torch.stack(estimates).mean(0))
    torch.testing.assert_close(posterior.mean.grad, torch.stack(gradients).mean(0))


def test_precision_stays_positive_under_any_estimate() -> None:
    """1 + x + x^2/2 >= 1/2: a step grows no std by more than sqrt(2), however negative the Hessian estimate."""
    model = small_model()
    optimizer = build(model, 31, beta2=0.5)
    posterior: Any = model.posterior
    for size in (-1e6, -30.0, -1.0, 1.0, 1e6):
        before = posterior.std_vector().detach().clone()
        posterior.mean.grad = torch.zeros_like(posterior.mean)
        posterior.log_std.grad = torch.full_like(posterior.mean, size)
        optimizer.step()
        ratio = posterior.std_vector().detach() / before
        assert bool(posterior.std_vector().isfinite().all())
        assert float(ratio.max()) <= math.sqrt(2) * (1 + 1e-12)


# Where it ends.


def regression(problem: LinearRegression, estimator: Any) -> bw.BayesianModule:
    torch.manual_seed(1)
    net = nn.Linear(problem.X.shape[1], 1, bias=False).double()
    return bw.bayesian(net, "mean_field", bw.Normal(float(problem.prior_std[0])), estimator)


def errors(problem: LinearRegression, model: bw.BayesianModule, temperature: float) -> tuple[float, float]:
    """The largest error of a mean, in posterior stds, and the largest relative one of a std."""
    std = problem.mean_field_std(temperature)
    mean_error = (model.posterior.mean_vector().detach().numpy() - problem.mean(temperature)) / std
    std_error = model.posterior.std_vector().detach().numpy() / std - 1
    return float(np.abs(mean_error).max()), float(np.abs(std_error).max())


@pytest.mark.parametrize("temperature", [0.37, 1.0, 2.6])
def test_reaches_the_mean_field_optimum_of_linear_regression(temperature: float) -> None:
    problem = LinearRegression.make(3, prior_std=0.3)
    model = regression(problem, SigmaPoints())
    optimizer = build(model, len(problem.y), lr=0.5, beta2=0.9, hess_init=2.0, temperature=temperature)
    set_gradients = LinearGradients(problem, model)
    for _ in range(300):
        set_gradients()
        optimizer.step()
    mean_error, std_error = errors(problem, model, temperature)
    assert mean_error < 1e-5
    assert std_error < 1e-9


def test_reaches_the_same_optimum_with_random_draws_and_batches() -> None:
    """Tolerances: half as much again as the largest errors over seeds 0 to 11 (0.71 posterior stds, 18.5 %)."""
    problem = LinearRegression.make(3)
    model = regression(problem, bw.WeightSampling())
    optimizer = build(model, len(problem.y), lr=0.1, beta2=0.995, hess_init=2.0, temperature=0.6)
    set_gradients, generator = LinearGradients(problem, model), bw.make_generator(0)
    steps = 1000
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 - step / steps)
        set_gradients(torch.randperm(len(problem.y), generator=generator)[:50], generator)
        optimizer.step()
    mean_error, std_error = errors(problem, model, 0.6)
    assert mean_error < 1.07
    assert std_error < 0.28


@pytest.mark.parametrize("temperature", [0.37, 2.6])
def test_returns_to_the_prior_without_information(temperature: float) -> None:
    """Inputs of zero say nothing of the weights: means go to 0, stds to those of the prior."""
    net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    model = bw.bayesian(net, "mean_field", PRIOR)
    loss = bw.ELBO(bw.Gaussian("known", 0.7), 17, temperature=0.0)
    optimizer = build(model, 17, lr=4.0, beta2=0.8, temperature=temperature)
    x, y = torch.zeros(5, 3, dtype=torch.float64), torch.zeros(5, 1, dtype=torch.float64)
    for _ in range(250):
        optimizer.zero_grad()
        loss(model, x, y).total.backward()
        optimizer.step()
    torch.testing.assert_close(model.posterior.std_vector(), model.prior.std_vector(), rtol=1e-9, atol=0)
    assert float(model.posterior.mean_vector().detach().abs().max()) < 1e-6


# Compiled and by torch's operations.


@pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")
@pytest.mark.parametrize(("clip", "adam_lr"), [(None, None), (0.02, None), (None, 0.05)])
def test_compiled_steps_are_those_of_torch(clip: float | None, adam_lr: float | None) -> None:
    """In float32, on vectors long enough for several threads, with stds that move by a factor."""
    size, generator = 40_001, bw.make_generator(5)
    gradients, noise = torch.randn(2, 12, size, generator=generator)
    prior_variance = 0.5 + torch.rand(size, generator=generator)

    def finish() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        mean, log_std = nn.Parameter(torch.linspace(-1, 1, size)), nn.Parameter(torch.full((size,), -2.0))
        groups = [{"name": "means", "params": [mean]}, {"name": "stds", "params": [log_std]}]
        optimizer = IVONOptimizer(groups, 1 / prior_variance, 31, 0.13, 0.8, 0.9, 0.7, clip, 0.4, adam_lr=adam_lr)
        before = log_std.detach().clone()
        for gradient, eps in zip(gradients, noise, strict=True):
            mean.grad = 0.3 * gradient
            log_std.grad = 0.3 * gradient * eps * log_std.detach().exp()
            optimizer.step()
        assert float((log_std.detach() - before).abs().max()) > 0.3
        return mean.detach(), log_std.detach(), optimizer.state[mean]

    found = finish()
    with native.disabled():
        expected = finish()
    torch.testing.assert_close(found[:2], expected[:2], rtol=2e-5, atol=1e-5)
    for key, value in expected[2].items():
        torch.testing.assert_close(found[2][key], value, rtol=2e-5, atol=1e-6, msg=key)


@pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")
def test_compiled_steps_hide_no_nan() -> None:
    mean, log_std = nn.Parameter(torch.zeros(300)), nn.Parameter(torch.full((300,), -2.0))
    groups = [{"name": "means", "params": [mean]}, {"name": "stds", "params": [log_std]}]
    optimizer = IVONOptimizer(groups, torch.tensor(2.0), 31, 0.13, 0.8, 0.9, None, 0.5, 1.0)
    mean.grad, log_std.grad = torch.ones(300), torch.ones(300)
    log_std.grad[3], log_std.grad[4] = math.nan, 1e30
    optimizer.step()
    assert bool(mean.isnan()[3])
    assert bool(log_std.isnan()[3])
    assert float(log_std.detach()[4]) == -math.inf
    assert int(log_std.isfinite().sum()) == 298


# State, and the parameters that have no posterior.


def train(model: bw.BayesianModule, optimizer: torch.optim.Optimizer, steps: range) -> None:
    loss = bw.ELBO("categorical", 31, temperature=0.0)
    data = bw.make_generator(8)
    x = torch.randn(31, 3, generator=data, dtype=torch.float64)
    y = torch.randint(0, 2, (31,), generator=data)
    for step in steps:
        optimizer.zero_grad()
        loss(model, x, y, generator=bw.make_generator(step)).total.backward()
        optimizer.step()


@pytest.mark.parametrize("hess_init", [None, 0.05])
def test_state_dict_round_trip_is_bit_for_bit(hess_init: float | None) -> None:
    """Also the step count, without which the bias correction starts anew: that would be seen here."""
    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.97, "hess_init": hess_init}
    model = small_model(where="0")
    optimizer = build(model, 31, **settings)
    train(model, optimizer, range(5))
    weights, written = copy.deepcopy(model.state_dict()), io.BytesIO()
    torch.save(optimizer.state_dict(), written)
    train(model, optimizer, range(5, 9))

    def resumed(forget_step: bool) -> Tensor:
        again = small_model(seed=5, where="0")
        other = build(again, 31, **(settings | {"lr": 0.7}))
        again.load_state_dict(weights)
        written.seek(0)
        other.load_state_dict(torch.load(written, weights_only=True))
        if forget_step:
            for state in other.state.values():
                state["step"] = torch.zeros_like(state["step"])
        train(again, other, range(5, 9))
        return torch.cat([parameter.detach().flatten() for parameter in again.parameters()])

    straight = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert torch.equal(resumed(forget_step=False), straight)
    assert not torch.allclose(resumed(forget_step=True), straight)


def test_deterministic_parameters_and_learned_noise_take_momentum_steps() -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    model = bw.bayesian(net, "mean_field", bw.Normal(0.8), where="last_layer")
    likelihood = bw.Gaussian("learned", 0.5).double()
    loss = bw.ELBO(likelihood, 20, temperature=0.0)
    part = IVON(lr=0.05, beta1=0.8)
    groups = parameter_groups(model, part.lr, extra=likelihood.parameters())
    optimizer = part.build(groups, dataset_size=20, prior=model.prior)
    plain = [*model.net.parameters(), *likelihood.parameters()]
    assert len(plain) == 3
    expected = [parameter.detach().clone() for parameter in plain]
    momentum = [torch.zeros_like(parameter) for parameter in plain]
    x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
    for step in range(1, 6):
        optimizer.zero_grad()
        loss(model, x, y).total.backward()
        for index, parameter in enumerate(plain):
            assert parameter.grad is not None
            momentum[index] = 0.8 * momentum[index] + 0.2 * parameter.grad
            expected[index] = expected[index] - 0.05 * momentum[index] / (1 - 0.8**step)
        optimizer.step()
    for parameter, value in zip(plain, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-12, atol=1e-14)


def test_hess_init_sets_the_stds() -> None:
    model = small_model()
    build(model, 31, hess_init=0.4, temperature=0.3)
    expected = 1 / (31 / 0.3 * (0.4 + 0.3 / (31 * model.prior.std_vector() ** 2))).sqrt()
    torch.testing.assert_close(model.posterior.std_vector().detach(), expected)
    other = small_model()
    before = other.posterior.std_vector().detach().clone()
    build(other, 31, hess_init=None)
    torch.testing.assert_close(other.posterior.std_vector().detach(), before)


# Refusals.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.0}, "lr = 0.0"),
        ({"beta1": 1.0}, "beta1 = 1.0"),
        ({"beta2": -0.1}, "beta2 = -0.1"),
        ({"hess_init": 0.0}, "hess_init = 0.0"),
        ({"clip": -1.0}, "clip = -1.0"),
        ({"temperature": 0.0}, "temperature = 0.0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        IVON(**settings)


@pytest.mark.parametrize("posterior", ["k_tied", "low_rank", "full", "matrix_normal"])
def test_other_posteriors_are_refused(posterior: str) -> None:
    with pytest.raises(CompositionError, match="one log_std for each mean"):
        build(small_model(posterior=posterior), 31)


def test_what_cannot_work_is_refused() -> None:
    net = nn.Linear(3, 2)
    laplace = bw.bayesian(net, "mean_field", bw.LaplacePrior(0.5))
    with pytest.raises(CompositionError, match="Gaussian prior"):
        build(laplace, 31)
    with pytest.raises(SettingError, match="dataset_size = 0"):
        build(small_model(), 0)
    with pytest.raises(SettingError, match="build needs dataset_size"):
        IVON().build(parameter_groups(small_model(), 0.1))
    delta = bw.bayesian(net, "delta")
    with pytest.raises(SettingError, match="no parameter group is named 'stds'"):
        build(delta, 31)
    twin = bw.bayesian(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 2)), where="1.bias")
    with pytest.raises(CompositionError, match="cannot tell"):
        build(twin, 31)
    model = small_model()
    optimizer = build(model, 31)
    posterior: Any = model.posterior
    posterior.mean.grad = torch.zeros_like(posterior.mean)
    with pytest.raises(CompositionError, match="the stds have no gradient"):
        optimizer.step()
