"""The robust region of momentum: where errors shrink by its root, and the advice that follows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.errors import SettingError
from bayeswell.optimizers import (
    least_robust_momentum,
    momentum_operator_radius,
    outside_robust_region,
    robust_region,
)


@pytest.mark.parametrize("momentum", [0.0, 0.2, 0.81, 0.99])
@pytest.mark.parametrize("curvature", [0.3, 7.0])
def test_inside_the_robust_region_errors_shrink_by_the_root_of_the_momentum(momentum: float, curvature: float) -> None:
    region = robust_region(momentum, curvature, curvature)
    for place in (0.0, 0.13, 0.5, 0.99):
        lr = region.lowest + place * (region.highest - region.lowest)
        operator = np.array([[1 + momentum - lr * curvature, -momentum], [1, 0]])
        radius = float(np.abs(np.linalg.eigvals(operator)).max())
        # At the edges the eigenvalues are double, and numpy finds them to the root of rounding.
        np.testing.assert_allclose(radius, math.sqrt(momentum), rtol=1e-6, atol=1e-6)
        # (The small number: at the edge itself the discriminant is zero up to rounding.)
        assert abs(momentum_operator_radius(lr, momentum, curvature) - math.sqrt(momentum)) < 1e-7
    for lr in (0.9 * region.lowest, 1.1 * region.highest):
        operator = np.array([[1 + momentum - lr * curvature, -momentum], [1, 0]])
        radius = float(np.abs(np.linalg.eigvals(operator)).max())
        np.testing.assert_allclose(momentum_operator_radius(lr, momentum, curvature), radius, rtol=1e-6)
        assert radius > math.sqrt(momentum) + 1e-3
        assert lr not in region


def test_torch_sgd_shrinks_errors_as_the_operator_says() -> None:
    # |w_t| over 200 steps for two curvatures of the range at one rate, and for a rate below the region.
    momentum, curvatures = 0.6, (1.0, 30.0)
    region = robust_region(momentum, *curvatures)
    inside = (region.lowest + region.highest) / 2
    assert inside in region
    for lr, curvature in ((inside, 1.0), (inside, 30.0), (0.2 * region.lowest, 1.0)):
        w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
        sgd, sizes = torch.optim.SGD([w], lr=lr, momentum=momentum), []
        for _ in range(400):
            w.grad = curvature * w.detach()
            before = w.item()
            sgd.step()
            sizes.append(math.hypot(before, w.item()))
        radius = momentum_operator_radius(lr, momentum, curvature)
        # The envelope oscillates by a bounded factor; over 300 steps that is less than 1.5 % of the rate.
        np.testing.assert_allclose((sizes[350] / sizes[50]) ** (1 / 300), radius, rtol=0.015)


def test_least_robust_momentum_is_where_the_region_opens() -> None:
    least = least_robust_momentum(0.4, 30.0)
    assert robust_region(0.99 * least, 0.4, 30.0).empty
    open_region = robust_region(1.01 * least, 0.4, 30.0)
    assert not open_region.empty
    edge = robust_region(least, 0.4, 30.0)
    np.testing.assert_allclose(edge.lowest, edge.highest, rtol=1e-9)
    assert robust_region(0.81, 2.0, 8.0) == robust_region(0.81, 2.0, 8.0)
    np.testing.assert_allclose(
        (robust_region(0.81, 2.0, 8.0).lowest, robust_region(0.81, 2.0, 8.0).highest), (0.1**2 / 2, 1.9**2 / 8)
    )


def test_advice_on_the_robust_region() -> None:
    assert outside_robust_region(0.2, 0.81, 2.0, 8.0) is None
    low = outside_robust_region(0.001, 0.81, 2.0, 8.0)
    assert low is not None
    assert low.startswith("sgd: lr 0.001 is slower than it need be for curvatures from 2 to 8 with momentum 0.81")
    assert low.endswith("robust are 0.005 to 0.451")
    high = outside_robust_region(0.5, 0.81, 2.0, 8.0)
    assert high is not None
    assert "lr 0.5 diverges" in high
    none = outside_robust_region(0.2, 0.1, 1.0, 400.0)
    assert none is not None
    assert none.endswith("with momentum 0.1; it takes at least 0.8186")
    with pytest.raises(SettingError, match=r"curvature_min = 3.0 exceeds curvature_max = 2.0"):
        robust_region(0.5, 3.0, 2.0)
    with pytest.raises(SettingError, match=r"robust_region: momentum = 1.0; it must lie in \[0, 1\)"):
        robust_region(1.0, 2.0, 3.0)
