"""Moments of one pass: each estimator on each kind of linear layer has its exact distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayeswell.core.protocols import BatchContext, Estimator
from bayeswell.core.random import make_generator
from bayeswell.estimators import ESTIMATORS, Flipout, LocalReparameterization, WeightSampling
from bayeswell.estimators.by_layer import signs_shape
from bayeswell.likelihoods import Gaussian
from bayeswell.nn import BayesianModule, bayesian
from helpers import assert_mean_close

PASSES = 800
NOISY = ["weight_sampling", "flipout", "local_reparameterization"]
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: nn.Linear(3, 2), (3, 3)),
    "sequence": (lambda: nn.Linear(2, 1), (2, 3, 2)),
    "conv1d": (lambda: nn.Conv1d(2, 2, 2, stride=2, padding=1), (2, 2, 4)),
    "circular conv2d": (lambda: nn.Conv2d(2, 2, 2, groups=2, padding=1, padding_mode="circular"), (2, 2, 2, 2)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 1, 2, bias=False), (2, 2, 3)),
}


def layer_model(kind: str) -> tuple[BayesianModule, Tensor]:
    make, shape = LAYERS[kind]
    model = bayesian(make().double(), {"name": "mean_field", "initial_std": 0.5})
    with torch.no_grad():
        model.posterior.log_std.add_(0.4 * torch.randn(model.layout.size, dtype=torch.float64))
    return model, torch.randn(shape, generator=make_generator(2), dtype=torch.float64)


def one_pass(model: BayesianModule, estimator: Estimator, x: Tensor, y: Tensor, generator: torch.Generator) -> Any:
    """(nll, outputs)."""
    batch = BatchContext(x, y, Gaussian("known", 0.8), generator=generator)
    noise = estimator.noise(model, batch)
    weights = model.posterior.mean if noise is None else model.posterior.rsample(noise)
    return estimator.nll(model, weights, batch)


def output_samples(model: BayesianModule, estimator: Estimator, x: Tensor) -> Tensor:
    """(PASSES, S, outputs)."""
    generator = make_generator(7)
    with torch.no_grad():
        y = torch.zeros_like(model.call(model.layout.unflatten(model.posterior.mean), x))
        return torch.stack([one_pass(model, estimator, x, y, generator)[1] for _ in range(PASSES)]).flatten(2)


def exact_moments(model: BayesianModule, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and covariance from the bias alone of all outputs, which are linear in the weights."""

    def outputs(weights: Tensor) -> Tensor:
        return model.call(model.layout.unflatten(weights), x).reshape(-1)

    mean, variances = model.posterior.mean.detach(), model.posterior.std().detach().square()
    slopes = torch.func.jacrev(outputs)(mean)
    bias = torch.zeros_like(variances)
    for name, part in model.layout.slices.items():
        bias[part] = variances[part] if name == "bias" else 0
    return outputs(mean).detach(), slopes * variances @ slopes.T, slopes * bias @ slopes.T


def assert_moments(samples: Tensor, mean: Tensor, covariance: Tensor) -> None:
    rows = samples.flatten(1)
    assert_mean_close(rows, mean)
    centered = rows - mean
    assert_mean_close(centered[:, :, None] * centered[:, None, :], covariance)


@pytest.mark.parametrize("kind", LAYERS)
def test_weight_sampling_has_the_joint_distribution(kind: str) -> None:
    model, x = layer_model(kind)
    mean, covariance, _ = exact_moments(model, x)
    assert_moments(output_samples(model, WeightSampling(), x), mean, covariance)


@pytest.mark.parametrize("kind", LAYERS)
def test_flipout_draws_exact_weights_for_each_example(kind: str) -> None:
    """Within an example the joint distribution, also over positions; between examples only the shared bias."""
    model, x = layer_model(kind)
    mean, covariance, between = exact_moments(model, x)
    size = len(mean) // len(x)
    for start in range(0, len(mean), size):
        block = slice(start, start + size)
        between[block, block] = covariance[block, block]
    assert_moments(output_samples(model, Flipout(), x), mean, between)


@pytest.mark.parametrize("kind", LAYERS)
def test_local_reparameterization_has_the_marginal_distribution(kind: str) -> None:
    """Independent outputs; for a dense layer that is the joint distribution of an example with its own weights."""
    model, x = layer_model(kind)
    mean, covariance, _ = exact_moments(model, x)
    if kind == "dense":
        torch.testing.assert_close(covariance[:2, :2], covariance[:2, :2].diagonal().diag())
    assert_moments(output_samples(model, LocalReparameterization(), x), mean, covariance.diagonal().diag())


