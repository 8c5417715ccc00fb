"""Whole runs with every new likelihood, where the answer is known: one weight, its posterior by quadrature.

The network is f = w, so the exact posterior is a curve. A Gaussian fitted to it differs from it by less than the
tolerances at these sizes; training adds its own noise, which the last small steps average away.
"""

from __future__ import annotations

import copy
import pickle
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
from bayeswell.likelihoods import LIKELIHOODS, NegativeBinomial, Poisson, StudentT
from bayeswell.predictive import expected_nll, predictive_nll

PRIOR_STD = 1.7
N = 60


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def poisson_function(f: Tensor) -> distributions.Distribution:
    return distributions.Poisson(f.exp())


def one_weight() -> nn.Module:
    net = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        net.weight.fill_(0.5)
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


def exact_posterior(name: str) -> tuple[float, float]:
    """Mean and std of the weight by quadrature."""
    w = np.linspace(-1, 4, 20_001)
    log_p = log_likelihood(name, w, CASES[name][1]) - 0.5 * (w / PRIOR_STD) ** 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float((p * w).sum())
    return mean, float(np.sqrt((p * (w - mean) ** 2).sum()))


def data_of(name: str) -> tuple[Tensor, Tensor]:
    y = torch.from_numpy(CASES[name][1])
    return torch.ones(N, 1), y.float() if y.is_floating_point() else y


def trained(name: str, method: str, **settings: Any) -> bw.Result:
    likelihood, _ = CASES[name]
    usual = {"epochs": 150, "batch_size": N, "temperature": 1.0, "prior": {"name": "normal", "std": PRIOR_STD}}
    usual |= {"stepper": {"name": "adam", "lr": 0.05}, "std_multiplier": 2.0}
    return bw.fit(one_weight(), data_of(name), method, likelihood, **{**usual, **settings}, progress=False)


def assert_posterior(result: bw.Result, name: str) -> None:
    mean, std = exact_posterior(name)
    posterior = result.model.posterior
    assert float(posterior.mean_vector()) == pytest.approx(mean, abs=0.2 * std)
    assert float(posterior.std_vector()) == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize("name", CASES)
def test_variational_inference_finds_the_posterior(name: str, tmp_path: Path) -> None:
    estimator = {"name": "weight_sampling", "draws": 16, "antithetic": True}
    result = trained(name, "bbb", estimator=estimator)
    assert_posterior(result, name)
    x = torch.ones(4, 1)
    found = result.predict(x, draws=2000, seed=1)
    assert isinstance(found, bw.RealPrediction)
    mean, std = exact_posterior(name)
    # E[y] = E[f] for a location, and of exp(f) with f Gaussian; within 5 standard errors of 2000 draws and the fit.
    centre = mean if name == "student_t" else np.exp(mean + std**2 / 2)
    spread = std if name == "student_t" else centre * std
    assert float(found.mean[0]) == pytest.approx(centre, abs=(0.2 + 5 / np.sqrt(2000)) * spread)
    if name == "function":
        return
    bw.save(tmp_path / "model", result.model, result.likelihood)
    again = bw.load(tmp_path / "model").predict(x, draws=2000, seed=1)
    assert isinstance(again, bw.RealPrediction)
    assert torch.equal(again.mean, found.mean)
    assert torch.equal(again.variance, found.variance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("curvature", ["fisher_labels", "fisher_reparameterised"])
def test_variational_laplace_finds_the_posterior(name: str, curvature: str) -> None:
    if name == "function" and curvature == "fisher_reparameterised":
        pytest.skip("a function has no curvature_root")
    assert_posterior(trained(name, "vl", estimator={"name": "variational_laplace", "curvature": curvature}), name)


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "student_t"])
@pytest.mark.parametrize("draws", [None, 10])
def test_laplace_has_the_curvature_of_the_model(name: str, draws: int | None) -> None:
    """1 / variance = N I(w) + 1 / prior variance, with the Fisher information I written out."""
    post_hoc = {"name": "laplace", "structure": "diagonal", "draws": draws}
    result = trained(name, "laplace", post_hoc=post_hoc)
    w = float(result.model.posterior.mean_vector())
    information = {"poisson": np.exp(w), "negative_binomial": np.exp(w) / (1 + 0.4 * np.exp(w)), "student_t": 16 / 6}
    expected = (N * information[name] + PRIOR_STD**-2) ** -0.5
    assert float(result.model.posterior.std_vector()) == pytest.approx(expected, rel=1e-4)
    if name != "student_t":
        assert_posterior(result, name)


