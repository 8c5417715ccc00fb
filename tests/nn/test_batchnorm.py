"""BatchNorm statistics of drawn networks against a pass of torch's own cumulative averages."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import DataError
from bayeswell.nn import BayesianModule, bayesian, has_statistics, kept_statistics, reestimate_statistics, statistics_of
from bayeswell.posteriors import MeanField


class Net(nn.Module):
    """Two batch norms, one without running statistics, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.first = nn.BatchNorm2d(4, momentum=0.1)
        self.dropout = nn.Dropout(0.5)
        self.untracked = nn.BatchNorm2d(4, track_running_stats=False)
        self.middle = nn.Linear(4, 5)
        self.second = nn.BatchNorm1d(5, momentum=0.3)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.untracked(self.dropout(torch.tanh(self.first(self.convolution(x)))))
        return self.out(torch.tanh(self.second(self.middle(x.mean((2, 3))))))


def batches() -> list[Tensor]:
    return [torch.randn(6 + n, 2, 4, 4) * (1 + n) + 0.7 * n for n in range(4)]


def trained_model(prediction: str = "sampled") -> BayesianModule:
    model = bayesian(Net(), MeanField(initial_std=0.2), prediction=prediction)
    for x in batches():
        model(x)
    return model


def statistics(net: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in net.named_buffers()}


def plain_pass(model: BayesianModule, networks: list[dict[str, Tensor]], data: list[Tensor]) -> dict[str, Tensor]:
    """Statistics by ordinary modules: one network for each batch, cumulative averages."""
    net = Net().eval()
    tracked = [net.first, net.second]
    for module in tracked:
        module.train()
        module.momentum = None
    with torch.no_grad():
        for weights, x in zip(networks, data, strict=True):
            net.load_state_dict({**model.net.state_dict(), **weights, **statistics(net)})
            net(x)
    return statistics(net)


def test_statistics_of_one_network() -> None:
    model, data = trained_model(), batches()
    before, modes = statistics(model.net), [module.training for module in model.modules()]
    weights = next(iter(model.posterior.draws(1, torch.Generator().manual_seed(3))))
    found = statistics_of(model, itertools.repeat(weights), data)
    truth = plain_pass(model, [weights] * 4, data)
    assert found.keys() == truth.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, truth[name])
        assert torch.equal(model.net.get_buffer(name), before[name])
    assert [module.training for module in model.modules()] == modes
    assert (model.net.first.momentum, model.net.second.momentum) == (0.1, 0.3)


def test_statistics_are_the_mean_over_batches() -> None:
    model, data = trained_model(), batches()
    weights = model.layout.unflatten(model.posterior.mean.detach())
    found = statistics_of(model, itertools.repeat(weights), data)
    maps = [
        nn.functional.conv2d(x, weights["convolution.weight"], weights["convolution.bias"], padding=1) for x in data
    ]
    torch.testing.assert_close(found["first.running_mean"], torch.stack([m.mean((0, 2, 3)) for m in maps]).mean(0))
    torch.testing.assert_close(found["first.running_var"], torch.stack([m.var((0, 2, 3)) for m in maps]).mean(0))


def test_reestimated_statistics_are_those_of_draws_or_of_the_mean() -> None:
    for prediction in ("sampled", "mean"):
        model, data = trained_model(prediction), batches()
        generator = torch.Generator().manual_seed(3)
        networks = [next(iter(model.posterior.draws(1, generator))) for _ in data]
        if prediction == "mean":
            networks = [model.layout.unflatten(model.posterior.mean.detach())] * 4
        truth = plain_pass(model, networks, data)
        reestimate_statistics(model, iter(data), torch.Generator().manual_seed(3))
        for name, value in truth.items():
            torch.testing.assert_close(model.net.get_buffer(name), value)


def test_reestimation_leaves_the_global_random_stream() -> None:
    model, data = trained_model(), batches()
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    reestimate_statistics(model, data, torch.Generator().manual_seed(3))
    assert torch.equal(torch.rand(3), expected)


def test_kept_statistics_are_restored_and_gradients_are_right() -> None:
    model, x = trained_model(), batches()[1]
    before = statistics(model.net)
    weights = model.layout.unflatten(model.posterior.mean)
    torch.manual_seed(1)
    expected = torch.autograd.grad(copy.deepcopy(model).call(weights, x).square().sum(), model.posterior.mean)
    weights = model.layout.unflatten(model.posterior.mean)
    torch.manual_seed(1)
    with kept_statistics(model.net):
        outputs = model.call(weights, x)
        assert not torch.equal(model.net.first.running_mean, before["first.running_mean"])
    for name, value in statistics(model.net).items():
        assert torch.equal(value, before[name])
    torch.testing.assert_close(torch.autograd.grad(outputs.square().sum(), model.posterior.mean), expected)


def test_networks_without_statistics_and_data_without_batches() -> None:
    plain = bayesian(nn.Linear(4, 3))
    assert not has_statistics(plain.net)
    reestimate_statistics(plain, [])
    with pytest.raises(DataError, match="at least one batch"):
        reestimate_statistics(trained_model(), [])
