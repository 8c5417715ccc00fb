"""Whole runs with every new likelihood, where the answer is known: one weight, its posterior by quadrature.

The network is f = w, so the exact posterior is a curve. A Gaussian fitted to it differs from it by less than the
tolerances at these sizes; training adds its own noise, which shows in the spread of 200 copies of the weight, each with
the same data and another start: 5 standard errors of their average fail falsely once in 100,000 runs with other seeds.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from torch import Tensor, distributions, nn

import bayeswell as bw
from bayeswell.likelihoods import NegativeBinomial, StudentT

PRIOR_STD = 1.7
N = 60
COPIES = 200


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def poisson_function(f: Tensor) -> distributions.Distribution:
    return distributions.Poisson(f.exp())


def one_weight(copies: int = 1) -> nn.Module:
    """Copies start 6 to 12 posterior stds below the mean up to 3 to 7 above: what momentum overshoots averages out."""
    net = nn.Linear(1, copies, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.linspace(0.7, 1.7, copies)[:, None])
    return net


def counts(dispersion: float | None) -> np.ndarray:
    rng = np.random.default_rng(3)
    rates = 4.0 if dispersion is None else 4.0 * rng.gamma(1 / dispersion, dispersion, N)
    return rng.poisson(rates, N)


def heavy() -> np.ndarray:
    return np.asarray(scipy.stats.t.rvs(3.0, 1.2, 0.5, size=N, random_state=np.random.default_rng(4)))


CASES: dict[str, tuple[Any, np.ndarray]] = {
    "poisson": ("poisson", counts(None)),
    "function": (poisson_function, counts(None)),
    "negative_binomial": ({"name": "negative_binomial", "noise": "known", "dispersion": 0.4}, counts(0.4)),
    "student_t": ({"name": "student_t", "noise": "known", "scale": 0.5, "df": 3.0}, heavy()),
}


def log_likelihood(name: str, w: np.ndarray, y: np.ndarray) -> np.ndarray:
    f = w[:, None]
    if name == "student_t":
        return np.asarray(scipy.stats.t.logpdf(y, 3.0, f, 0.5).sum(1))
    if name == "negative_binomial":
        return np.asarray(scipy.stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + np.exp(f))).sum(1))
    return np.asarray(scipy.stats.poisson.logpmf(y, np.exp(f)).sum(1))


@functools.cache
def exact_posterior(name: str) -> tuple[float, float]:
    """Mean and std of the weight by quadrature, with 25 points and more in a posterior std."""
    w = np.linspace(-1, 4, 2_001)
    log_p = log_likelihood(name, w, CASES[name][1]) - 0.5 * (w / PRIOR_STD) ** 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float((p * w).sum())
    return mean, float(np.sqrt((p * (w - mean) ** 2).sum()))


def data_of(name: str) -> tuple[Tensor, Tensor]:
    y = torch.from_numpy(CASES[name][1])
    y = y.float() if y.is_floating_point() else y
    return torch.ones(N, 1), y[:, None].repeat(1, COPIES)


def trained(name: str, method: str, **settings: Any) -> bw.Result:
    likelihood, _ = CASES[name]
    usual = {"epochs": 60, "batch_size": N, "temperature": 1.0, "prior": {"name": "normal", "std": PRIOR_STD}}
    # A short memory and a rate that ends at nothing: 60 steps are enough for means and stds to settle.
    usual |= {"stepper": {"name": "adam", "lr": 0.08, "beta1": 0.8, "beta2": 0.98}, "rate": "cosine"}
    usual |= {"std_multiplier": 2.5}
    return bw.fit(one_weight(COPIES), data_of(name), method, likelihood, **{**usual, **settings}, progress=False)


def assert_posterior(result: bw.Result, name: str, bias: float = 0.05) -> None:
    """The average copy has the posterior's mean (in its stds) and std, to ``bias`` and 5 standard errors of copies."""
    mean, std = exact_posterior(name)
    posterior = result.model.posterior
    means = (posterior.mean_vector().detach() - mean) / std
    stds = posterior.std_vector().detach() / std
    root = COPIES**0.5
    assert abs(float(means.mean())) < bias + 5 * float(means.std()) / root < bias + 0.12
    assert abs(float(stds.mean()) - 1) < bias + 5 * float(stds.std()) / root < bias + 0.12


