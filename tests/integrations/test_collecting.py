"""Averagers in custom loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.averaging import HWA, SWAG
from bayeswell.core.errors import DataError, NetworkError
from bayeswell.integrations import Collector, find_model
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO

EXAMPLES, BATCH = 24, 8
SWAG_SETTINGS = {"name": "swag", "start": 0.5}


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    x = torch.randn(EXAMPLES, 3)
    return x, (x.sum(1) > 0).long()


def network(norm: bool = False) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6) if norm else nn.Tanh(), nn.Linear(6, 2))


def train(averaging: Any, epochs: int = 4, norm: bool = False) -> tuple[Collector, list[Tensor], BayesianModule]:
    """A plain loop; returns the means after each step, before feedback."""
    x, y = data()
    model = bayesian(network(norm))
    elbo, optimizer = ELBO("categorical", EXAMPLES), torch.optim.Adam(model.parameters(), 0.05)
    batches = EXAMPLES // BATCH
    collector = Collector(nn.ModuleDict({"inner": model}), averaging, total_steps=epochs * batches, batches=batches)
    path = []
    for _ in range(epochs):
        for start in range(0, EXAMPLES, BATCH):
            optimizer.zero_grad()
            elbo(model, x[start : start + BATCH], y[start : start + BATCH]).total.backward()
            optimizer.step()
            path.append(model.posterior.mean.detach().double().clone())
            collector.after_step()
    return collector, path, model


def test_swag_is_fitted_to_the_ends_of_epochs() -> None:
    collector, path, _ = train(SWAG_SETTINGS)
    ends = torch.stack(path[2::3][2:])  # two of four epochs are burn-in
    found = collector.finalize()
    torch.testing.assert_close(found.posterior.mean.double(), ends.mean(0), rtol=0, atol=1e-6)
    variance = 0.5 * (ends.var(0, unbiased=False) + (ends[1] - ends.mean(0)).square())
    torch.testing.assert_close(found.posterior.std().double().square(), variance, rtol=1e-3, atol=1e-9)


def test_feedback_changes_the_network_that_is_trained() -> None:
    _, path, model = train(HWA(start=0.5, feedback="restart"))
    averaged = torch.stack([path[8], path[11]]).mean(0)  # the second of two snapshots is the last step
    torch.testing.assert_close(model.posterior.mean.detach().double(), averaged, rtol=0, atol=1e-6)
    assert not torch.allclose(path[11], averaged)


def test_batchnorm_statistics_are_estimated_for_the_average() -> None:
    with pytest.raises(DataError, match="give the training batches"):
        train(SWAG(start=0.5), norm=True)[0].finalize()
    x, y = data()
    collector, _, model = train(HWA(start=0.5), norm=True)
    last = model.net.get_buffer("1.running_mean").clone()
    found = collector.finalize(DataLoader(TensorDataset(x, y), batch_size=BATCH))
    assert torch.equal(model.net.get_buffer("1.running_mean"), last)
    assert not torch.equal(model.net.get_parameter("1.weight"), found.net.get_parameter("1.weight"))
    # The layer before is linear, so its mean over the data is that at the mean weights, up to the noise of draws.
    expected = found.layout.unflatten(found.posterior.mean.detach())
    mean = x.mean(0) @ expected["0.weight"].T + expected["0.bias"]
    assert float((found.net.get_buffer("1.running_mean") - mean).abs().max()) < 0.3


def test_collection_continues_from_its_state() -> None:
    whole, path, model = train(SWAG_SETTINGS)

    def replay(collector: Collector, steps: list[Tensor]) -> Collector:
        for weights in steps:
            with torch.no_grad():
                model.posterior.mean.copy_(weights)
            collector.after_step()
        return collector

    first = replay(Collector(model, SWAG_SETTINGS, total_steps=12, batches=3), path[:9])
    second = Collector(model, SWAG_SETTINGS, total_steps=12, batches=3)
    second.load_state_dict(first.state_dict())
    replay(second, path[9:])
    for name, value in whole.finalize().posterior.state_dict().items():
        assert torch.equal(value, second.finalize().posterior.state_dict()[name])


def test_modules_need_exactly_one_bayesian_network() -> None:
    with pytest.raises(NetworkError, match=r"Linear has no Bayesian network \(bayeswell.bayesian makes one\)"):
        find_model(nn.Linear(2, 2))
    with pytest.raises(NetworkError, match="2 Bayesian networks"):
        find_model(nn.ModuleList([bayesian(nn.Linear(2, 2)), bayesian(nn.Linear(2, 2))]))


def test_loops_of_accelerate_train_and_collect() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, elbo = bayesian(network()), ELBO("categorical", EXAMPLES)
    loader = DataLoader(TensorDataset(*data()), batch_size=6)
    prepared, optimizer, batches = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 0.05), loader)
    collector = Collector(prepared, "swa", total_steps=6, batches=2)
    means = []
    for _ in range(3):
        for inputs, targets in batches:
            with accelerator.accumulate(prepared):
                accelerator.backward(elbo(model, inputs, targets).total)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                collector.after_step()
                means.append(model.posterior.mean.detach().clone())
    assert len(means) == 6
    assert torch.isfinite(collector.finalize().posterior.mean).all()
    with pytest.raises(DataError):
        elbo(model, torch.randn(2, 3), None)  # type: ignore[arg-type]
