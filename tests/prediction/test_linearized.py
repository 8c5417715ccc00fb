"""Linearized outputs against explicit Jacobians: J dw, and J S J' for every covariance."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from bayeswell.core.errors import NetworkError
from bayeswell.core.random import make_generator
from bayeswell.nn import bayesian, drawn_dropout
from bayeswell.posteriors import scale_std
from bayeswell.prediction import draws, outputs, predict
from bayeswell.prediction.jacobian import Jacobians, Unsuitable
from bayeswell.prediction.linearized import root
from helpers import assert_mean_close
from networks import NETWORKS, Repeated, make

POSTERIORS = ["mean_field", "shared_std", "k_tied", "low_rank", "matrix_normal", "full"]


def explicit_jacobian(model: Any, inputs: Any) -> Tensor:
    """(S, K, P)."""
    mean = model.posterior.mean.detach()
    found = jacrev(lambda w: model.call(model.layout.unflatten(w), inputs))(mean)
    return found.flatten(1, -2)


def covariance(model: Any) -> Tensor:
    """Dense (P, P), from the derivative of a draw in its noise: w = m + A z has the covariance A A'."""
    posterior = model.posterior
    root = jacrev(lambda z: posterior.rsample(z[None])[0])(torch.zeros(posterior.noise_size, dtype=torch.float64))
    return (root @ root.T).detach()


def double_model(net: nn.Module, posterior: str = "mean_field") -> Any:
    model = bayesian(net.double(), posterior)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    scale_std(model.posterior, 5.0)
    return model


NETS = {
    "dense": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), (6, 4)),
    "no bias": (lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.SiLU(), nn.Linear(5, 2)), (6, 4)),
    "in place": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ELU(inplace=True), nn.Linear(5, 2)), (6, 4)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 2, stride=2), nn.Flatten(),
            nn.Linear(2, 2),
        ),
        (4, 2, 5, 5),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose1d(2, 3, 3, stride=2), nn.Tanh(), nn.Flatten()), (4, 2, 2)),
    "positions": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Flatten()), (4, 3, 3)),
    "called twice": (Repeated, (5, 4)),
}  # fmt: skip


def make_net(name: str) -> tuple[nn.Module, Tensor]:
    build, shape = NETS[name]
    if name == "called twice":

        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.middle, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.out(torch.tanh(self.middle(torch.tanh(self.middle(x)))))

        build = Twice
    return build(), torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("name", list(NETS))
def test_layer_wise_jacobian_equals_the_explicit_one(name: str) -> None:
    net, x = make_net(name)
    model = double_model(net)
    exact = explicit_jacobian(model, x)
    change = {name: tensor[None] for name, tensor in _unit(model).items()}
    found = torch.cat([one.times(change) for one in Jacobians(model, x, 30, 3)], 1)
    torch.testing.assert_close(found[0], exact @ model.layout.flatten(_unit(model)))
    whole = next(iter(Jacobians(model, x, 30, None)))
    center = model.call(model.layout.unflatten(model.posterior.mean.detach()), x)
    torch.testing.assert_close(whole.outputs, center.flatten(1).detach())
    known = model.posterior.covariance()
    expected = exact @ covariance(model) @ exact.mT
    torch.testing.assert_close(whole.covariance(known).detach(), expected)


def _unit(model: Any) -> dict[str, Tensor]:
    return model.layout.unflatten(torch.linspace(-1, 1, model.layout.size, dtype=torch.float64))


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", ["dense", "convolution"])
def test_covariance_of_outputs_is_j_s_j(name: str, posterior: str) -> None:
    net, x = make_net(name)
    model = double_model(net, posterior)
    exact = explicit_jacobian(model, x)
    known = model.posterior.covariance()
    if known is None:
        pytest.skip("no covariance in parts: networks are drawn")
    found = next(iter(Jacobians(model, x, 30, None))).covariance(known).detach()
    torch.testing.assert_close(found, exact @ covariance(model) @ exact.mT)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("posterior", ["mean_field", "low_rank"])
def test_linearized_draws_have_the_gaussian_moments(posterior: str, joint: bool) -> None:
    net, x = make_net("dense")
    model = double_model(net, posterior)
    found = torch.stack(list(outputs(model, x, 4000, make_generator(1), prediction="linearized", joint=joint)))
    mean = model.call(model.layout.unflatten(model.posterior.mean), x).detach()
    exact = explicit_jacobian(model, x)
    expected = exact @ covariance(model) @ exact.mT
    away = found - mean
    assert_mean_close(away, torch.zeros_like(mean))
    assert_mean_close(away[..., :, None] * away[..., None, :], expected)


def test_joint_draws_are_linear_in_each_drawn_network() -> None:
    net, x = make_net("convolution")
    model = double_model(net, "k_tied")
    mean, exact = model.posterior.mean.detach(), explicit_jacobian(model, x)
    center = model.call(model.layout.unflatten(mean), x).detach()
    found = outputs(model, x, 5, make_generator(2), prediction="linearized")
    for weights, own in zip(draws(model, 5, make_generator(2)), found, strict=True):
        torch.testing.assert_close(own, center + exact @ (model.layout.flatten(weights) - mean))


