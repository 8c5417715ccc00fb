"""Laplace approximations against closed forms, Hessians and formulas with explicit Jacobians."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import BayeswellWarning, CompositionError, DataError, NetworkError, SettingError
from bayeswell.core.protocols import Posterior
from bayeswell.core.random import make_generator
from bayeswell.laplace import POST_HOC, Laplace, curvature
from bayeswell.likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian
from bayeswell.nn import BayesianModule, bayesian, input_patches, plain_attention
from bayeswell.objectives import ELBO
from bayeswell.priors import Normal
from helpers import LinearRegression, assert_mean_close

STRUCTURES = ["diagonal", "kronecker", "full"]
PROBLEM = LinearRegression.make()


def covariance_of(posterior: Posterior) -> Tensor:
    """Exact, since all these posteriors are linear in their noise."""
    with torch.no_grad():
        basis = torch.eye(posterior.noise_size, dtype=torch.float64)
        factor = posterior.rsample(basis) - posterior.rsample(torch.zeros_like(basis))
        return factor.T @ factor


def fit(model: BayesianModule, likelihood: Any, x: Tensor, y: Tensor, *, size: int = 4, **settings: Any) -> Posterior:
    context = {name: settings.pop(name) for name in ("temperature", "dataset_size") if name in settings}
    batches = list(zip(x.split(size), y.split(size), strict=True))
    found = Laplace(**settings).fit(
        model, likelihood, batches, generator=make_generator(0), **{"dataset_size": len(y), **context}
    )
    assert torch.equal(found.mean, model.posterior.mean)
    return found


def to_optimum(model: BayesianModule, elbo: ELBO, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.LBFGS(model.posterior.parameters(), max_iter=200, line_search_fn="strong_wolfe")
    optimizer.param_groups[0].update(tolerance_grad=1e-11, tolerance_change=1e-15)

    def closure() -> float:
        optimizer.zero_grad()
        total = elbo(model, x, y).total
        total.backward()
        return total.item()

    optimizer.step(closure)


# Models whose Laplace approximation is known.


@pytest.mark.parametrize("temperature", [0.37, 1.0, 2.6])
def test_full_structure_is_the_posterior_of_linear_regression(temperature: float) -> None:
    model = bayesian(nn.Linear(4, 1, bias=False).double(), "delta", Normal(PROBLEM.prior_std))
    likelihood = Gaussian("known", PROBLEM.noise_std)
    to_optimum(model, ELBO(likelihood, len(PROBLEM.y), temperature=temperature), PROBLEM.x, PROBLEM.y)
    torch.testing.assert_close(model.posterior.mean.detach(), PROBLEM.mean(temperature), rtol=1e-5, atol=1e-7)
    found = fit(model, likelihood, PROBLEM.x, PROBLEM.y, structure="full", temperature=temperature, size=32)
    torch.testing.assert_close(covariance_of(found), PROBLEM.covariance(temperature), rtol=1e-8, atol=1e-12)
    diagonal = fit(model, likelihood, PROBLEM.x, PROBLEM.y, structure="diagonal", temperature=temperature, size=32)
    torch.testing.assert_close(diagonal.std().detach(), PROBLEM.precision(temperature).diagonal() ** -0.5)


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_full_structure_is_the_inverse_hessian_of_logistic_regression(name: str) -> None:
    classes = 1 if name == "bernoulli" else 3
    x = torch.randn(60, 2, dtype=torch.float64)
    y = torch.randint(0, max(classes, 2), (60,))
    model, elbo = bayesian(nn.Linear(2, classes).double(), "delta", Normal(1.7)), ELBO(name, 60)
    to_optimum(model, elbo, x, y)

    def negative_log_joint(weights: Tensor) -> Tensor:
        outputs = model.call(model.layout.unflatten(weights), x)
        return elbo.likelihood.nll(outputs, y).sum() - model.prior.log_prob(weights[None])[0]

    truth = torch.linalg.inv(torch.func.hessian(negative_log_joint)(model.posterior.mean.detach()))
    found = fit(model, elbo.likelihood, x, y, structure="full")
    torch.testing.assert_close(covariance_of(found), truth, rtol=1e-6, atol=1e-9)


# Networks: explicit Gauss-Newton matrices.


def softmax_curvature(outputs: Tensor) -> Tensor:
    p = outputs.softmax(-1)
    return torch.diag(p) - torch.outer(p, p)


def bernoulli_curvature(outputs: Tensor) -> Tensor:
    p = outputs.sigmoid()
    return (p * (1 - p)).diag()


def per_input_curvature(outputs: Tensor) -> Tensor:
    """Fisher information of (mean, log_std)."""
    mean, log_std = outputs.chunk(2)
    return torch.cat([(-2 * log_std).exp(), torch.full_like(mean, 2.0)]).diag()


CASES: dict[str, tuple[Any, Callable[[Tensor], Tensor], int, Callable[[int], Tensor]]] = {
    "categorical": (Categorical(), softmax_curvature, 3, lambda n: torch.randint(0, 3, (n,))),
    "bernoulli": (Bernoulli(), bernoulli_curvature, 3, lambda n: torch.ones(n, 3).long()),
    "gaussian": (
        Gaussian("known", 0.6),
        lambda f: torch.eye(3).double() / 0.36,
        3,
        lambda n: torch.randn(n, 3).double(),
    ),
    "per input": (Gaussian("per_input"), per_input_curvature, 4, lambda n: torch.randn(n, 2).double()),
}


def small_model(outputs: int = 3) -> BayesianModule:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()
    return bayesian(net, "delta", {"0.*": Normal(1.4), "2.*": Normal(0.5)})


def explicit_ggn(model: BayesianModule, x: Tensor, output_curvature: Callable[[Tensor], Tensor]) -> Tensor:
    """sum_n J_n' H_n J_n."""
    total = torch.zeros(model.layout.size, model.layout.size, dtype=torch.float64)
    weights = model.posterior.mean.detach()
    for row in x:
        outputs = lambda w, row=row: model.call(model.layout.unflatten(w), row[None])[0]  # noqa: E731
        slope = torch.func.jacrev(outputs)(weights)
        total += slope.T @ output_curvature(outputs(weights)).double() @ slope
    return total


