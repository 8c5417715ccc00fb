"""Linearised predictions by Jacobians of layers: against Jacobians of all weights, closed forms and forward mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import bayeswell as bw
from bayeswell.likelihoods import Categorical, Gaussian
from bayeswell.nested import taken
from bayeswell.predictive import predict, predictive_nll, running
from bayeswell.predictive.evaluate import outputs_of_draws
from bayeswell.predictive.function_space import JacobianOfModel, OutputDraws, find_jacobian, root
from bayeswell.predictive.jacobian import all_at_once, one_by_one
from bayeswell.predictive.linearised import LinearisedNetwork
from bayeswell.random import make_generator
from nets import LAYERS, NETS, classifier_on, covariance_of, doubled, generic, make
from truths.statistics import assert_covariance_close, assert_mean_close

POSTERIORS = ["mean_field", {"name": "k_tied", "rank": 2}, {"name": "low_rank", "rank": 2}, "matrix_normal", "full"]


def numbers(*shape: int, seed: int = 11) -> Tensor:
    return torch.randn(shape, generator=make_generator(seed), dtype=torch.float64)


def weights_jacobian(model: bw.BayesianModule, inputs: Any) -> Tensor:
    """(S, K, P) by reverse mode through the whole network."""
    weights = model.posterior.mean_vector().detach().clone()
    found: Tensor = jacrev(lambda flat: model.call(model.layout.unflatten(flat), inputs))(weights)
    return found.flatten(1, -2)


@torch.no_grad()
def found_for(model: bw.BayesianModule, inputs: Any, draws: int = 100) -> JacobianOfModel | None:
    return find_jacobian(LinearisedNetwork(model.eval()), inputs, draws)


@torch.no_grad()
def check_jacobian(model: bw.BayesianModule, inputs: Any) -> None:
    found = found_for(model, inputs)
    assert found is not None
    one, exact = found.at(inputs), weights_jacobian(model.eval(), inputs)
    known = model.posterior.covariance()
    assert known is not None
    covariance = torch.einsum("skp,pq,slq->skl", exact, covariance_of(model.posterior), exact)
    assert float(covariance.abs().max()) > 1e-4
    torch.testing.assert_close(one.covariance(known), covariance, rtol=1e-10, atol=1e-10)
    away = numbers(3, model.layout.size)
    changes = {name: torch.stack([model.layout.unflatten(row)[name] for row in away]) for name in found.network.centre}
    torch.testing.assert_close(one.times(changes), torch.einsum("skp,dp->dsk", exact, away), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(one.outputs, model.call(model.centre(), inputs).flatten(1), rtol=1e-12, atol=1e-12)


class Shared(nn.Module):
    """One layer that is called twice, with an activation that works in place after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.layer(torch.tanh_(self.layer(x))))
        return found


class Sigmoids(nn.Module):
    """A convolution, statistics of training between, pooling, residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.second, self.out = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(12, 4)
        self.norm.get_buffer("running_mean").copy_(torch.tensor([0.2, -0.4, 0.1]))
        self.norm.get_buffer("running_var").copy_(torch.tensor([0.7, 1.9, 1.3]))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.norm(self.first(x)), 2)
        found: Tensor = self.out((x + self.second(x).sigmoid()).flatten(1))
        return found


# ---------------------------------------------------------------------------------------------------------
# The Jacobian


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_covariance_of_outputs_for_every_posterior(posterior: Any) -> None:
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 4), nn.Sigmoid(), nn.Linear(4, 3))
    check_jacobian(generic(net, posterior), numbers(5, 2, 4))


@pytest.mark.parametrize("name", [name for name in LAYERS if "grouped" not in name and name != "transposed conv1d"])
@pytest.mark.parametrize("posterior", ["mean_field", "matrix_normal"])
def test_every_kind_of_layer(name: str, posterior: str) -> None:
    torch.manual_seed(5)
    check_jacobian(generic(classifier_on(LAYERS[name]), posterior), LAYERS[name].inputs())


@pytest.mark.parametrize("net", [Shared(), Sigmoids()], ids=["called twice", "statistics, pooling, residual"])
@pytest.mark.parametrize("posterior", ["mean_field", "matrix_normal", {"name": "low_rank", "rank": 2}], ids=str)
def test_layers_in_other_places(net: nn.Module, posterior: Any) -> None:
    shape = (5, 3) if isinstance(net, Shared) else (3, 2, 4, 4)
    check_jacobian(generic(net, posterior), numbers(*shape))


def test_weights_of_the_last_layer_alone_and_outputs_with_axes() -> None:
    torch.manual_seed(6)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 6), nn.Unflatten(1, (2, 3)))
    check_jacobian(generic(net, where=["2.*"]), numbers(4, 3))


def test_all_outputs_at_once_or_one_by_one_is_the_same() -> None:
    torch.manual_seed(7)
    model, x = generic(Sigmoids()), numbers(3, 2, 4, 4)
    found = found_for(model, x)
    assert found is not None
    assert found.gradients_of is all_at_once
    with torch.no_grad():
        slow = JacobianOfModel(found.network, found.layers, 9, one_by_one, found.first)
        known = model.posterior.covariance()
        assert known is not None
        torch.testing.assert_close(found.at(x).covariance(known), slow.at(x).covariance(known), rtol=1e-10, atol=1e-12)


class WithAHeadForTraining(nn.Module):
    """Has a layer that predictions never call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.aux, self.out = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.layer(x))
        found: Tensor = self.out(hidden)
        return found + self.aux(hidden).mean() if self.training else found