@pytest.mark.parametrize("name", CASES)
def test_variational_inference_finds_the_posterior(name: str, tmp_path: Path) -> None:
    result = trained(name, "bbb")
    assert_posterior(result, name)
    x = torch.ones(4, 1)
    found = result.predict(x, draws=200, seed=1)
    assert isinstance(found, bw.RealPrediction)
    mean, std = exact_posterior(name)
    # E[y] = E[f] for a location, E[exp(f)] for a count: 200 draws of 200 copies, and what the copies are off together.
    centre = mean if name == "student_t" else np.exp(mean + std**2 / 2)
    spread = std if name == "student_t" else centre * std
    assert float(found.mean[0].mean()) == pytest.approx(centre, abs=(0.05 + 5 / np.sqrt(COPIES)) * spread)
    if name == "function":
        return
    bw.save(tmp_path / "model", result.model, result.likelihood)
    again = bw.load(tmp_path / "model").predict(x, draws=200, seed=1)
    assert isinstance(again, bw.RealPrediction)
    assert torch.equal(again.mean, found.mean)
    assert torch.equal(again.variance, found.variance)


@pytest.mark.parametrize(
    ("name", "curvature"),
    [
        *[(name, "fisher_labels") for name in CASES],
        *[(name, "fisher_reparameterised") for name in CASES if name != "function"],
    ],
)
def test_variational_laplace_finds_the_posterior(name: str, curvature: str) -> None:
    estimator = {"name": "variational_laplace", "curvature": curvature}
    assert_posterior(trained(name, "vl", estimator=estimator), name, bias=0.1)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "student_t"])
@pytest.mark.parametrize("draws", [None, 10])
def test_laplace_has_the_curvature_of_the_model(name: str, draws: int | None) -> None:
    """1 / variance = N I(w) + 1 / prior variance, with the Fisher information I written out."""
    post_hoc = {"name": "laplace", "structure": "diagonal", "draws": draws}
    result = trained(name, "laplace", post_hoc=post_hoc, epochs=40)  # without noise, 40 steps are enough
    w = result.model.posterior.mean_vector()[0].item()
    information = {"poisson": np.exp(w), "negative_binomial": np.exp(w) / (1 + 0.4 * np.exp(w)), "student_t": 16 / 6}
    expected = (N * information[name] + PRIOR_STD**-2) ** -0.5
    assert result.model.posterior.std_vector()[0].item() == pytest.approx(expected, rel=1e-3)
    assert_posterior(result, name, bias=0.1)


def test_learned_noise_goes_where_the_likelihood_is_largest() -> None:
    y = CASES["negative_binomial"][1]
    learned = bw.fit(
        one_weight(), (torch.ones(N, 1), torch.from_numpy(y)), "map", "negative_binomial", epochs=80, batch_size=N,
        prior={"name": "normal", "std": 100.0}, stepper={"name": "adam", "lr": 0.2}, rate="cosine", progress=False,
    )  # fmt: skip

    def loss(theta: np.ndarray) -> float:
        r = np.exp(theta[1])
        return -float(scipy.stats.nbinom.logpmf(y, r, r / (r + np.exp(theta[0]))).sum())

    best = scipy.optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    assert isinstance(learned.likelihood, NegativeBinomial)
    assert learned.likelihood.get_parameter("log_dispersion").item() == pytest.approx(-best[1], abs=0.02)
    assert learned.model.posterior.mean_vector().item() == pytest.approx(best[0], abs=0.01)
    values = heavy()
    t = bw.fit(
        one_weight(), (torch.ones(N, 1), torch.from_numpy(values).float()), "map",
        {"name": "student_t", "learn_df": True}, epochs=80, batch_size=N, prior={"name": "normal", "std": 100.0},
        stepper={"name": "adam", "lr": 0.2}, rate="cosine", progress=False,
    )  # fmt: skip
    df, location, scale = scipy.stats.t.fit(values)
    assert isinstance(t.likelihood, StudentT)
    assert t.model.posterior.mean_vector().item() == pytest.approx(location, abs=0.02)
    assert t.likelihood.get_parameter("log_scale").item() == pytest.approx(np.log(scale), abs=0.05)
    assert t.likelihood.get_parameter("log_df").item() == pytest.approx(np.log(df), abs=0.2)