@pytest.mark.parametrize("name", CASES)
def test_structures_match_the_explicit_matrix(name: str) -> None:
    """40 data, of which the batches show 11, at temperature 0.3."""
    likelihood, output_curvature, outputs, targets = CASES[name]
    model, x, y = small_model(outputs), torch.randn(11, 3, dtype=torch.float64), targets(11)
    ggn = explicit_ggn(model, x, output_curvature)
    precision = 40 / 0.3 * ggn / 11 + (model.prior.std().double() ** -2).diag()
    context = {"temperature": 0.3, "dataset_size": 40}
    full = fit(model, likelihood, x, y, structure="full", **context)
    torch.testing.assert_close(covariance_of(full), torch.linalg.inv(precision), rtol=1e-7, atol=1e-11)
    for structure in ("diagonal", "kronecker"):
        std = fit(model, likelihood, x, y, structure=structure, **context).std().detach()
        parts = model.layout.slices if structure == "diagonal" else ["0.bias", "2.bias"]
        for part in parts:
            own = model.layout.slices[part]
            torch.testing.assert_close(std[own], precision.diagonal()[own] ** -0.5, rtol=1e-7, atol=0)


@pytest.mark.parametrize("damping", ["balanced", "plain"])
def test_kronecker_factors_match_the_explicit_formula(damping: str) -> None:
    """Inputs and gradients of both layers in plain torch; the prior enters through both factors."""
    model, x, y = small_model(), torch.randn(9, 3, dtype=torch.float64), torch.randint(0, 3, (9,))
    weights = model.layout.unflatten(model.posterior.mean.detach())
    hidden = torch.tanh(x @ weights["0.weight"].T + weights["0.bias"])
    outputs = hidden @ weights["2.weight"].T + weights["2.bias"]
    back = weights["2.weight"] * (1 - hidden**2)[:, None, :]
    output_curvature = torch.stack([softmax_curvature(row) for row in outputs])
    sides = {
        "0.weight": (torch.einsum("nki,nkl,nlj->ij", back, output_curvature, back) / 9, x.T @ x / 9, 1.4),
        "2.weight": (output_curvature.mean(0), hidden.T @ hidden / 9, 0.5),
    }
    found = covariance_of(fit(model, Categorical(), x, y, temperature=0.3, damping=damping))
    for name, (gradients, inputs, prior_std) in sides.items():
        mean_ratio = inputs.diagonal().mean() / gradients.diagonal().mean()
        balance = mean_ratio.sqrt().item() if damping == "balanced" else 1.0
        root = (9 / 0.3) ** 0.5
        rows = root * gradients + torch.eye(len(gradients)) / (prior_std * balance)
        columns = root * inputs + torch.eye(len(inputs)) * balance / prior_std
        own = model.layout.slices[name]
        truth = torch.linalg.inv(torch.kron(rows, columns))
        torch.testing.assert_close(found[own, own], truth, rtol=1e-6, atol=1e-11)


CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "strided": lambda: nn.Conv2d(2, 3, (2, 3), stride=2, padding=1, dilation=(1, 2)),
    "circular": lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
    "transposed": lambda: nn.ConvTranspose2d(2, 3, 2, stride=2, padding=1),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_patches_are_what_kernels_multiply(kind: str) -> None:
    model = bayesian(CONVOLUTIONS[kind]().double(), "delta")
    ((_, layer),) = model.linear_layers.items()
    site = model.layout.sites[0]
    weights = model.layout.unflatten(model.posterior.mean.detach())
    x = torch.randn(2, 2, 5, 6, dtype=torch.float64)
    patches = input_patches(layer, site, x)
    outputs = model.call(weights, x) - weights["bias"][:, None, None]
    truth = outputs.movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(patches @ site.to_matrix(weights["weight"]).T, truth)


def test_kronecker_is_exact_for_one_linear_layer_but_for_the_prior() -> None:
    """F = I / noise^2 (x) mean(x x'); with a prior that matters the precision is overestimated, never less."""
    x, y = torch.randn(30, 3, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    likelihood = Gaussian("known", 0.6)
    for prior_std in (1e5, 0.4):
        model = bayesian(nn.Linear(3, 2, bias=False).double(), "delta", Normal(prior_std))
        exact = covariance_of(fit(model, likelihood, x, y, structure="full"))
        found = covariance_of(fit(model, likelihood, x, y, structure="kronecker"))
        if prior_std == 1e5:
            torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-6)
        else:
            assert torch.linalg.eigvalsh(exact - found).min() > 1e-4


# Output curvature and per-example gradients.


def test_sampled_columns_have_the_exact_expectation() -> None:
    outputs, y = torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 2])
    generator, likelihood = make_generator(1), Categorical()
    columns = [curvature.curvature_columns(likelihood, outputs, y, 2, generator) for _ in range(2000)]
    samples = torch.stack([torch.einsum("csi,csj->sij", c, c) for c in columns])
    assert_mean_close(samples, torch.stack([softmax_curvature(row) for row in outputs]))


def test_many_outputs_are_sampled_with_a_warning() -> None:
    outputs, y = torch.randn(2, 101, dtype=torch.float64), torch.tensor([0, 2])
    with pytest.warns(BayeswellWarning, match="101 outputs"):
        assert len(curvature.curvature_columns(Categorical(), outputs, y, None, make_generator(0))) == 10