def test_examples_do_not_depend_on_each_other() -> None:
    net, x = make_net("dense")
    model = double_model(net)
    whole = predict(model, x, "categorical", seed=0, prediction="linearized").probabilities
    alone = predict(model, x[2:3], "categorical", seed=0, prediction="linearized").probabilities
    torch.testing.assert_close(alone[0], whole[2])


def test_joint_and_marginal_predictions_agree() -> None:
    net, x = make_net("dense")
    model = double_model(net)
    found = [
        predict(model, x, "categorical", 4000, seed=0, prediction="linearized", keep_samples=keep) for keep in (0, 1)
    ]
    error = (found[0].probability_std.square() + found[1].probability_std.square()).sqrt() / 4000**0.5
    assert bool(((found[0].probabilities - found[1].probabilities).abs() < 5 * error).all())


@pytest.mark.parametrize("name", list(NETWORKS))
def test_any_network_is_linearized(name: str) -> None:
    net, inputs = make(name)
    model = bayesian(net, "mean_field")
    mean = model.posterior.mean.detach()
    parameters = dict(net.named_parameters())

    def call(flat: Tensor) -> Tensor:
        return functional_call(net, {**parameters, **model.layout.unflatten(flat)}, (inputs,))

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        exact = jacrev(call)(mean)
        center = call(mean).detach()
    found = outputs(model, inputs, 3, make_generator(2), prediction="linearized")
    for weights, own in zip(draws(model, 3, make_generator(2)), found, strict=True):
        change = model.layout.flatten(weights) - mean
        torch.testing.assert_close(own, center + exact.detach() @ change, rtol=1e-3, atol=1e-4)


class ReadsWeight(nn.Module):
    """Adds the norm of a weight, outside of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.linear.weight.norm()


class Branches(nn.Module):
    """Takes another way for some examples."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if bool((x > 0).any()) else self.linear(2 * x)


@pytest.mark.parametrize(
    "net",
    [
        ReadsWeight(),
        Branches(),
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        drawn_dropout(nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.Linear(6, 3))),
    ],
)
def test_networks_without_layer_wise_jacobian_use_forward_mode(net: nn.Module) -> None:
    where = lambda name, module, parameter: True  # noqa: E731
    model = bayesian(net.double().eval(), "mean_field", where=where)
    x = torch.randn(5, 4, dtype=torch.float64)
    with pytest.raises(Unsuitable):
        Jacobians(model, x, 30, None)
    mean = model.posterior.mean.detach()
    found = outputs(model, x, 3, make_generator(2), prediction="linearized")
    for weights, own in zip(draws(model, 3, make_generator(2)), found, strict=True):
        masks = {name: tensor for name, tensor in weights.items() if name.endswith("seed")}

        def call(flat: Tensor, masks: Any = masks) -> Tensor:
            return model.call({**model.layout.unflatten(flat), **masks}, x)

        with torch.no_grad():
            center = call(mean)
        rows = torch.autograd.functional.jacobian(call, mean)
        exact = center + rows @ (model.layout.flatten(weights) - mean)
        torch.testing.assert_close(own, exact)


def test_failures_that_forward_mode_would_repeat_are_raised() -> None:
    """Missing memory is no property of the network; a network may fail at a later block of examples alone."""

    class Greedy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.empty(1 << 50)[0]

    class FailsLater(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(calls))
            if len(calls) > 2:
                raise ValueError("third call")
            return x

    calls: list[int] = []
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        Jacobians(bayesian(nn.Sequential(nn.Linear(4, 3), Greedy())), torch.randn(5, 4), 30, None)
    model = bayesian(nn.Sequential(nn.Linear(4, 3), FailsLater()))
    calls.clear()
    with pytest.raises(NetworkError, match="from example 2 on"):
        list(Jacobians(model, torch.randn(5, 4), 30, 2))


def test_root_of_singular_covariances() -> None:
    vectors = torch.randn(3, 4, 2, dtype=torch.float64)
    for matrix in (vectors @ vectors.mT, torch.zeros(2, 3, 3), vectors @ vectors.mT + torch.eye(4)):
        found = root(matrix)
        torch.testing.assert_close(found @ found.mT, matrix)


def test_two_models_are_linearized_in_two_threads() -> None:
    models = [bayesian(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), "mean_field", where="*") for _ in range(2)]
    x = torch.randn(8, 4)
    expected = [predict(model, x, "categorical", 8, seed=0, prediction="linearized").probabilities for model in models]
    wrong = []

    def work(index: int) -> None:
        for _ in range(5):
            found = predict(models[index], x, "categorical", 8, seed=0, prediction="linearized").probabilities
            if not torch.equal(found, expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
