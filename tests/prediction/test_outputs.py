from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.core.errors import CompositionError, DataError, NetworkError
from bayeswell.core.random import make_generator
from bayeswell.nn import bayesian, drawn_dropout
from bayeswell.posteriors import Empirical, Mixture
from bayeswell.prediction import draws, num_distinct_draws, outputs, predict
from networks import NETWORKS, make


def collect(model: Any, inputs: Any, count: int = 4, seed: int = 0, **settings: Any) -> Tensor:
    return torch.stack(list(outputs(model, inputs, count, make_generator(seed), **settings)))


def empirical(net: nn.Module, count: int) -> Any:
    model = bayesian(net, "mean_field")
    networks = torch.randn(count, model.layout.size)
    return model.with_posterior(Empirical(model.layout, networks)), networks


class Halving(nn.Module):
    """Changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x /= 2
        return self.linear(x)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_outputs_are_those_of_the_drawn_networks(name: str) -> None:
    net, inputs = make(name)
    model = bayesian(net, {"name": "mean_field"})
    found = collect(model, inputs, 3)
    parameters = dict(net.named_parameters())
    for weights, own in zip(draws(model, 3, make_generator(0)), found, strict=True):
        with torch.no_grad():
            expected = torch.func.functional_call(net, {**parameters, **weights}, (inputs,))
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("prediction", ["sampled", "linearized"])
def test_draws_do_not_depend_on_the_batch_size(prediction: str) -> None:
    net, inputs = make("cnn")
    model = bayesian(net, "k_tied")
    whole = collect(model, inputs, 5, prediction=prediction)
    torch.testing.assert_close(collect(model, inputs, 5, prediction=prediction, batch_size=2), whole)


def test_in_place_network_changes_neither_inputs_nor_later_draws() -> None:
    net, x = Halving(), torch.randn(6, 4)
    model, given = bayesian(net, "delta"), x.clone()
    model = model.with_posterior(Empirical(model.layout, model.posterior.mean.detach().repeat(4, 1)))
    found = collect(model, x)
    assert torch.equal(x, given)
    torch.testing.assert_close(found, net(x.clone())[None].expand(4, -1, -1))
    assert torch.equal(predict(model, x, "categorical").probabilities.argmax(1), net(x.clone()).argmax(1))
    assert torch.equal(x, given)


def test_empirical_posterior_gives_each_network_once() -> None:
    model, networks = empirical(nn.Linear(3, 2), 5)
    found = torch.stack([model.layout.flatten(weights) for weights in draws(model, 30, make_generator(0))])
    assert num_distinct_draws(model, 30) == len(found) == 5
    assert sorted(found[:, 0].tolist()) == sorted(networks[:, 0].tolist())
    assert num_distinct_draws(model, 3) == 3
    assert predict(model, torch.randn(4, 3), "categorical").draws == 5


def test_point_estimate_is_one_draw() -> None:
    prediction = predict(bayesian(nn.Linear(3, 2), "delta"), torch.randn(4, 3), "categorical", draws=30)
    assert prediction.draws == 1
    assert float(prediction.epistemic.max()) == 0


def test_evaluation_mode_is_used_and_modes_are_restored() -> None:
    net, x = make("normalized")
    net.batch_norm.running_mean.uniform_(-1, 1)
    model = bayesian(net, "delta").train()
    model.net.group_norm.eval()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = collect(model, x, 1)[0]
    torch.testing.assert_close(found, net.eval()(x))
    assert model.training
    assert not model.net.group_norm.training
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_networks_bring_their_batch_norm_statistics() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    model, x = bayesian(net, "delta"), torch.randn(5, 3)
    means = torch.randn(2, 4)
    bank = Empirical(model.layout, model.posterior.mean.detach().repeat(2, 1), {"1.running_mean": means})
    found = collect(model.with_posterior(bank), x, 2)
    expected = []
    for mean in means:
        net[1].running_mean.copy_(mean)
        expected.append(net(x).detach())
    found, expected = (torch.stack(sorted(rows, key=lambda row: float(row[0, 0]))) for rows in (found, expected))
    torch.testing.assert_close(found, expected)


def test_dropout_masks_are_drawn_and_shared_by_all_examples() -> None:
    net = nn.Sequential(nn.Linear(3, 200), nn.Dropout(0.3), nn.Linear(200, 1, bias=False)).eval()
    nn.init.zeros_(net[0].weight)
    model = bayesian(drawn_dropout(net), "delta")
    found = collect(model, torch.randn(7, 3), 500).squeeze(2)
    assert num_distinct_draws(model, 500) == 500
    torch.testing.assert_close(found, found[:, :1].expand_as(found))
    # Each unit contributes w h z / 0.7 with z ~ Bernoulli(0.7): mean w h, variance (w h)^2 0.3 / 0.7.
    units = (net[2].weight[0] * net[0].bias).detach()
    std = (units.square().sum() * 0.3 / 0.7).sqrt()
    assert abs(float(found[:, 0].mean() - units.sum())) < 5 * float(std) / 500**0.5
    assert abs(float(found[:, 0].std() / std) - 1) < 5 / 1000**0.5


def test_masks_are_off_at_the_mean() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    model, x = bayesian(drawn_dropout(net), "delta"), torch.randn(4, 3)
    torch.testing.assert_close(collect(model, x, 9, prediction="mean"), net(x)[None].detach())


def test_mean_of_a_mixture_averages_its_mean_networks() -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    models = [bayesian(net, "mean_field") for _ in range(3)]
    for model in models:
        nn.init.normal_(model.posterior.mean)
    mixed = models[0].with_posterior(Mixture([model.posterior for model in models]))
    found = predict(mixed, x, "categorical", prediction="mean").probabilities
    means = [model.call(model.layout.unflatten(model.posterior.mean), x).softmax(1) for model in models]
    torch.testing.assert_close(found, torch.stack(means).mean(0).detach())


def test_empirical_posterior_has_no_mean_to_predict_at() -> None:
    model, _ = empirical(nn.Linear(3, 2), 3)
    for prediction in ("mean", "linearized"):
        with pytest.raises(CompositionError, match="mean network"):
            predict(model, torch.randn(4, 3), "categorical", prediction=prediction)


def test_eight_threads_predict_with_one_model() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    model, x = bayesian(net, "mean_field").train(), torch.randn(40, 4)
    kinds = ["sampled", "linearized"]
    expected = {
        (seed, kind): predict(model, x, "categorical", 10, seed=seed, prediction=kind).probabilities
        for seed in range(4)
        for kind in kinds
    }
    wrong = []

    def work(seed: int, kind: str) -> None:
        for _ in range(5):
            found = predict(model, x, "categorical", 10, seed=seed, prediction=kind).probabilities
            if not torch.equal(found, expected[seed, kind]):
                wrong.append((seed, kind))

    threads = [threading.Thread(target=work, args=key) for key in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(module.training for module in model.modules())


def test_arrays_loaders_and_tuples_are_inputs() -> None:
    net, x = nn.Linear(3, 2), torch.randn(6, 3)
    model = bayesian(net)
    expected = predict(model, x, "categorical", seed=0).probabilities
    loader = DataLoader(TensorDataset(x, torch.zeros(6)), batch_size=4)
    for inputs in (x.double().numpy(), x.numpy()[::-1].copy()[::-1], (x,), {"input": x}, loader, TensorDataset(x)):
        found = predict(model, inputs, "categorical", seed=0).probabilities
        torch.testing.assert_close(found, expected)
    integers = torch.randint(0, 5, (6, 3))
    found = predict(model, integers, "categorical", seed=0).probabilities
    torch.testing.assert_close(found, predict(model, integers.float(), "categorical", seed=0).probabilities)


def test_wrong_inputs_are_refused() -> None:
    model = bayesian(nn.Linear(3, 2))
    with pytest.raises(DataError, match=r"nan at index \(1, 2\)"):
        predict(model, torch.tensor([[0.0, 0, 0], [0, 0, np.nan]]), "categorical")
    with pytest.raises(DataError, match="shuffle"):
        predict(model, DataLoader(TensorDataset(torch.randn(4, 3)), shuffle=True), "categorical")
    with pytest.raises(DataError, match="no examples"):
        predict(model, torch.empty(0, 3), "categorical")
    with pytest.raises(DataError, match="equal numbers"):
        predict(model, (torch.randn(4, 3), torch.randn(3, 3)), "categorical")


def test_outputs_must_count_the_examples() -> None:
    class Mean(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).mean(0)

    with pytest.raises(NetworkError, match="first axis"):
        predict(bayesian(Mean(3, 2)), torch.randn(4, 3), "categorical")


def test_infinite_outputs_are_named() -> None:
    model = bayesian(nn.Linear(1, 2), "delta")
    with torch.no_grad():
        model.posterior.mean.mul_(1e30)
    with pytest.raises(NetworkError, match="example 1"):
        predict(model, torch.tensor([[1.0], [1e30]]), "gaussian")


@pytest.mark.parametrize("prediction", ["sampled", "linearized"])
def test_inputs_that_the_network_cannot_take_are_named(prediction: str) -> None:
    model, x = bayesian(nn.Linear(4, 3)), torch.randn(6, 4)
    with pytest.raises(DataError, match=r"cannot be called with inputs of shape \(6, 3\): .*multiplied"):
        predict(model, x[:, :3], "categorical", prediction=prediction)
    with pytest.raises(DataError, match="predict takes inputs alone, without targets"):
        predict(model, (x, torch.arange(6)), "categorical", prediction=prediction)
