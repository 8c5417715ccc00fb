"""Sharpness against the trust region of quadratics, and what must not change while it is measured."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import sharpness
from diagnostics.problems import NO_DATA, Identity, LossAsLikelihood, convolutional, lifted

RHO = 0.37


def curvature(size: int = 6, seed: int = 2) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def trust_region(matrix: np.ndarray, gradient: np.ndarray, rho: float) -> float:
    """max of g'e + e'Ae/2 over |e| <= rho for a positive definite A, by the secular equation |(m - A)^-1 g| = rho."""
    values, vectors = np.linalg.eigh(matrix)
    inside = vectors.T @ gradient
    low, high = values[-1] + 1e-13, values[-1] + np.linalg.norm(gradient) / rho + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.norm(inside / (middle - values)) > rho else (low, middle)
    step = inside / (high - values)
    assert np.linalg.norm(step) == pytest.approx(rho, rel=1e-6)
    return float(inside @ step + 0.5 * step @ (values * step))


def quadratic(matrix: np.ndarray, centre: np.ndarray) -> LossAsLikelihood:
    a, c = torch.tensor(matrix), torch.tensor(centre)
    return LossAsLikelihood(lambda w: 0.5 * torch.einsum("si,ij,sj->s", w - c, a, w - c))


def point(weights: np.ndarray) -> bw.BayesianModule:
    return bw.bayesian(Identity(torch.tensor(weights)), "delta", "normal")


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_quadratic_has_the_sharpness_of_its_trust_region(adaptive: bool) -> None:
    rng = np.random.default_rng(5)
    matrix, weights, centre = curvature(), rng.normal(size=6), rng.normal(size=6)
    found = sharpness(point(weights), quadratic(matrix, centre), NO_DATA, rho=RHO, adaptive=adaptive, steps=100)
    scale = np.diag(np.abs(weights)) if adaptive else np.eye(6)
    inside, gradient = scale @ matrix @ scale, scale @ matrix @ (weights - centre)
    unit = gradient / np.linalg.norm(gradient)
    one_step = RHO * gradient @ unit + 0.5 * RHO**2 * unit @ inside @ unit
    assert len(found.draws) == 1
    assert found.one_step == pytest.approx(one_step, rel=1e-9)
    truth = trust_region(inside, gradient, RHO)
    assert found.ascent == pytest.approx(truth, rel=1e-6)
    assert one_step < found.ascent <= truth * (1 + 1e-9)
    assert found.loss == pytest.approx(0.5 * (weights - centre) @ matrix @ (weights - centre), rel=1e-9)
    assert found.ascent_error is None


def test_at_a_minimum_the_top_eigenvalue_counts() -> None:
    weights, matrix = np.random.default_rng(1).normal(size=6), curvature()
    found = sharpness(point(weights), quadratic(matrix, weights), NO_DATA, rho=RHO, steps=200)
    top = 0.5 * RHO**2 * np.linalg.eigvalsh(matrix)[-1]
    assert found.ascent == pytest.approx(top, rel=1e-6)
    # The default number of steps is nearly there, and never above.
    few = sharpness(point(weights), quadratic(matrix, weights), NO_DATA, rho=RHO)
    assert 0.97 * top < few.ascent <= top * (1 + 1e-9)


def test_a_saddle_is_climbed_where_it_rises() -> None:
    weights, matrix = np.random.default_rng(1).normal(size=4), np.diag([-3.0, -1.0, 0.2, 0.9])
    found = sharpness(point(weights), quadratic(matrix, weights), NO_DATA, rho=RHO, steps=200)
    assert found.ascent == pytest.approx(0.5 * RHO**2 * 0.9, rel=1e-6)
    top = sharpness(point(weights), quadratic(-curvature(4), weights), NO_DATA, rho=RHO)
    assert top.ascent == pytest.approx(0, abs=1e-12)  # nothing rises around a maximum


def test_a_linear_loss_rises_by_rho_times_its_slope() -> None:
    slope = torch.tensor([0.3, -1.2, 0.8]).double()
    found = sharpness(point(np.ones(3)), LossAsLikelihood(lambda w: w @ slope), NO_DATA, rho=RHO)
    assert [found.one_step, found.ascent] == pytest.approx(2 * [RHO * float(slope.norm())], rel=1e-9)


def test_draws_of_the_posterior_are_averaged() -> None:
    rng = np.random.default_rng(5)
    matrix, centre = curvature(), rng.normal(size=6)
    model = lifted(net=Identity(torch.tensor(rng.normal(size=6))))
    found = sharpness(model, quadratic(matrix, centre), NO_DATA, rho=RHO, draws=4, seed=9, steps=60)
    singles = []
    for tensors in model.draws(4, bw.make_generator(9)):
        gradient = matrix @ (tensors["weight"].numpy() - centre)
        singles.append(trust_region(matrix, gradient, RHO))
    assert [draw.ascent for draw in found.draws] == pytest.approx(singles, rel=1e-5)
    assert found.ascent == pytest.approx(np.mean(singles), rel=1e-5)
    assert found.ascent_error == pytest.approx(np.std(singles, ddof=1) / 2, rel=1e-4)
    assert np.std(singles) > 0.01
    json.dumps(found.as_json(), allow_nan=False)


def test_nothing_is_trained_and_batch_norm_stays_in_evaluation_mode() -> None:
    model = lifted(net=convolutional())
    generator = torch.Generator().manual_seed(4)
    data = (torch.randn(14, 2, 5, 5, generator=generator, dtype=torch.float64), torch.arange(14) % 3)
    with torch.no_grad():
        model.net[1].running_mean += 0.4
        model.net[1].running_var *= 1.9
    model.train()
    model.net[2].eval()
    before = copy.deepcopy(model.state_dict())
    whole = sharpness(model, bw.Categorical(), data, rho=0.1, draws=2, steps=6)
    cut = sharpness(model, bw.Categorical(), data, rho=0.1, draws=2, steps=6, batch_size=3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    assert model.net[1].training
    assert not model.net[2].training
    # In training mode the parts of the batch would have had statistics of their own.
    assert [cut.loss, cut.one_step, cut.ascent] == pytest.approx([whole.loss, whole.one_step, whole.ascent], rel=1e-9)
    assert whole.ascent > whole.one_step > 0


def test_rescaled_layers_have_one_adaptive_sharpness() -> None:
    """w1 -> a w1, w2 -> w2 / a is the same function: the adaptive number stays, the plain one does not."""
    numbers = {}
    inputs = torch.randn(9, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for factor in (1.0, 4.0):
        torch.manual_seed(6)
        net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 1, bias=False)).double()
        with torch.no_grad():
            net[0].weight *= factor
            net[1].weight /= factor
        model = bw.bayesian(net, "delta", "normal")
        for adaptive in (False, True):
            data = (inputs, inputs[:, 0])
            found = sharpness(model, bw.Gaussian("known", 0.8), data, rho=0.1, adaptive=adaptive)
            numbers[factor, adaptive] = found.ascent
    assert numbers[4.0, True] == pytest.approx(numbers[1.0, True], rel=1e-6)
    assert abs(numbers[4.0, False] / numbers[1.0, False] - 1) > 0.2


def test_bad_settings() -> None:
    loss = quadratic(curvature(), np.zeros(6))
    for settings, words in (({"rho": 0.0}, "rho = 0.0"), ({"draws": 0}, "draws = 0"), ({"steps": 0}, "steps = 0")):
        with pytest.raises(bw.SettingError, match=words):
            sharpness(point(np.ones(6)), loss, NO_DATA, **settings)
    with pytest.raises(bw.DataError, match=r"give \(inputs, targets\)"):
        sharpness(point(np.ones(6)), loss, torch.zeros(3, 1))
