"""Losses along lines and planes of linear models, where they are parabolas."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import filter_normalised, loss_line, loss_plane
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.predictive.losses import DataLoss
from diagnostics.problems import convolutional, lifted

NOISE = 0.8


def regression() -> tuple[bw.BayesianModule, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    return lifted(net=nn.Linear(3, 2)), (inputs, torch.randn(20, 2, generator=generator, dtype=torch.float64))


def by_hand(flat: np.ndarray, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    weight, bias = flat[:6].reshape(2, 3), flat[6:]
    residual = data[1].numpy() - data[0].numpy() @ weight.T - bias
    return float(np.mean((residual**2).sum(1)) / (2 * NOISE**2) + 2 * math.log(NOISE) + math.log(2 * math.pi))


def test_loss_and_gradient_by_hand() -> None:
    model, data = regression()
    flat = model.posterior.mean_vector().detach() + 0.3
    loss, gradient = DataLoss(model, bw.Gaussian("known", NOISE), data, batch_size=7).with_gradient(flat, {})
    assert loss == pytest.approx(by_hand(flat.numpy(), data), rel=1e-9)
    x, y = (part.numpy() for part in data)
    residual = (x @ flat[:6].numpy().reshape(2, 3).T + flat[6:].numpy() - y) / NOISE**2 / 20
    assert gradient.numpy() == pytest.approx(np.r_[(residual.T @ x).reshape(-1), residual.sum(0)], rel=1e-9)


def test_filters_are_as_long_as_the_networks_own() -> None:
    model = lifted(net=convolutional())
    centre = model.posterior.mean_vector().detach()
    direction = filter_normalised(model.layout, centre, bw.make_generator(4))
    drawn, own = model.layout.unflatten(direction), model.layout.unflatten(centre)
    for name in ("0.weight", "4.weight"):
        for one, other in zip(drawn[name], own[name], strict=True):  # each output channel or unit
            assert float(one.norm()) == pytest.approx(float(other.norm()), rel=1e-9)
            assert abs(float((one * other).sum() / other.norm() ** 2)) < 0.95  # a direction of its own
    assert not bool(drawn["0.bias"].any() or drawn["4.bias"].any())


def test_a_line_is_the_parabola_of_its_direction() -> None:
    model, data = regression()
    found = loss_line(model, bw.Gaussian("known", NOISE), data, reach=0.6, points=7, seed=4, batch_size=6)
    centre = model.posterior.mean_vector().detach()
    direction = filter_normalised(model.layout, centre, bw.make_generator(4)).numpy()
    assert found.distances == pytest.approx(np.linspace(-0.6, 0.6, 7))
    truth = [by_hand(centre.numpy() + place * direction, data) for place in found.distances]
    assert found.losses == pytest.approx(truth, rel=1e-9)
    assert np.ptp(truth) > 0.05
    # The std along the direction is that of the projections of draws.
    noise = torch.randn(40_000, 8, generator=bw.make_generator(1), dtype=torch.float64)
    away = (model.posterior.sample(noise) - centre).detach().numpy() @ direction / (direction @ direction)
    assert found.posterior_std == pytest.approx(away.std(), rel=5 / math.sqrt(2 * 40_000))  # fails once in 1.7 million
    json.dumps(found.as_json(), allow_nan=False)


def test_batch_norm_is_in_evaluation_mode() -> None:
    model = lifted(net=convolutional()).train()
    data = (torch.randn(10, 2, 5, 5, dtype=torch.float64), torch.arange(10) % 3)
    whole, cut = (loss_line(model, bw.Categorical(), data, points=3, batch_size=size) for size in (None, 4))
    assert cut.losses == pytest.approx(whole.losses, rel=1e-9)
    assert model.training
    assert float(model.net[1].running_mean.abs().max()) == 0


def test_a_plane_is_spanned_by_two_directions() -> None:
    model, data = regression()
    found = loss_plane(model, bw.Gaussian("known", NOISE), data, reach=0.5, points=3, seed=8)
    centre, generator = model.posterior.mean_vector().detach(), bw.make_generator(8)
    first, second = (filter_normalised(model.layout, centre, generator).numpy() for _ in range(2))
    for i, one in enumerate(found.distances):
        for j, other in enumerate(found.distances):
            truth = by_hand(centre.numpy() + one * first + other * second, data)
            assert found.losses[i][j] == pytest.approx(truth, rel=1e-9)
    assert found.losses[1][1] == pytest.approx(by_hand(centre.numpy(), data), rel=1e-9)
    assert abs(found.losses[0][1] - found.losses[1][0]) > 1e-3
    assert found.posterior_stds is not None
    json.dumps(found.as_json(), allow_nan=False)


def test_a_bank_has_no_centre_but_a_member_may_be_given() -> None:
    model, data = regression()
    weights = torch.randn(3, 8, dtype=torch.float64)
    bank = model.with_posterior(Empirical(3), EmpiricalPosterior(model.layout, weights))
    with pytest.raises(bw.SettingError, match="bank"):
        loss_line(bank, bw.Gaussian("known", NOISE), data)
    member = bank.posterior.member(1)
    found = loss_line(bank, bw.Gaussian("known", NOISE), data, points=3, around=member)
    assert found.losses[1] == pytest.approx(by_hand(weights[1].numpy(), data), rel=1e-9)
    assert found.posterior_std is None


def test_a_network_without_anything_to_vary_is_refused() -> None:
    model = bw.bayesian(nn.Linear(3, 2).double(), where=["bias"])
    with pytest.raises(bw.DataError, match="no Bayesian weight matrix"):
        loss_line(model, bw.Gaussian("known", NOISE), regression()[1])
