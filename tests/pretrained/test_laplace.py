"""Laplace at given weights, without training: against exact posteriors, independent Hessians and quadrature."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, special
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bayeswell as bw
from bayeswell.errors import CompositionError, DataError, NetworkError, SettingError
from bayeswell.predictive import predictive_nll
from nets import covariance_of
from truths.linear_regression import LinearRegression
from truths.logistic_regression import LogisticRegression

PROBLEM = LinearRegression.make(5, count=60, dimension=4, prior_std=0.8, with_bias=True)


def linear(weights: Any) -> nn.Sequential:
    """A network of one layer with these weights, the bias last."""
    net = nn.Sequential(nn.Linear(4, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(weights[None, :-1]))
        net[0].bias.copy_(torch.tensor(weights[-1:]))
    return net


def at(problem: LinearRegression, temperature: float = 1.0, **settings: Any) -> bw.PostHoc:
    known = bw.Gaussian("known", problem.noise_std)
    prior = bw.Normal(float(PROBLEM.prior_std[0]))
    given: dict[str, Any] = {"structure": "full", "prior": prior, "prior_precision": "prior", "batch_size": 25}
    net = linear(problem.mean(temperature))
    return bw.laplace(net, problem.tensors(), known, temperature=temperature, **{**given, **settings})


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_linear_regression_is_exact(temperature: float) -> None:
    """Mean, covariance, evidence and predictions."""
    found = at(PROBLEM, temperature)
    np.testing.assert_array_equal(found.model.posterior.mean_vector().detach(), PROBLEM.mean(temperature))
    np.testing.assert_allclose(covariance_of(found.model.posterior), PROBLEM.covariance(temperature), rtol=1e-8)
    assert found.log_evidence == pytest.approx(PROBLEM.full_elbo(temperature) / temperature, rel=1e-9)
    x = torch.tensor(PROBLEM.X[:7])
    epistemic = np.einsum("ni,ij,nj->n", PROBLEM.design[:7], PROBLEM.covariance(temperature), PROBLEM.design[:7])
    predicted = found.predict(x, draws=400)
    np.testing.assert_allclose(predicted.mean.flatten(), PROBLEM.design[:7] @ PROBLEM.mean(temperature), atol=0.1)
    np.testing.assert_allclose(predicted.epistemic.flatten(), epistemic, rtol=0.35)  # 5 standard errors


def test_a_number_is_the_precision_of_the_usual_prior() -> None:
    """N(0, 1) times the number; with a prior of one's own, a factor of that one's precision."""
    given = bw.Gaussian("known", PROBLEM.noise_std)
    for prior, number in ((None, 0.8**-2), (bw.Normal(1.6), 4.0)):
        net = linear(PROBLEM.mean())
        found = bw.laplace(net, PROBLEM.tensors(), given, structure="full", prior=prior, prior_precision=number)
        np.testing.assert_allclose(covariance_of(found.model.posterior), PROBLEM.covariance(), rtol=1e-8)
        assert found.log_evidence == pytest.approx(PROBLEM.log_evidence, rel=1e-9)
        assert found.prior_precision == pytest.approx({"0.weight": 0.8**-2, "0.bias": 0.8**-2})
        assert "normal(std=0.8)" in str(found.model.describe())  # what is said of the prior is what was used
        assert found.model.std_ratio() == pytest.approx(float(np.mean(np.diag(PROBLEM.covariance()) ** 0.5 / 0.8)))


def test_the_best_precision_by_marginal_likelihood() -> None:
    """At the weights of least squares it is the maximum of the exact evidence over all isotropic priors."""
    best = np.linalg.lstsq(PROBLEM.design, PROBLEM.y, rcond=None)[0]

    def evidence(log: float) -> float:
        stds = np.full(5, np.exp(-log / 2))
        return -LinearRegression(PROBLEM.X, PROBLEM.y, PROBLEM.noise_std, stds, True).log_evidence

    exact = float(np.exp(optimize.minimize_scalar(evidence, bounds=(-6, 6), method="bounded").x))
    for structure in ("full", "kronecker"):
        found = bw.laplace(
            linear(best), PROBLEM.tensors(), bw.Gaussian("known", PROBLEM.noise_std), structure=structure,
            prior_precision="marginal likelihood",
        )  # fmt: skip
        # Kronecker factors of a layer with a bias leave out the correlation of the two.
        tolerance = 1e-3 if structure == "full" else 0.1
        assert found.prior_precision["0.weight"] == pytest.approx(exact, rel=tolerance)
        assert set(found.prior_precision.values()) == {found.prior_precision["0.weight"]}


def test_logistic_regression_against_its_own_hessian_and_quadrature() -> None:
    truth = LogisticRegression.make(4, count=25, with_bias=True)
    design, y = truth.design, truth.y

    def negative(w: Any) -> float:
        a = design @ w
        return float(np.logaddexp(0, a).sum() - y @ a + 0.5 * np.sum((w / truth.prior_std) ** 2))

    mode = optimize.minimize(negative, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    p = special.expit(design @ mode)
    hessian = design.T @ (design * (p * (1 - p))[:, None]) + np.diag(truth.prior_std**-2.0)
    net = nn.Sequential(nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(mode[None, :2]))
        net[0].bias.copy_(torch.tensor(mode[2:]))
    prior = bw.Normal(float(truth.prior_std[0]))
    found = bw.laplace(net, truth.tensors(), "bernoulli", structure="full", prior=prior, prior_precision="prior")
    np.testing.assert_allclose(covariance_of(found.model.posterior), np.linalg.inv(hessian), rtol=1e-6)
    laplace = -negative(mode) - 0.5 * np.linalg.slogdet(hessian * truth.prior_std**2)[1]
    assert found.log_evidence == pytest.approx(laplace, abs=1e-6)
    assert found.log_evidence == pytest.approx(
        truth.log_evidence, abs=0.15
    )  # quadrature; the approximation's own error
    # Predictions are those of the exact posterior, near enough.
    x = torch.randn(6, 2, dtype=torch.float64, generator=bw.make_generator(3))
    points, log_mass = truth._grid
    mass = np.exp(log_mass - special.logsumexp(log_mass))
    exact = mass @ special.expit(points @ np.hstack([x.numpy(), np.ones((6, 1))]).T)
    np.testing.assert_allclose(found.predict(x, draws=400).probabilities[:, 1], exact, atol=0.06)


def examples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three classes that overlap."""
    generator = bw.make_generator(seed)
    inputs = torch.randn(count, 5, generator=generator).double()
    noise = torch.randn(count, 3, generator=generator).double()
    return inputs, (inputs[:, :3] + noise).argmax(1)