def test_chunks_and_single_examples_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = small_model(), torch.randn(11, 3, dtype=torch.float64), torch.randint(0, 3, (11,))
    truth = fit(model, Categorical(), x, y, structure="diagonal", size=11).std()
    monkeypatch.setattr(curvature, "MAX_CHUNK", 100)
    torch.testing.assert_close(fit(model, Categorical(), x, y, structure="diagonal", size=11).std(), truth)

    def refuse(*arguments: Any) -> Any:
        raise RuntimeError("vmap cannot take this network")

    monkeypatch.setattr(curvature, "_vectorized", refuse)
    torch.testing.assert_close(fit(model, Categorical(), x, y, structure="diagonal", size=11).std(), truth)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_layers_are_in_evaluation_mode(structure: str) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).double()
    model = bayesian(net, "delta").train()
    x, y = torch.randn(11, 3, dtype=torch.float64), torch.randint(0, 3, (11,))
    first, second = (fit(model, Categorical(), x, y, structure=structure).std() for _ in range(2))
    assert torch.equal(first, second)
    assert model.net[1].num_batches_tracked == 0
    assert model.net[2].training


@pytest.mark.parametrize("structure", STRUCTURES)
def test_last_layer_is_a_choice_of_the_model(structure: str) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    model = bayesian(net, "delta", Normal(1.0), where="last_layer", other_params="frozen")
    x, y = torch.randn(11, 3, dtype=torch.float64), torch.randint(0, 3, (11,))
    assert fit(model, Categorical(), x, y, structure=structure).std().shape == (15,)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_prior_precision_as_a_number_is_a_scaled_prior(structure: str) -> None:
    model, x, y = small_model(), torch.randn(11, 3, dtype=torch.float64), torch.randint(0, 3, (11,))
    scaled = model.with_prior(model.prior.scaled(0.5))
    found = fit(model, Categorical(), x, y, structure=structure, prior_precision=4.0)
    torch.testing.assert_close(found.std(), fit(scaled, Categorical(), x, y, structure=structure).std())


def test_attention_works_with_the_diagonal_structure() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = bayesian(nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).double(), "delta")
    x, y = torch.randn(5, 3, 4, dtype=torch.float64), torch.randint(0, 2, (5,))
    with plain_attention():
        ggn = explicit_ggn(model.eval(), x, softmax_curvature).diagonal()
    std = fit(model, Categorical(), x, y, structure="diagonal").std().detach()
    torch.testing.assert_close(std, (ggn + model.prior.std().double() ** -2) ** -0.5, rtol=1e-6, atol=0)


# Errors.


def test_models_that_do_not_fit_are_refused() -> None:
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(0, 3, (6,))
    net = nn.Linear(3, 3).double()
    with pytest.raises(CompositionError, match="needs posterior"):
        fit(bayesian(net, "mean_field"), Categorical(), x, y)
    with pytest.raises(CompositionError, match="Gaussian prior"):
        fit(bayesian(net, "delta", "scale_mixture"), Categorical(), x, y)
    with pytest.raises(SettingError, match="max_weights"):
        fit(bayesian(net, "delta"), Categorical(), x, y, structure="full", max_weights=5)
    with pytest.raises(CompositionError, match="no factors for 'weight'"):
        fit(bayesian(nn.Embedding(4, 3).double(), "delta"), Categorical(), torch.arange(4), y[:4])
    with pytest.raises(DataError, match="at least one example"):
        Laplace().fit(bayesian(net, "delta"), Categorical(), [], dataset_size=5)


def test_outputs_that_are_not_finite_are_refused() -> None:
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(0, 3, (6,))
    x[2] = math.nan
    with pytest.raises(NetworkError, match="NaN or inf"):
        fit(bayesian(nn.Linear(3, 3).double(), "delta"), Categorical(), x, y, structure="diagonal")


def test_registry_knows_the_part() -> None:
    assert POST_HOC.resolve({"name": "laplace", "structure": "full"}) == Laplace("full")
    assert LIKELIHOODS.resolve("categorical").supports("curvature_root")
    for settings in ({"structure": "half"}, {"damping": "none"}, {"draws": 0}):
        with pytest.raises(SettingError):
            Laplace(**settings)