def test_learned_noise_goes_where_the_likelihood_is_largest() -> None:
    y = CASES["negative_binomial"][1]
    learned = bw.fit(
        one_weight(), (torch.ones(N, 1), torch.from_numpy(y)), "map", "negative_binomial", epochs=200, batch_size=N,
        prior={"name": "normal", "std": 100.0}, stepper={"name": "adam", "lr": 0.1}, progress=False,
    )  # fmt: skip

    def loss(theta: np.ndarray) -> float:
        r = np.exp(theta[1])
        return -float(scipy.stats.nbinom.logpmf(y, r, r / (r + np.exp(theta[0]))).sum())

    best = scipy.optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    assert isinstance(learned.likelihood, NegativeBinomial)
    assert float(learned.likelihood.get_parameter("log_dispersion")) == pytest.approx(-best[1], abs=0.02)
    assert float(learned.model.posterior.mean_vector()) == pytest.approx(best[0], abs=0.01)
    values = heavy()
    t = bw.fit(
        one_weight(), (torch.ones(N, 1), torch.from_numpy(values).float()), "map",
        {"name": "student_t", "learn_df": True}, epochs=200, batch_size=N, prior={"name": "normal", "std": 100.0},
        stepper={"name": "adam", "lr": 0.1}, progress=False,
    )  # fmt: skip
    df, location, scale = scipy.stats.t.fit(values)
    assert isinstance(t.likelihood, StudentT)
    assert float(t.model.posterior.mean_vector()) == pytest.approx(location, abs=0.02)
    assert float(t.likelihood.get_parameter("log_scale")) == pytest.approx(np.log(scale), abs=0.05)
    assert float(t.likelihood.get_parameter("log_df")) == pytest.approx(np.log(df), abs=0.2)


def test_class_weights_are_examples_met_so_often(tmp_path: Path) -> None:
    """Weights (1, 3) on the data and plain labels on data with class 1 three times: one and the same posterior."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(40, 3, generator=generator)
    y = (x[:, 0] + torch.randn(40, generator=generator) > 0.5).long()
    often = torch.cat([torch.arange(40), *[torch.nonzero(y)[:, 0]] * 2])

    def weights_of(likelihood: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        torch.manual_seed(6)
        result = bw.fit(
            nn.Linear(3, 2), (inputs, labels), "laplace", likelihood, epochs=150, batch_size=len(labels),
            temperature=1.0, prior={"name": "normal", "std": 0.9}, stepper={"name": "adam", "lr": 0.2},
            post_hoc={"name": "laplace", "structure": "full"}, progress=False,
        )  # fmt: skip
        result.save(tmp_path / "weighted")
        loaded = bw.load(tmp_path / "weighted")
        assert torch.equal(loaded.predict(x, seed=1).probabilities, result.predict(x, seed=1).probabilities)  # type: ignore[union-attr]
        posterior = result.model.posterior
        return torch.stack([posterior.mean_vector(), posterior.std_vector()]).detach()

    weighted = weights_of(bw.Categorical(class_weights=(1.0, 3.0)), x, y)
    repeated = weights_of("categorical", x[often], y[often])
    plain = weights_of("categorical", x, y)
    torch.testing.assert_close(weighted, repeated, rtol=1e-3, atol=1e-3)
    assert (weighted - plain).abs().max() > 0.02


@pytest.mark.parametrize("method", ["bbb", "vl"])
def test_sequences_with_padding(method: str) -> None:
    """(batch, time, classes) outputs, padded places ignored: what stands at padded places changes nothing."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(24, 5, 3, generator=generator)
    labels = x.argmax(-1)
    labels[:, 3:] = -100
    labels[0] = -100
    other = x.clone()
    other[:, 3:] += 7.0
    likelihood = {"name": "categorical", "class_axis": -1, "ignore_index": -100}
    found = []
    for inputs in (x, other):
        torch.manual_seed(8)
        result = bw.fit(
            nn.Linear(3, 3), (inputs, labels), method, likelihood, epochs=60, batch_size=24, seed=1, progress=False,
            validation=(inputs, labels), stepper={"name": "adam", "lr": 0.05},
        )  # fmt: skip
        found.append(result)
    first, second = (torch.cat([r.model.posterior.mean_vector(), r.model.posterior.std_vector()]) for r in found)
    torch.testing.assert_close(first, second)
    record = found[0].histories[0].epochs[-1]
    assert record.scores["accuracy"] > 0.9
    assert record.validation["accuracy"] > 0.9
    assert found[0].predict(x, draws=3, seed=1).probabilities.shape == (24, 5, 3)  # type: ignore[union-attr]


