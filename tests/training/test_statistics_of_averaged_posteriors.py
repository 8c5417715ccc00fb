"""HWA with BatchNorm: the averaged posterior stays one, with statistics that belong to its draws."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.lifting.statistics import statistics_over

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

X = torch.randn(400, 5, generator=torch.Generator().manual_seed(0)) + 2.0
Y = (X[:, 0] > 2).long()


def _net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def test_hwa_keeps_mean_and_covariance(tmp_path: Path) -> None:
    result = bw.fit(_net(), (X, Y), "hwa", epochs=8, batch_size=50, progress=False)
    posterior = result.model.posterior
    assert posterior.members == 0
    assert float(posterior.std_vector().detach().min()) > 0
    # E_q of a batch's mean is that of the layer's output at the mean, as it is linear in the weights: the average over
    # 8 draws differs from it by |E x| std / sqrt(8), taken five times (1e-6) from the layer's own stds.
    first = result.model.net.get_submodule("1")
    assert isinstance(first, nn.BatchNorm1d)
    assert first.running_mean is not None
    mean = result.model.layout.unflatten(posterior.mean_vector().detach())
    std = result.model.layout.unflatten(posterior.std_vector().detach())
    expected = X.mean(0) @ mean["0.weight"].T + mean["0.bias"]
    error = ((X.mean(0).square() @ std["0.weight"].T.square()) + std["0.bias"].square()).div(8).sqrt()
    assert bool(((first.running_mean - expected).abs() < 5 * error + 1e-5).all())
    assert int(first.num_batches_tracked or 0) == 8
    result.save(tmp_path / "kept")
    again = bw.load(tmp_path / "kept")
    torch.testing.assert_close(
        again.predict(X, draws=20, seed=3).probabilities, result.predict(X, draws=20, seed=3).probabilities
    )


def test_statistics_over_draws_are_those_of_all_of_them() -> None:
    """Batch variances, averaged over draws: within N(m, s^2) weights they are larger than at the mean."""
    model = bw.bayesian(_net(), "mean_field")
    model.posterior.set_stds(torch.full_like(model.posterior.mean_vector(), 0.5))
    batches = list(X.split(50)) * 40
    draws = model.posterior.draws(len(batches), torch.Generator().manual_seed(2))
    found = statistics_over(model, draws, batches)
    weight = model.layout.unflatten(model.posterior.mean_vector().detach())["0.weight"]
    covariance = torch.stack([torch.cov(batch.T) for batch in X.split(50)]).mean(0)
    exact = (weight @ covariance * weight).sum(1) + 0.25 * covariance.trace()
    # The spread over draws of w' C w is at most about sqrt(2) of its mean; of 320 draws, five standard errors.
    assert bool(((found["1.running_var"] - exact).abs() < 5 * math.sqrt(2 / 320) * exact).all())
    assert bool((found["1.running_var"] > 1.3 * (weight @ covariance * weight).sum(1)).any())