@pytest.mark.parametrize("posterior", ["mean_field", "matrix_normal", {"name": "low_rank", "rank": 2}], ids=str)
def test_a_layer_that_is_not_called_has_no_slope(posterior: Any) -> None:
    torch.manual_seed(8)
    check_jacobian(generic(WithAHeadForTraining(), posterior), numbers(5, 3))


def test_laplace_of_a_network_with_a_layer_that_is_not_called() -> None:
    torch.manual_seed(9)
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    found = bw.fit(WithAHeadForTraining(), (x, y), epochs=2, method="laplace").predict(x)
    assert isinstance(found, bw.ClassPrediction)
    assert bool(found.probabilities.isfinite().all())


# ---------------------------------------------------------------------------------------------------------
# What is left to forward mode


class Mixing(nn.Module):
    """Every example is compared with the others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        found: Tensor = self.out(torch.tanh(hidden - hidden.mean(0)))
        return found


class TimeFirst(nn.Module):
    """The layer sees examples on its second axis; there are as many of them as there are steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.transpose(0, 1))).mul(torch.arange(1.0, 5.0)[:, None, None].to(x)).sum(0)


class ReadElsewhere(nn.Module):
    """A weight that has a meaning outside of its layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + self.layer.weight.square().sum()
        return found


@pytest.mark.parametrize("net", [Mixing(), TimeFirst(), ReadElsewhere(), nn.Conv2d(4, 4, 2, groups=2)])
def test_networks_that_cannot_be_taken_apart_are_noticed(net: nn.Module) -> None:
    shape = {"TimeFirst": (4, 4, 3), "Conv2d": (3, 4, 2, 2)}.get(type(net).__name__, (5, 3))
    model, x = generic(net), numbers(*shape)
    assert found_for(model, x) is None
    drawn = outputs_of_draws(model, x, draws=4, batch_size=None, generator=make_generator(3), prediction="linearised")
    exact = weights_jacobian(model.eval(), x)
    centre = model.posterior.mean_vector().detach()
    for weights, sample in zip(model.draws(4, make_generator(3)), drawn, strict=True):
        away = model.layout.flatten(weights) - centre
        expected = model.call(model.centre(), x).detach().flatten(1) + exact @ away
        torch.testing.assert_close(sample.flatten(1), expected, rtol=1e-9, atol=1e-9)


def test_more_outputs_than_draws_or_weights_of_other_layers() -> None:
    model, x = generic(nn.Linear(3, 4)), numbers(5, 3)
    assert found_for(model, x, draws=4) is not None
    assert found_for(model, x, draws=3) is None
    for name in ("lstm", "tied", "repeated module"):
        net, inputs = make(name)
        assert found_for(generic(net), doubled(inputs)) is None, name


@pytest.mark.parametrize("name", [name for name in NETS if name != "weight norm"])
def test_kept_outputs_are_those_of_forward_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same networks by the same generator, whichever way they are multiplied."""
    net, inputs = make(name)
    model, inputs = generic(net), doubled(inputs)

    def outputs() -> Tensor:
        return outputs_of_draws(
            model, inputs, draws=4, batch_size=3, generator=make_generator(5), prediction="linearised"
        )

    found = outputs()
    monkeypatch.setattr(running, "find_jacobian", lambda *_: None)
    torch.testing.assert_close(found, outputs(), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------
# Draws of every example by itself


def small(outputs: int = 3) -> bw.BayesianModule:
    torch.manual_seed(4)
    return generic(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)))


@torch.no_grad()
def test_draws_of_outputs_have_the_closed_form() -> None:
    """Mean and covariance of each example by itself. Detects 10 % of a variance."""
    model, x = small(), numbers(2, 3)
    found, known = found_for(model, x), model.posterior.covariance()
    assert found is not None
    assert known is not None
    drawn = torch.stack(list(OutputDraws(found, known, make_generator(1)).outputs(x, 25_000)))
    for example, slopes in enumerate(weights_jacobian(model, x)):
        exact = slopes @ covariance_of(model.posterior) @ slopes.T
        assert_mean_close(drawn[:, example], model(x)[example], std=exact.diagonal().sqrt())
        assert_covariance_close(drawn[:, example], exact)