class OnlyNLL:
    """All that every method needs."""

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.exp() - targets.view_as(outputs) * outputs).flatten(1).sum(1)


def test_a_class_with_nll_alone_trains_and_says_what_it_lacks() -> None:
    y = torch.from_numpy(CASES["poisson"][1])
    data = (torch.ones(N, 1), y.float())
    settings: dict[str, Any] = {"epochs": 3, "batch_size": N, "progress": False, "validation": data}
    result = bw.fit(one_weight(), data, "bbb", OnlyNLL(), **settings)
    record = result.histories[0].epochs[-1]
    assert set(record.validation) == {"nll"}
    assert record.scores == {}
    with pytest.raises(bw.SettingError) as caught:
        result.predict(data[0])
    assert str(caught.value) == (
        "likelihood OnlyNLL lacks `class_probabilities` or `mean_and_variance`, needed to predict"
    )
    with pytest.raises(bw.BayeswellError, match=r"OnlyNLL lacks `curvature_root`.*laplace"):
        bw.fit(
            one_weight(),
            data,
            {"laplace": "laplace"}["laplace"],
            OnlyNLL(),
            post_hoc={"name": "laplace", "draws": 3},
            **settings,
        )
    bw.fit(one_weight(), data, "sgld", OnlyNLL(), members=2, **{**settings, "epochs": 40})


def test_validation_of_counts_is_the_nll_of_the_averaged_likelihood() -> None:
    x, y = data_of("poisson")
    result = trained("poisson", "bbb", epochs=30, validation=(x, y))
    found = result.histories[0].epochs[-1].validation
    assert set(found) == {"rmse", "nll"}
    losses = predictive_nll(result.model, x, y, result.likelihood, draws=10, seed=0)
    assert found["nll"] == pytest.approx(float(losses.mean()), rel=1e-6)


@pytest.mark.parametrize("batch_size", [None, 7])
def test_predictive_nll_is_the_log_of_the_mean(batch_size: int | None) -> None:
    x, y = data_of("poisson")
    model = bw.bayesian(one_weight(), prior={"name": "normal", "std": PRIOR_STD})
    settings: dict[str, Any] = {"draws": 30, "seed": 4}
    kept = bw.predict(model, x, Poisson(), keep_samples=True, **settings).samples  # (D, N, 1): the rates
    p = scipy.stats.poisson.pmf(y.numpy(), kept[..., 0].double().numpy())
    found = predictive_nll(model, x, y, Poisson(), batch_size=batch_size, **settings)
    np.testing.assert_allclose(found, -np.log(p.mean(0)), rtol=1e-5)
    assert float(found.mean()) < expected_nll(model, x, y, "poisson", **settings)


@pytest.mark.parametrize("name", [*LIKELIHOODS, "function"])
def test_results_pickle_and_copy(name: str) -> None:
    torch.manual_seed(9)
    x = torch.randn(20, 3)
    targets = {"categorical": torch.arange(20) % 2, "bernoulli": (torch.arange(20) % 2)[:, None].expand(20, 2)}
    y = targets.get(name, (torch.arange(40) % 5).reshape(20, 2).float())
    likelihood = poisson_function if name == "function" else name
    result = bw.fit(nn.Linear(3, 2), (x, y), "bbb", likelihood, epochs=2, progress=False)
    found = result.predict(x, draws=3, seed=1, keep_samples=True)
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        twin = again.predict(x, draws=3, seed=1, keep_samples=True)
        assert torch.equal(twin.samples, found.samples)
    for twin in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert torch.equal(twin.samples, found.samples)
        assert torch.equal(twin.epistemic, found.epistemic)


def test_samples_that_were_not_kept_are_not_there() -> None:
    found = bw.predict(bw.bayesian(nn.Linear(3, 2)), torch.zeros(2, 3), "categorical", draws=2)
    assert not hasattr(found, "samples")
    assert getattr(found, "samples", None) is None
    with pytest.raises(AttributeError, match="keep_samples=True"):
        found.samples
    with pytest.raises(bw.SettingError, match="keep_samples=True"):
        found.samples


def test_a_mapping_is_a_likelihood_to_predict_with() -> None:
    model = bw.bayesian(nn.Linear(3, 2))
    found = bw.predict(model, torch.zeros(2, 3), {"name": "gaussian", "noise": "known", "std": (0.3, 0.5)}, draws=2)
    assert isinstance(found, bw.RealPrediction)
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor([[0.09, 0.25]] * 2))
