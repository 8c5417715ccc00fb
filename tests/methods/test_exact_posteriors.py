"""Methods on linear regression, whose tempered posterior is known in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from bayeswell.estimators import WeightSampling
from bayeswell.training import fit
from helpers import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

LINEAR = LinearRegression.make(3, count=60, dimension=3)


@dataclass(frozen=True)
class SigmaPoints(WeightSampling):
    """The draws mean +- sqrt(n) L e_i, i = 1 ... n: their moments of order two are exact, so no noise is left."""

    name: ClassVar[str] = "sigma_points"

    def noise(self, model, batch):
        size = model.posterior.noise_size
        points = math.sqrt(size) * torch.eye(size, dtype=torch.float64)
        return torch.cat([points, -points])


def trained(method, copies=1, start=None, temperature=1.0, **settings):
    """Fit by full batches. ``copies`` are outputs with the same targets: independent regressions in one run."""
    net = nn.Linear(LINEAR.x.shape[1], copies, bias=False, dtype=torch.float64)
    if start is not None:
        net.weight = nn.Parameter(start.repeat(copies, 1))
    likelihood = {"name": "gaussian", "noise": "known", "std": LINEAR.noise_std}
    prior = {"name": "normal", "std": LINEAR.prior_std}
    data = (LINEAR.x, LINEAR.y[:, None].repeat(1, copies))
    settings = {"batch_size": len(LINEAR.y), "prior": prior, "temperature": temperature, "progress": False, **settings}
    return fit(net, data, method, likelihood, **settings).model.posterior


def check_moments(posterior, std, mean_tolerance, std_tolerance, copies=1, temperature=1.0):
    """Means in units of the expected stds, stds by ratio, both averaged over the copies."""
    found = posterior.mean.detach().reshape(copies, -1).mean(0), posterior.std().detach().reshape(copies, -1).mean(0)
    assert ((found[0] - LINEAR.mean(temperature)) / std).abs().max() < mean_tolerance
    assert (found[1] / std - 1).abs().max() < std_tolerance


def mean_field_std(temperature=1.0):
    return LINEAR.precision(temperature).diagonal().rsqrt()


EIGENVALUES = torch.linalg.eigvalsh(LINEAR.precision()) / len(LINEAR.y)
RATE = float(1.5 / EIGENVALUES.max())
EXACT = {
    "optimizer": {"name": "sgd", "lr": RATE, "momentum": 0.4},
    "std_multiplier": 30.0,
    "schedule": "constant",
    "epochs": 150,
}
"""For losses without noise."""
COPIES = 200
NOISY = {
    "optimizer": {"name": "adam", "lr": 0.1},
    "std_multiplier": 1.0,
    "schedule": "cosine",
    "epochs": 100,
    "copies": COPIES,
}
IVON = {
    "optimizer": {"name": "ivon", "lr": 0.6, "hess_init": 1.0, "beta2": 0.95},
    "schedule": "cosine",
    "epochs": 200,
    "copies": COPIES,
}


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize(
    ("method", "settings", "mean_tolerance", "std_tolerance"),
    [
        ("bbb", NOISY | {"estimator": {"name": "weight_sampling", "draws": 2}}, 0.08, 0.06),
        ("bbb", EXACT | {"estimator": SigmaPoints()}, 0.01, 0.01),
        ("sgvb-lrt", NOISY, 0.05, 0.05),
        ("flipout", NOISY | {"estimator": {"name": "flipout", "draws": 2}}, 0.05, 0.05),
        ("vl", NOISY, 0.1, 0.05),
        ("ivon", IVON | {"estimator": {"name": "weight_sampling", "draws": 2}}, 0.05, 0.05),
        ("laplace", EXACT | {"post_hoc": {"name": "laplace", "structure": "diagonal"}}, 1e-3, 1e-5),
    ],
    ids=["bbb", "exact", "lrt", "flipout", "vl", "ivon", "laplace"],
)
def test_mean_field_methods_find_the_conditional_stds(method, settings, mean_tolerance, std_tolerance, temperature):
    """1 / sqrt(Lambda_ii), which is far below the marginal stds: that is the error of mean-field."""
    copies = settings.get("copies", 1)
    start = LINEAR.mean() + LINEAR.covariance().diagonal().sqrt()
    posterior = trained(method, start=start, temperature=temperature, **settings)
    check_moments(posterior, mean_field_std(temperature), mean_tolerance, std_tolerance, copies, temperature)
    assert (LINEAR.covariance().diagonal().sqrt() / mean_field_std()).max() > 1.2


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("low-rank", {"std_optimizer": {"name": "adam", "lr": 0.3}, "schedule": "cosine", "estimator": SigmaPoints()}),
        ("bbb", {"posterior": "full", "estimator": SigmaPoints()}),
        ("laplace", {"post_hoc": {"name": "laplace", "structure": "full"}}),
    ],
    ids=["low-rank", "full", "laplace"],
)
def test_joint_methods_find_the_exact_covariance(method, settings):
    """Rank 2 suffices for low-rank: the covariance less its smallest eigenvalue times I has no more."""
    posterior = trained(method, **EXACT | settings)
    covariance = LINEAR.covariance()
    std = covariance.diagonal().sqrt()
    check_moments(posterior, std, 0.02, 0.02)
    with torch.no_grad():
        size = posterior.noise_size
        root = posterior.rsample(torch.eye(size, dtype=torch.float64)) - posterior.mean
        found = root.T @ root
    torch.testing.assert_close(found / std / std[:, None], covariance / std / std[:, None], atol=0.04, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize(
    ("method", "part"), [("sgld", {"lr": 0.2}), ("sghmc", {"lr": 0.3, "momentum": 0.7})], ids=["sgld", "sghmc"]
)
def test_samplers_draw_from_the_exact_posterior(method, part, temperature):
    """z-tests of 400 independent chains at their last step, failing at a rate of 1e-6.

    The stationary variance of SGLD along an eigenvector of precision lambda is (1 / lambda) / (1 - lr lambda / 2N); the
    BAOAB scheme of SGHMC is exact for quadratics.
    """
    copies = 400
    bank = {"name": "bank", "burn_in": 149, "max_draws": 1}
    optimizer = {"name": method, **part}
    start = LINEAR.mean(temperature)
    posterior = trained(
        method, copies, start, temperature, epochs=150, optimizer=optimizer, averaging=bank, schedule="constant"
    )
    draws = posterior.weights[-1].reshape(copies, -1)
    values, vectors = torch.linalg.eigh(LINEAR.precision(temperature))
    widening = 1 / (1 - part["lr"] * values * temperature / (2 * len(LINEAR.y))) if method == "sgld" else 1.0
    variance = (vectors @ torch.diag(widening / values) @ vectors.T).diagonal()
    away = draws - LINEAR.mean(temperature)
    limit = 5.1  # of a standard normal: 2 x 3 tests, 3.4e-7 each
    assert (away.mean(0).abs() < limit * (variance / copies).sqrt()).all()
    assert ((away.square().mean(0) / variance - 1).abs() < limit * math.sqrt(2 / copies)).all()


SGD = {"optimizer": {"name": "sgd", "lr": RATE / 40, "momentum": 0.9}, "schedule": "constant", "batch_size": 20}


@pytest.mark.parametrize(
    ("method", "settings", "tolerance"),
    [("map", EXACT, 1e-3), ("swa", SGD, 0.15), ("swag", SGD, 0.15), ("swag-diag", SGD, 0.15), ("hwa", NOISY, 0.1)],
    ids=["map", "swa", "swag", "swag-diag", "hwa"],
)
def test_averages_find_the_mean(method, settings, tolerance):
    """In posterior stds. Learning rate and batch size set the spread of the path, so nothing is asked of it."""
    start = LINEAR.mean() + LINEAR.covariance().diagonal().sqrt()
    posterior = trained(method, start=start, **{"epochs": 100, **settings})
    mean = posterior.mean.detach().reshape(settings.get("copies", 1), -1).mean(0)
    assert ((mean - LINEAR.mean()) / LINEAR.covariance().diagonal().sqrt()).abs().max() < tolerance


def test_ensemble_has_no_spread_where_there_is_one_optimum():
    posterior = trained("deep-ensemble", members=3, **EXACT)
    std = LINEAR.covariance().diagonal().sqrt()
    assert ((posterior.weights - LINEAR.mean()) / std).abs().max() < 0.01