def test_probabilities_are_those_of_networks_on_average() -> None:
    """E[softmax] by the law of outputs and by drawn networks, from kept samples of 4,000 draws each."""
    model, x = small(), numbers(4, 3)
    settings: dict[str, Any] = {"draws": 4000, "prediction": "linearised"}
    found = predict(model, x, Categorical(), seed=1, **settings)
    kept = predict(model, x, Categorical(), seed=2, keep_samples=True, **settings)
    # Twice the variance: both have errors. False failures 1e-6 of 12 numbers: z = 5.4.
    error = kept.samples.std(0) * (2 / 4000) ** 0.5
    assert bool(((found.probabilities - kept.probabilities).abs() < 5.4 * error).all())
    assert bool(
        (found.probabilities - predict(model, x, Categorical(), prediction="mean").probabilities).abs().max() > 0.01
    )
    y = torch.arange(4) % 3
    nll = predictive_nll(model, x, y, Categorical(), seed=1, **settings)
    torch.testing.assert_close(nll, -found.probabilities[torch.arange(4), y].log(), rtol=1e-9, atol=1e-9)


def test_kept_samples_are_of_one_network_for_all_examples() -> None:
    """The same example twice: what one network says of it is the same."""
    model, x = small(), numbers(1, 3).repeat(2, 1)
    kept = predict(model, x, Categorical(), draws=9, seed=1, keep_samples=True, prediction="linearised").samples
    torch.testing.assert_close(kept[:, 0], kept[:, 1], rtol=1e-12, atol=0)
    real = predict(model, x, Gaussian("known", 1e-9), draws=9, seed=1, prediction="linearised").sample_targets(50)
    torch.testing.assert_close(real[:, 0], real[:, 1], rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_said_of_an_example_depends_on_the_seed_alone(dtype: torch.dtype) -> None:
    """Not on batches, on the order of examples or on which others there are; draws beyond a block of noise."""
    model, x = small().to(dtype), numbers(300, 3).to(dtype)

    def says(x: Tensor, batch_size: int | None = None, seed: int = 3) -> Tensor:
        found = predict(model, x, Categorical(), draws=40, seed=seed, batch_size=batch_size, prediction="linearised")
        return found.probabilities

    whole = says(x)
    rtol, atol = (1e-10, 1e-12) if dtype == torch.float64 else (1e-4, 1e-6)
    for batch_size in (100, 299):
        torch.testing.assert_close(says(x, batch_size), whole, rtol=rtol, atol=atol)
    torch.testing.assert_close(says(x.flip(0)).flip(0), whole, rtol=rtol, atol=atol)
    torch.testing.assert_close(says(x[17:18]), whole[17:18], rtol=rtol, atol=atol)
    assert torch.equal(says(x), whole)
    assert float((says(x, seed=4) - whole).abs().max()) > 0.01


def test_roots_of_singular_and_of_broken_covariances() -> None:
    thin = numbers(3, 4, 2)
    flat = thin @ thin.mT
    flat[1] = 0
    found = root(flat)
    torch.testing.assert_close(found @ found.mT, flat, rtol=1e-9, atol=1e-9)
    broken = flat.clone()
    broken[2, 0, 1] = torch.inf
    assert root(broken)[2].isnan().any()
    torch.testing.assert_close(root(broken)[:2] @ root(broken)[:2].mT, flat[:2], rtol=1e-9, atol=1e-9)


def test_the_root_of_a_singular_covariance_is_not_left_to_rounding() -> None:
    """Whether or not Cholesky goes through: a change of 1e-16 moves it by the square root of that, not by itself."""
    thin = numbers(200, 4, 2)
    flat, change = thin @ thin.mT, numbers(200, 4, 4)
    moved = flat + 1e-16 * (change + change.mT)
    assert len(torch.linalg.cholesky_ex(torch.cat([flat, moved])).info.sign().unique()) == 2  # both ways, in turn
    torch.testing.assert_close(root(moved), root(flat), rtol=0, atol=1e-5)


class Odd(nn.Module):
    """Says one number more for a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = x if len(x) > 1 else x[None].expand(1, 2, 3).flatten(0, 1)
        found: Tensor = self.layer(rows)[: len(x)]
        return found


@pytest.mark.parametrize("keep_samples", [False, True])
def test_a_batch_unlike_the_first_is_linearised_draw_by_draw(keep_samples: bool) -> None:
    model, x = generic(Odd()), numbers(5, 3)
    assert found_for(model, taken(x, slice(4))) is not None
    whole, cut = (
        predict(
            model, x, Categorical(), draws=300, seed=2, batch_size=size, keep_samples=keep_samples,
            prediction="linearised",
        ).probabilities
        for size in (None, 4)
    )  # fmt: skip
    torch.testing.assert_close(cut[:4], whole[:4], rtol=1e-9, atol=1e-9)
    # The same networks if they are kept; else other draws: an error below 0.5 / sqrt(300) in each of the two, z = 5.4.
    within = 1e-9 if keep_samples else 5.4 * 2**0.5 * 0.5 / 300**0.5
    assert float((cut[4] - whole[4]).abs().max()) < within