X, Y = examples(90, 0)


def network(epochs: int = 30) -> nn.Sequential:
    """With BatchNorm and dropout, trained a little in plain torch."""
    return copy.deepcopy(_trained(epochs))


@functools.cache
def _trained(epochs: int) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3)).double()
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimizer.step()
    return net


@pytest.mark.filterwarnings("ignore:laplace. the prior is as narrow")
@pytest.mark.parametrize("where", ["all", "last_layer"])
@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_it_is_fit_without_epochs(structure: str, where: Any) -> None:
    """The same posterior and predictions, from one prior and temperature; the given numbers are left alone."""
    net = network()
    before = copy.deepcopy(net.state_dict())
    precision = "marginal_likelihood"
    found = bw.laplace(net, (X, Y), structure=structure, where=where, prior="kaiming", prior_precision=precision)
    post_hoc = {"structure": structure, "prior_precision": precision}
    fitted = bw.fit(
        net, (X, Y), "laplace", epochs=0, post_hoc=post_hoc, where=where, prior="kaiming", temperature=1.0,
        progress=False,
    )  # fmt: skip
    for name, value in fitted.model.posterior.state_dict().items():
        torch.testing.assert_close(found.model.posterior.state_dict()[name], value, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(found.predict(X).probabilities, fitted.predict(X).probabilities, rtol=1e-7, atol=1e-9)
    for result in (found, fitted):
        kept = {**result.model.net.state_dict(), **result.model.layout.unflatten(result.model.posterior.mean_vector())}
        assert all(torch.equal(kept[name], value) for name, value in before.items())
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert str(found.model.describe()).endswith("which are frozen")


def test_it_is_saved_and_comes_back(tmp_path: Path) -> None:
    for choice in ("by_layer", "marginal_likelihood", 3.0):
        found = bw.laplace(network(), (X, Y), prior_precision=choice)
        found.save(tmp_path / "model")
        loaded = bw.load(tmp_path / "model")
        assert torch.equal(loaded.predict(X).probabilities, found.predict(X).probabilities)
        assert str(loaded.model.describe()) == str(found.model.describe())
        assert (len(set(found.prior_precision.values())) > 1) == (choice == "by_layer")


def test_held_out_data_choose_the_precision_that_predicts_them_best() -> None:
    """No other of a grid is better by more than the search's own tolerance allows; and it is not the prior's own."""
    net, held_out = network(60), examples(100, 3)
    given: dict[str, Any] = {"prior": bw.Normal(3.0), "structure": "diagonal"}

    @functools.cache
    def nll(factor: float) -> float:
        tried = bw.laplace(net, (X, Y), prior_precision=factor, **given)
        return float(predictive_nll(tried.model, *held_out, tried.likelihood, draws=200, seed=0).mean())

    found = bw.laplace(net, (X, Y), prior_precision="held-out", held_out=held_out, **given)
    factor = found.prior_precision["0.weight"] * 3.0**2
    grid = {float(a): nll(float(a)) for a in np.geomspace(1e-3, 1e3, 7)}
    assert nll(factor) <= min(grid.values()) + 1e-4
    assert nll(1.0) - nll(factor) > 0.003  # there was something to choose
    loader = DataLoader(TensorDataset(*held_out), batch_size=100)
    again = bw.laplace(net, (X, Y), held_out=loader, **given)  # the usual choice where there are held-out data
    assert again.prior_precision == pytest.approx(found.prior_precision)


def test_learned_noise_is_the_residuals_own() -> None:
    """Without training nobody has learned it: one pass finds its maximum-likelihood value."""
    net = linear(PROBLEM.mean())
    found = bw.laplace(net, PROBLEM.tensors(), "gaussian", structure="full")
    residual = PROBLEM.y - PROBLEM.design @ PROBLEM.mean()
    assert float(found.likelihood.log_std.detach().exp()) == pytest.approx(
        float(np.sqrt(np.mean(residual**2))), rel=1e-6
    )


class Streamed(Dataset[Any]):
    """Examples that are made when they are asked for; it counts how many are in memory at once."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.most = self.read = 0

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        inputs = X[index % 90].clone()
        self.alive.add(inputs)
        self.read += 1
        self.most = max(self.most, len(self.alive))
        return inputs, int(Y[index % 90])


def test_a_loader_is_read_once_and_batch_by_batch() -> None:
    gc.collect()
    dataset = Streamed()
    bw.laplace(network(), DataLoader(dataset, batch_size=20, shuffle=True))
    assert dataset.read == 400
    assert dataset.most <= 40


class Stranger(nn.Module):
    """A class of one's own with two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        return self.inner(x) + shift


def test_networks_and_inputs_of_ones_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (X.float(), torch.randn(90, 3))
    found = bw.laplace(Stranger(), (inputs, Y), prior_precision=2.0)
    found.save(tmp_path / "model")
    loaded = bw.load(tmp_path / "model", Stranger())
    assert torch.equal(loaded.predict(inputs).probabilities, found.predict(inputs).probabilities)


def test_what_cannot_be_meant_is_refused_in_one_line() -> None:
    net, data = network(), (X, Y)
    refused: list[tuple[type[Exception], str, Any]] = [
        (SettingError, "precision = 'evidenc'; .*by_layer", lambda: bw.laplace(net, data, prior_precision="evidenc")),
        (SettingError, "prior_precision = -1", lambda: bw.laplace(net, data, prior_precision=-1)),
        (SettingError, "needs held_out", lambda: bw.laplace(net, data, prior_precision="held-out")),
        (SettingError, "held_out has no use", lambda: bw.laplace(net, data, prior_precision=2.0, held_out=data)),
        (SettingError, "structure = 'kron'", lambda: bw.laplace(net, data, structure="kron")),
        (SettingError, "max_weights", lambda: bw.laplace(net, data, structure="full", max_weights=10)),
        (CompositionError, "Gaussian prior", lambda: bw.laplace(net, data, prior="laplace")),
        (CompositionError, "example weights", lambda: bw.laplace(net, (*data, torch.ones(90)))),
        (DataError, "label", lambda: bw.laplace(net, (X, Y + 2))),
        (NetworkError, "epochs=0", lambda: bw.laplace(bw.bayesian(net), data)),
    ]  # fmt: skip
    for kind, match, call in refused:
        with pytest.raises(kind, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_the_end_of_the_search_is_said() -> None:
    """Weights of zero call for a prior at zero."""
    net = nn.Sequential(nn.Linear(5, 3)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1e-4)
    with pytest.warns(bw.BayeswellWarning, match="as narrow as the search allows"):
        bw.laplace(net, (X, Y), prior=bw.Normal(100.0))
