from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.lab.diagnostics import sharpness
from bayeswell.likelihoods import Gaussian
from bayeswell.nn import BayesianModule, bayesian

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = X @ torch.tensor([[1.0], [-0.5], [0.2]], dtype=torch.float64) + 0.1


def linear(posterior: str = "delta") -> BayesianModule:
    return bayesian(nn.Linear(3, 1, bias=False).double(), posterior, generator=torch.Generator().manual_seed(2))


def largest_increase(weights: torch.Tensor, scale: torch.Tensor, rho: float) -> float:
    """max over |e / scale| <= rho of 1/(2n) |X (w + e) - y|^2 - 1/(2n) |X w - y|^2, by its secular equation."""
    hessian = scale[:, None] * (X.T @ X / len(X)) * scale
    slope = scale * (X.T @ (X @ weights - Y[:, 0]) / len(X))
    values, vectors = torch.linalg.eigh(hessian)
    projected = vectors.T @ slope
    low, high = float(values.max()) + 1e-12, float(values.max() + slope.norm() / rho) + 1.0
    for _ in range(200):  # |(m - H)^-1 g| = rho decreases in m above the largest eigenvalue
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float((projected / (middle - values)).norm()) > rho else (low, middle)
    step = vectors @ (projected / (high - values))
    return float(slope @ step + 0.5 * step @ hessian @ step)


@pytest.mark.parametrize("adaptive", [False, True])
def test_ascent_finds_the_maximum_of_a_quadratic_loss(adaptive: bool):
    model = linear()
    weights = model.posterior.mean.detach()
    scale = weights.abs() if adaptive else torch.ones_like(weights)
    found = sharpness(model, Gaussian(std=1.0), (X, Y), rho=0.3, adaptive=adaptive, steps=60)
    assert found.ascent.value == pytest.approx(largest_increase(weights, scale, 0.3), rel=1e-4)
    assert 0 < found.one_step.value <= found.ascent.value


def test_one_step_goes_rho_along_the_gradient():
    model = linear()
    weights = model.posterior.mean.detach()
    slope = X.T @ (X @ weights - Y[:, 0]) / len(X)
    moved = weights + 0.1 * slope / slope.norm()
    losses = [float(0.5 * (X @ w - Y[:, 0]).square().mean()) for w in (weights, moved)]
    found = sharpness(model, Gaussian(std=1.0), (X, Y), rho=0.1, steps=1)
    assert found.one_step.value == pytest.approx(losses[1] - losses[0], rel=1e-9)


def test_a_stationary_point_still_shows_its_curvature():
    model = linear()
    with torch.no_grad():
        model.posterior.mean.copy_(torch.linalg.lstsq(X, Y[:, 0]).solution)
    found = sharpness(model, Gaussian(std=1.0), (X, Y), rho=0.2, steps=80)
    top = float(torch.linalg.eigvalsh(X.T @ X / len(X)).max())
    assert found.ascent.value == pytest.approx(0.5 * top * 0.2**2, rel=1e-3)


def test_batches_give_the_same_numbers():
    model = linear("mean_field")
    found = [sharpness(model, Gaussian(std=1.0), (X, Y), draws=3, steps=4, batch_size=size) for size in (None, 7)]
    torch.testing.assert_close(found[0].values, found[1].values)
    assert found[0].values.shape == (3, 3)
    assert found[0].loss.se is not None


def test_nothing_is_trained():
    model = bayesian(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sharpness(model, Gaussian(std=1.0), (X.float(), Y.float()), draws=2, steps=3)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_a_radius_of_zero_is_refused():
    with pytest.raises(SettingError, match="`rho` must be above 0"):
        sharpness(linear(), Gaussian(std=1.0), (X, Y), rho=0.0)