class PastTheLayer(nn.Module):
    """Reads a weight past the forward of its layer, and has a parameter that is not of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 1, bias=False), nn.Parameter(torch.tensor([0.8]))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight) + self.scale


@pytest.mark.parametrize("name", NOISY)
def test_weights_read_past_their_layer_are_sampled(name: str) -> None:
    model = bayesian(PastTheLayer().double(), {"name": "mean_field", "initial_std": 0.5})
    x = torch.randn(2, 3, dtype=torch.float64)
    samples = output_samples(model, ESTIMATORS.resolve(name), x)
    assert_moments(samples, *exact_moments(model, x)[:2])


def network() -> tuple[BayesianModule, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = bayesian(net, {"name": "mean_field", "initial_std": 0.3})
    x = torch.randn(20, 3, generator=make_generator(2), dtype=torch.float64)
    return model, x, torch.sin(x[:, :1])


def gradients(model: BayesianModule, estimator: Estimator, x: Tensor, y: Tensor, count: int, seed: int) -> Tensor:
    """(count, parameters)."""
    generator, parameters, rows = make_generator(seed), list(model.posterior.parameters()), []
    for _ in range(count):
        nll, _ = one_pass(model, estimator, x, y, generator)
        rows.append(torch.cat(torch.autograd.grad(nll, parameters)))
    return torch.stack(rows)


def test_expected_gradients_agree_and_variances_fall() -> None:
    """Local reparameterization and flipout have the gradient of weight sampling, with far less noise."""
    model, x, y = network()
    reference = gradients(model, WeightSampling(draws=2, antithetic=True), x, y, 300, seed=1)
    plain = gradients(model, WeightSampling(), x, y, 300, seed=3).var(0).sum()
    for estimator in (LocalReparameterization(), Flipout()):
        found = gradients(model, estimator, x, y, 300, seed=2)
        assert_mean_close(found - reference, torch.zeros(found.shape[1]))
        assert found.var(0).sum() < 0.4 * plain


def test_zero_inputs_pass_finite_gradients() -> None:
    model, x, y = network()
    found = gradients(model, LocalReparameterization(), torch.zeros_like(x), y, 1, seed=0)
    assert found.isfinite().all()


@pytest.mark.parametrize("name", NOISY)
def test_draws_are_averaged_and_network_is_restored(name: str) -> None:
    model, x, y = network()
    single, several = ESTIMATORS.resolve(name), ESTIMATORS.resolve({"name": name, "draws": 200})
    generator = make_generator(3)
    with torch.no_grad():
        many = [one_pass(model, single, x, y, generator)[0] for _ in range(200)]
        assert_mean_close(torch.stack(many) - one_pass(model, several, x, y, generator)[0], 0.0, rate=1e-9)
    assert "forward" not in vars(model.net[0])


def test_antithetic_draws_cancel_odd_terms() -> None:
    """The NLL of a linear model in one direction: half the sum of squares remains the same, slopes cancel."""
    model = bayesian(nn.Linear(3, 1, bias=False).double(), {"name": "mean_field", "initial_std": 0.3})
    batch = BatchContext(torch.zeros(2, 3), torch.zeros(2), Gaussian(), generator=make_generator(0))
    noise = WeightSampling(draws=4, antithetic=True).noise(model, batch)
    torch.testing.assert_close(noise.sum(0), torch.zeros(3, dtype=torch.float64))


def test_signs_follow_examples_with_time_first() -> None:
    model = bayesian(nn.Linear(4, 1))
    layer = model.linear_layers[""]
    assert signs_shape(layer, torch.zeros(5, 3, 4), 4, examples=3) == [1, 3, 4]
    assert signs_shape(layer, torch.zeros(3, 5, 4), 4, examples=3) == [3, 1, 4]
    assert signs_shape(layer, torch.zeros(4), 4, examples=3) == [4]


def test_repeated_calls_of_a_layer_share_their_signs() -> None:
    """y = layer(layer(x)) of an example is that of one weight draw: second moment by Monte Carlo over weights."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    model = bayesian(Twice().double(), {"name": "mean_field", "initial_std": 0.6})
    x = torch.randn(1, 2, dtype=torch.float64)
    flipped = output_samples(model, Flipout(), x)
    sampled = output_samples(model, WeightSampling(), x)
    assert_mean_close(flipped - sampled, torch.zeros(1, 2))
    assert_mean_close(flipped.square() - sampled.square(), torch.zeros(1, 2))
