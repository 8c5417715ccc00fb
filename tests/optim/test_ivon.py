"""IVON against the published update, and at its fixed point: the exact posterior of a linear regression."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import CompositionError, SettingError
from bayeswell.core.random import make_generator
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO
from bayeswell.optim import IVON, parameter_groups
from bayeswell.optim.torch_optimizers import planned_lr
from helpers import LinearRegression
from optim.steps import Array, context

PRIOR = {"0.weight": {"name": "normal", "std": 1.3}, "*": {"name": "normal", "std": 0.6}}


def small_model(**settings: Any) -> BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2)).double()
    return bayesian(net, settings.pop("posterior", "mean_field"), PRIOR, generator=make_generator(1), **settings)


def build(model: BayesianModule, temperature: float = 1.0, **settings: Any) -> torch.optim.Optimizer:
    part = IVON(**settings)
    groups = parameter_groups(model, lr=part.lr)
    return part.build(groups, context(dataset_size=31, prior=model.prior, temperature=temperature))


def published(
    mean: Array,
    std: Array,
    noise: Array,
    gradients: Array,
    prior_std: Array,
    temperature: float,
    settings: dict[str, Any],
) -> tuple[Array, Array]:
    """The loop of algorithm 1 of Shen et al. as their code has it."""
    lr, b1, b2, hess_init, clip, adam_lr = (
        settings.get(k) for k in ("lr", "beta1", "beta2", "hess_init", "clip", "adam_lr")
    )
    ess, decay = 31 / temperature, temperature / (31 * prior_std**2)
    hess = 1 / (ess * std**2) - decay if hess_init is None else np.full_like(mean, hess_init)
    rate, momentum, square = lr * (hess + decay), np.zeros_like(mean), np.zeros_like(mean)
    for step, (eps, g) in enumerate(zip(noise, gradients, strict=True), start=1):
        offset = eps / np.sqrt(ess * (hess + decay))
        estimate = ess * (g * offset) * (hess + decay)
        momentum = b1 * momentum + (1 - b1) * g
        correction = 0.5 * (1 - b2) ** 2 * (hess - estimate) ** 2 / (hess + decay)
        hess = b2 * hess + (1 - b2) * estimate + correction
        average, divisor, bound = momentum / (1 - b1**step), hess + decay, clip or np.inf
        if adam_lr is not None:
            square = 0.99 * square + 0.01 * (g - average) ** 2
            divisor = divisor + np.sqrt(square / (1 - 0.99**step)) / adam_lr
            bound = min(bound, adam_lr)
        mean = mean - rate * np.clip((average + decay * mean) / divisor, -bound, bound)
    return mean, 1 / np.sqrt(ess * (hess + decay))


def feed(model: BayesianModule, optimizer: torch.optim.Optimizer, noise: Array, gradients: Array) -> None:
    posterior: Any = model.posterior
    for eps, gradient in zip(noise, gradients, strict=True):
        posterior.mean.grad = torch.from_numpy(gradient)
        posterior.log_std.grad = torch.from_numpy(gradient * eps) * posterior.log_std.detach().exp()
        optimizer.step()


@pytest.mark.parametrize("extra", [{}, {"clip": 0.7}, {"hess_init": 0.21}, {"clip": 0.7, "adam_lr": 0.4}])
def test_agrees_with_the_published_update(extra: dict[str, Any]) -> None:
    model = small_model()
    settings = {"lr": 0.13, "beta1": 0.8, "beta2": 0.93, "hess_init": None, **extra}
    mean, std = (v.detach().numpy().copy() for v in (model.posterior.mean, model.posterior.std()))
    noise, gradients = np.random.default_rng(2).standard_normal((2, 40, len(mean)))
    prior_std = model.prior.std().numpy()
    assert prior_std.std() > 0.1
    expected = published(mean, std, noise, gradients, prior_std, 0.4, settings)
    feed(model, build(model, 0.4, **settings), noise, gradients)
    np.testing.assert_allclose(model.posterior.mean.detach().numpy(), expected[0], rtol=1e-9)
    np.testing.assert_allclose(model.posterior.std().detach().numpy(), expected[1], rtol=1e-9)


def test_precision_stays_positive_under_any_estimate() -> None:
    """1 + x + x^2/2 >= 1/2: a step widens no std by more than sqrt(2)."""
    model = small_model()
    optimizer = build(model, beta2=0.5)
    posterior: Any = model.posterior
    for size in (-1e6, -30.0, -1.0, 1.0, 1e6):
        before = posterior.std().detach().clone()
        posterior.mean.grad = torch.zeros_like(posterior.mean)
        posterior.log_std.grad = torch.full_like(posterior.mean, size)
        optimizer.step()
        assert bool(((posterior.std() / before) <= 2**0.5 * (1 + 1e-9)).all())


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_fixed_point_is_the_exact_mean_and_the_diagonal_of_the_precision(temperature: float) -> None:
    """Gradients of E_q[NLL] are exact: d/dmean = H (mean - w*) - prior part, d/dlog_std = H_ii std_i^2."""
    problem = LinearRegression.make()
    count, size = problem.x.shape
    net = nn.Linear(size, 1, bias=False).double()
    model = bayesian(net, "mean_field", {"name": "normal", "std": problem.prior_std}, generator=make_generator(1))
    part = IVON(lr=0.3, beta1=0.5, beta2=0.9, hess_init=0.3, rescale_lr=False)
    ctx = context(dataset_size=count, prior=model.prior.scaled(temperature**0.5), temperature=temperature)
    optimizer = part.build(parameter_groups(model, lr=part.lr), ctx)
    posterior: Any = model.posterior
    hessian = problem.x.T @ problem.x / problem.noise_std**2 / count
    slope = problem.x.T @ problem.y / problem.noise_std**2 / count
    for _ in range(1500):
        posterior.mean.grad = hessian @ posterior.mean.detach() - slope
        posterior.log_std.grad = hessian.diagonal() * posterior.std().detach().square()
        optimizer.step()
    # The prior is scaled by sqrt(T), so its weight in exp(-(NLL - log p) / T) is 1.
    precision = problem.precision()
    torch.testing.assert_close(posterior.mean.detach(), problem.mean(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        posterior.std().detach(), (temperature / precision.diagonal()).sqrt(), rtol=1e-6, atol=0.0
    )


def test_gradient_of_log_std_is_prices_estimate() -> None:
    """With handles_kl the objective gives h^ = g eps / std, averaged over draws."""
    model = small_model()
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randint(0, 2, (8,))
    elbo = ELBO("categorical", 31, estimator={"name": "weight_sampling", "draws": 3}, handles_kl=True)
    batch = elbo.batch(x, y, None, make_generator(4))
    noise = elbo.estimator.noise(model, batch)
    assert noise is not None
    std, estimates = model.posterior.std().detach(), []
    for eps in noise:
        weights = (model.posterior.mean.detach() + std * eps).requires_grad_()
        nll = elbo.likelihood.nll(model.call(model.layout.unflatten(weights), x), y).mean()
        estimates.append(torch.autograd.grad(nll, weights)[0] * eps / std)
    elbo(model, x, y, generator=make_generator(4)).total.backward()
    posterior: Any = model.posterior
    torch.testing.assert_close(posterior.log_std.grad / std.square(), torch.stack(estimates).mean(0))


def test_other_parameters_take_steps_of_adam() -> None:
    model = small_model(where="*.weight")
    part = IVON(lr=0.5)
    noise = nn.Linear(1, 1, bias=False).double()
    groups = parameter_groups(model, noise, lr=part.lr, std_multiplier=3.0)
    optimizer = part.build(groups, context(prior=model.prior, total_steps=6400))
    assert [group["name"] for group in optimizer.param_groups] == ["means", "stds", "noise", "other"]
    assert optimizer.param_groups[3]["lr"] == pytest.approx(planned_lr(6400))
    assert optimizer.param_groups[2]["lr"] == pytest.approx(3 * planned_lr(6400))
    bias = next(iter(model.net.parameters()))
    before = bias.detach().clone()
    for parameter in (*model.parameters(), *noise.parameters()):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.testing.assert_close(before - bias.detach(), torch.full_like(bias, planned_lr(6400)))


def test_a_saved_state_resumes_bit_for_bit() -> None:
    noise, gradients = np.random.default_rng(3).standard_normal((2, 30, 14))
    whole, cut = small_model(), small_model()
    feed(whole, build(whole, adam_lr=0.1), noise, gradients)
    first = build(cut, adam_lr=0.1)
    feed(cut, first, noise[:13], gradients[:13])
    resumed = copy.deepcopy(cut)
    second = build(resumed, adam_lr=0.1)
    resumed.load_state_dict(cut.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    feed(resumed, second, noise[13:], gradients[13:])
    assert torch.equal(resumed.posterior.mean, whole.posterior.mean)
    assert torch.equal(resumed.posterior.std(), whole.posterior.std())


def test_a_changed_temperature_keeps_the_pull_on_the_means() -> None:
    model = small_model()
    optimizer = build(model, lr=1e-9)
    posterior: Any = model.posterior
    std, state = posterior.std().detach().clone(), optimizer.state[posterior.mean]
    decay = state["decay"].clone()
    optimizer.param_groups[0]["ess"] *= 100
    posterior.mean.grad = torch.zeros_like(posterior.mean)
    change: Tensor = 1 - decay / state["precision"]
    posterior.log_std.grad = change / optimizer.param_groups[0]["ess"]  # h^ = h
    optimizer.step()
    torch.testing.assert_close(posterior.std().detach(), std / 10)
    assert torch.equal(state["decay"], decay)


@pytest.mark.parametrize(("posterior", "prior"), [("k_tied", "normal"), ("mean_field", "laplace"), ("delta", "normal")])
def test_other_families_are_refused(posterior: str, prior: str) -> None:
    model = bayesian(nn.Linear(3, 4), posterior, prior, generator=make_generator(1))
    with pytest.raises(CompositionError, match="ivon"):
        build(model)


def test_settings_out_of_range_are_refused() -> None:
    for settings in ({"lr": 0.0}, {"beta2": 1.0}, {"adam_lr": -1.0}, {"clip": "auto"}):
        with pytest.raises(SettingError, match=next(iter(settings))):
            IVON(**settings)
