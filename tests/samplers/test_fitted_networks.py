"""Untuned samplers on a stiff network: nothing diverges, and training goes on where it stopped."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import BayeswellWarning, DivergenceError
from bayeswell.training import fit

SAMPLERS = ("sgld", "sghmc", "psgld", "csgld")


def gap() -> tuple[torch.Tensor, torch.Tensor]:
    """Two clusters on a line, with a gap between them."""
    generator = bw.make_generator(5)
    left, right = (torch.rand(20, 1, generator=generator) for _ in range(2))
    inputs = torch.cat([-1.5 + left, 0.5 + right])
    return inputs, torch.sin(2.2 * inputs) + 0.1 * torch.randn(40, 1, generator=generator)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))


@pytest.fixture(autouse=True)
def _quiet() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayeswellWarning)  # short chains have not mixed
        yield


@pytest.mark.parametrize("method", SAMPLERS)
def test_no_sampler_diverges_where_noise_is_small(method: str) -> None:
    """Curvature is 100 times that of a unit noise: a rate of 0.03 diverges within ten steps, as the last lines show."""
    data, likelihood = gap(), {"name": "gaussian", "noise": "known", "std": 0.1}
    settings = {"temperature": 1.0, "prior": {"name": "normal", "std": 1.0}, "batch_size": 40, "progress": False}
    result = fit(network(), data, method, likelihood, epochs=200, **settings)
    error = result.predict(data[0], draws=50).mean - data[1]
    assert float(error.square().mean().sqrt()) < 0.2
    if method == "sghmc":
        with pytest.raises(DivergenceError) as caught:
            fit(network(), data, method, likelihood, epochs=400, lr=0.03, **settings)
        assert "clip_norm" not in str(caught.value)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_longer_run_keeps_its_rate_and_learned_noise_is_found(batch_norm: bool) -> None:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(20)] if batch_norm else []
    net = nn.Sequential(nn.Linear(1, 20), *middle, nn.Tanh(), nn.Linear(20, 1))
    first = fit(net, gap(), "sghmc", "gaussian", epochs=80, batch_size=20, progress=False, seed=3)
    rate = first.state["assembly"]["optimizer"]["fit"]["rate"]
    assert rate > 0
    assert float(first.likelihood.log_std.detach().exp().mean()) < 0.5  # it begins at 1
    longer = fit(first, gap(), epochs=20, batch_size=20, progress=False)
    assert longer.state["assembly"]["optimizer"]["fit"]["rate"] == rate
    assert longer.state["assembly"]["optimizer"]["step"] == 200


def test_data_that_are_not_finite_are_no_divergence() -> None:
    """A chain that goes back would only hide them."""
    inputs, targets = gap()
    inputs[3] = torch.nan
    with pytest.raises(bw.DataError, match="NaN or inf in the inputs"):
        fit(network(), (inputs, targets), "sghmc", "gaussian", epochs=100, batch_size=10, progress=False)
