"""Laplace approximations against closed forms, autograd's Hessians and slow formulas with explicit Jacobians."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian

import bayeswell as bw
from bayeswell.errors import CompositionError, DataError, NetworkError, SettingError
from bayeswell.post_hoc import POST_HOC, LaplaceApproximation, examples
from bayeswell.post_hoc.kronecker import LayerCurvature
from bayeswell.post_hoc.outputs import curvature_columns
from nets import LAYERS, Recurrent, covariance_of
from truths.linear_regression import LinearRegression

STRUCTURES = ["diagonal", "kronecker", "full"]
Batches = Iterator[tuple[Any, Tensor]]


def eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def in_batches(x: Any, y: Tensor, size: int) -> Batches:
    for start in range(0, len(y), size):
        yield x[start : start + size], y[start : start + size]


def finish(
    model: bw.BayesianModule, likelihood: Any, x: Any, y: Tensor, *, size: int = 7, dataset_size: int | None = None,
    **settings: Any,
) -> bw.BayesianModule:  # fmt: skip
    part, posterior = LaplaceApproximation(**settings).finish(
        model, likelihood, in_batches(x, y, size), dataset_size or len(y), bw.make_generator(0)
    )
    return model.with_posterior(part, posterior)


def to_the_optimum(model: bw.BayesianModule, objective: bw.ELBO, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=200, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        total = objective(model, x, y).total
        total.backward()
        return total.item()

    optimizer.step(closure)  # type: ignore[arg-type]


# Linear regression: the approximation is the posterior.

PROBLEM = LinearRegression.make(3, dimension=4, prior_std=[1.3, 1.3, 1.3, 1.3, 0.4], with_bias=True)


def regression(temperature: float, structure: str) -> bw.BayesianModule:
    torch.manual_seed(0)
    prior = {"weight": bw.Normal(1.3), "bias": bw.Normal(0.4)}
    model = bw.bayesian(nn.Linear(4, 1).double(), "delta", prior)
    likelihood = bw.Gaussian("known", PROBLEM.noise_std)
    x, y = PROBLEM.tensors()
    to_the_optimum(model, bw.ELBO(likelihood, len(y), temperature=temperature), x, y)
    return finish(model, likelihood, x, y, structure=structure, temperature=temperature, size=64)


def assert_exact(model: bw.BayesianModule, temperature: float) -> None:
    np.testing.assert_allclose(model.posterior.mean_vector().detach(), PROBLEM.mean(temperature), rtol=1e-6)
    covariance = covariance_of(model.posterior).numpy()
    truth = PROBLEM.covariance(temperature)
    assert np.abs(covariance - truth).max() < 1e-6 * np.abs(truth).max()


@pytest.mark.parametrize("temperature", [0.37, 2.6])
def test_full_is_the_exact_posterior_of_linear_regression(temperature: float) -> None:
    assert_exact(regression(temperature, "full"), temperature)


@pytest.mark.parametrize("temperature", [0.37, 2.6])
def test_diagonal_is_the_mean_field_optimum_of_linear_regression(temperature: float) -> None:
    model = regression(temperature, "diagonal")
    np.testing.assert_allclose(model.posterior.mean_vector().detach(), PROBLEM.mean(temperature), rtol=1e-6)
    std = model.posterior.std_vector().detach()
    np.testing.assert_allclose(std, PROBLEM.mean_field_std(temperature), rtol=1e-10)


def test_planted_bugs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean curvature without its N, and the prior's variance for its precision."""
    module = "bayeswell.post_hoc.structures"
    original = LaplaceApproximation.finish

    def without_n(self: Any, model: Any, likelihood: Any, batches: Any, dataset_size: int, generator: Any) -> Any:
        return original(self, model, likelihood, batches, 1, generator)

    with monkeypatch.context() as planted:
        planted.setattr(LaplaceApproximation, "finish", without_n)
        with pytest.raises(AssertionError):
            assert_exact(regression(0.37, "full"), 0.37)
    with monkeypatch.context() as planted:
        planted.setattr(f"{module}._prior_precision", lambda model: model.prior.std_vector().double() ** 2)
        with pytest.raises(AssertionError):
            assert_exact(regression(0.37, "full"), 0.37)


# Generalised linear models: the Gauss-Newton matrix is the Hessian.


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_full_is_the_inverse_hessian_of_logistic_regression(name: str) -> None:
    generator = bw.make_generator(5)
    classes = 1 if name == "bernoulli" else 3
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(0, max(classes, 2), (60,), generator=generator)
    model = bw.bayesian(nn.Linear(2, classes).double(), "delta", bw.Normal(1.7))
    objective = bw.ELBO(name, 60)
    to_the_optimum(model, objective, x, y)

    def negative_log_joint(weights: Tensor) -> Tensor:
        outputs = model.call(model.layout.unflatten(weights), x)
        return objective.likelihood.nll(outputs, y).sum() - model.prior.log_prob(weights)

    truth = torch.linalg.inv(hessian(negative_log_joint, model.posterior.mean_vector().detach()))
    finished = finish(model, objective.likelihood, x, y, structure="full")
    torch.testing.assert_close(covariance_of(finished.posterior), truth, rtol=1e-5, atol=1e-9)
    diagonal = finish(model, objective.likelihood, x, y, structure="diagonal")
    precision = torch.linalg.inv(truth).diagonal()
    torch.testing.assert_close(diagonal.posterior.std_vector().detach(), precision**-0.5)


# Networks: slow formulas with explicit Jacobians.


def small_net(seed: int = 3, outputs: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()


def softmax_curvature(outputs: Tensor) -> Tensor:
    p = outputs.softmax(-1)
    return torch.diag(p) - torch.outer(p, p)


def per_input_curvature(outputs: Tensor) -> Tensor:
    """Fisher information of (mean, log_std)."""
    mean, log_std = outputs.chunk(2)
    return torch.cat([(-2 * log_std).exp(), torch.full_like(mean, 2.0)]).diag()


LIKELIHOODS: dict[str, tuple[Any, Callable[[Tensor], Tensor], int, Callable[[int], Tensor]]] = {
    "categorical": (bw.Categorical(), softmax_curvature, 3, lambda n: torch.randint(0, 3, (n,))),
    "bernoulli": (
        bw.Bernoulli(),
        lambda f: (f.sigmoid() * (1 - f.sigmoid())).diag(),
        3,
        lambda n: torch.randint(0, 2, (n, 3)),
    ),
    "known noise": (bw.Gaussian("known", 0.6), lambda f: eye(len(f)) / 0.36, 3, lambda n: torch.randn(n, 3)),
    "noise per input": (bw.Gaussian("per_input"), per_input_curvature, 4, lambda n: torch.randn(n, 2)),
}


def slow_ggn(model: bw.BayesianModule, x: Tensor, curvature: Callable[[Tensor], Tensor]) -> Tensor:
    """sum_n J_n' H_n J_n."""
    total = torch.zeros(model.layout.size, model.layout.size, dtype=torch.float64)
    weights = model.posterior.mean_vector().detach()
    for index in range(len(x)):

        def outputs(flat: Tensor, index: int = index) -> Tensor:
            found: Tensor = model.call(model.layout.unflatten(flat), x[index : index + 1])[0]
            return found

        slope = jacobian(outputs, weights)
        total += slope.T @ curvature(outputs(weights)).double() @ slope
    return total


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_networks_agree_with_the_slow_formula(name: str) -> None:
    likelihood, curvature, outputs, targets = LIKELIHOODS[name]
    model = bw.bayesian(small_net(outputs=outputs), "delta", {"0.*": bw.Normal(1.4), "2.*": bw.Normal(0.5)})
    x, y = torch.randn(11, 3, dtype=torch.float64), targets(11)
    prior_precision = model.prior.std_vector() ** -2
    # 40 data, of which the batches show 11; temperature 0.3.
    precision = 40 / 0.3 * slow_ggn(model, x, curvature) / 11 + prior_precision.diag()
    full = finish(model, likelihood, x, y, structure="full", temperature=0.3, dataset_size=40)
    torch.testing.assert_close(covariance_of(full.posterior), torch.linalg.inv(precision), rtol=1e-8, atol=1e-11)
    diagonal = finish(model, likelihood, x, y, structure="diagonal", temperature=0.3, dataset_size=40)
    torch.testing.assert_close(diagonal.posterior.std_vector().detach(), precision.diagonal() ** -0.5)
    kronecker = finish(model, likelihood, x, y, structure="kronecker", temperature=0.3, dataset_size=40)
    for site in ("0.bias", "2.bias"):
        part = model.layout.slices[site]
        torch.testing.assert_close(
            kronecker.posterior.std_vector().detach()[part], precision.diagonal()[part] ** -0.5, rtol=1e-8, atol=0
        )


@pytest.mark.parametrize("balanced", [True, False])
def test_kronecker_factors_agree_with_the_slow_formula(balanced: bool) -> None:
    """Inputs and gradients of both layers by hand; the prior enters through both factors."""
    model = bw.bayesian(small_net(), "delta", {"0.*": bw.Normal(1.4), "2.*": bw.Normal(0.5)})
    x, y = torch.randn(9, 3, dtype=torch.float64), torch.randint(0, 3, (9,))
    weights = model.layout.unflatten(model.posterior.mean_vector().detach())
    hidden = torch.tanh(x @ weights["0.weight"].T + weights["0.bias"])
    outputs = hidden @ weights["2.weight"].T + weights["2.bias"]
    back = weights["2.weight"] * (1 - hidden**2)[:, None, :]  # d outputs / d first layer's outputs, by example
    curvature = torch.stack([softmax_curvature(row) for row in outputs])
    slow = {
        "0.weight": (torch.einsum("nki,nkl,nlj->ij", back, curvature, back) / 9, x.T @ x / 9, 1.4),
        "2.weight": (curvature.mean(0), hidden.T @ hidden / 9, 0.5),
    }
    damping = "balanced" if balanced else "plain"
    finished = finish(model, bw.Categorical(), x, y, structure="kronecker", temperature=0.3, damping=damping, size=4)
    covariance = covariance_of(finished.posterior)
    for name, (gradients, inputs, prior_std) in slow.items():
        b = ((inputs.trace() / len(inputs)) / (gradients.trace() / len(gradients))).sqrt() if balanced else 1.0
        root = (9 / 0.3) ** 0.5
        rows = root * gradients + eye(len(gradients)) / (prior_std * b)
        columns = root * inputs + eye(len(inputs)) * b / prior_std
        part = model.layout.slices[name]
        truth = torch.linalg.inv(torch.kron(rows, columns))
        torch.testing.assert_close(covariance[part, part], truth, rtol=1e-8, atol=1e-12)


def test_kronecker_is_exact_on_a_linear_layer_with_gaussian_noise() -> None:
    """F = 1/noise^2 I (x) mean(x x'): exact but for the prior, and never above the exact covariance."""
    torch.manual_seed(1)
    x, y = torch.randn(30, 3, dtype=torch.float64) @ torch.randn(3, 3).double(), torch.randn(30, 2).double()
    likelihood = bw.Gaussian("known", 0.6)
    for prior_std, tolerance in ((1e5, 1e-3), (0.4, None)):
        model = bw.bayesian(nn.Linear(3, 2, bias=False).double(), "delta", bw.Normal(prior_std))
        exact = covariance_of(finish(model, likelihood, x, y, structure="full").posterior)
        data = torch.kron(eye(2) / 0.36, x.T @ x)
        torch.testing.assert_close(exact, torch.linalg.inv(data + eye(6) / prior_std**2))
        found = covariance_of(finish(model, likelihood, x, y, structure="kronecker").posterior)
        if tolerance is not None:
            assert float((found - exact).abs().max() / exact.abs().max()) < tolerance
        else:
            assert float(torch.linalg.eigvalsh(exact - found).min()) > 1e-4, "precision is overestimated, not less"


@pytest.mark.parametrize("name", [name for name in LAYERS if "grouped" not in name and name != "transposed conv1d"])
def test_patches_are_what_the_weights_are_multiplied_with(name: str) -> None:
    kind = LAYERS[name]
    torch.manual_seed(2)
    model = bw.bayesian(kind.make().double(), "delta")
    (layer,) = model.linear_layers.values()
    site = model.layout.sites[0]
    weight = model.layout.unflatten(model.posterior.mean_vector().detach())["weight"]
    curvature = LayerCurvature(layer, site, weight)
    x = kind.inputs()
    outputs = layer.op(x, weight, None)
    places = curvature._patches(x)
    torch.testing.assert_close(places @ site.to_matrix(weight).T, curvature._by_place(outputs))


def test_kronecker_factors_of_a_convolution() -> None:
    """Sums over places by hand, with torch's unfold, of a convolution that is followed by an in-place activation."""
    torch.manual_seed(4)
    convolution, head = nn.Conv2d(2, 3, 2, stride=2, padding=1), nn.Linear(12, 2)
    x, y = torch.randn(5, 2, 3, 2, dtype=torch.float64), torch.randint(0, 2, (5,))
    for in_place in (False, True):
        net = nn.Sequential(convolution, nn.ReLU(inplace=in_place), nn.Flatten(), head).double()
        model = bw.bayesian(net, "delta", bw.Normal(0.8))
        patches = nn.functional.unfold(x, 2, padding=1, stride=2).transpose(1, 2).reshape(-1, 8)
        before = convolution(x).detach().requires_grad_()
        outputs = head(before.relu().flatten(1))
        gradients = torch.zeros(3, 3, dtype=torch.float64)
        for column in curvature_columns(bw.Categorical(), outputs, y, None, None):
            (slope,) = torch.autograd.grad(outputs, before, column, retain_graph=True)
            by_place = slope.movedim(1, -1).reshape(-1, 3)
            gradients += by_place.T @ by_place
        rows = 5**0.5 * gradients / len(patches) + eye(3) / 0.8
        columns = 5**0.5 * patches.T @ patches / 5 + eye(8) / 0.8
        found = finish(model, bw.Categorical(), x, y, structure="kronecker", damping="plain", size=3)
        truth = torch.linalg.inv(torch.kron(rows, columns))
        covariance = covariance_of(found.posterior)[:24, :24]
        torch.testing.assert_close(covariance, truth, rtol=1e-8, atol=1e-12)


# The same whatever the batches, the chunks and the way through the network.


@pytest.mark.parametrize("structure", STRUCTURES)
def test_batches_and_chunks_do_not_matter(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bw.bayesian(small_net(), "delta", bw.Normal(0.7))
    x, y = torch.randn(13, 3, dtype=torch.float64), torch.randint(0, 3, (13,))
    whole = covariance_of(finish(model, bw.Categorical(), x, y, structure=structure, size=13).posterior)
    for size in (1, 4):
        part = covariance_of(finish(model, bw.Categorical(), x, y, structure=structure, size=size).posterior)
        torch.testing.assert_close(part, whole, rtol=1e-10, atol=1e-14)
    for numbers in (1, 70, 200):
        monkeypatch.setattr(examples, "CHUNK_NUMBERS", numbers)
        part = covariance_of(finish(model, bw.Categorical(), x, y, structure=structure, size=6).posterior)
        torch.testing.assert_close(part, whole, rtol=1e-10, atol=1e-14)


class Fussy(nn.Module):
    """Looks at a value, which vmap does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_net()

    def forward(self, x: Tensor) -> Tensor:
        if float(x.detach().sum()) > 1e9:
            raise ValueError("never")
        outputs: Tensor = self.inner(x)
        return outputs


def test_networks_that_vmap_cannot_take() -> None:
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randint(0, 3, (5,))
    plain = finish(bw.bayesian(small_net(), "delta"), bw.Categorical(), x, y, structure="full")
    fussy = finish(bw.bayesian(Fussy(), "delta"), bw.Categorical(), x, y, structure="full")
    torch.testing.assert_close(covariance_of(fussy.posterior), covariance_of(plain.posterior))


def test_recurrent_networks_and_embeddings() -> None:
    torch.manual_seed(0)
    model = bw.bayesian(Recurrent(nn.GRU).double(), "delta", bw.Normal(0.7))
    x, y = torch.randint(0, 11, (4, 6)), torch.randint(0, 3, (4,))
    weights = model.posterior.mean_vector().detach()
    precision = slow_ggn(model, x, softmax_curvature).diagonal() + 0.7**-2
    found = finish(model, bw.Categorical(), x, y, structure="diagonal")
    torch.testing.assert_close(found.posterior.std_vector().detach(), precision**-0.5)
    torch.testing.assert_close(found.posterior.mean_vector().detach(), weights)
    with pytest.raises(CompositionError, match=r"no factors for 'embedding.weight', which is not linear in its layer"):
        finish(model, bw.Categorical(), x, y, structure="kronecker")


class Tied(nn.Module):
    """One parameter under two names, and inputs given as two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        outputs: Tensor = self.second(torch.tanh(self.first(left)) + right)
        return outputs


def test_tied_weights_and_several_inputs() -> None:
    torch.manual_seed(0)
    model = bw.bayesian(Tied().double(), "delta", bw.Normal(0.7))
    left, right = torch.randn(2, 4, 3, dtype=torch.float64)
    y = torch.randint(0, 3, (4,))
    weights = model.posterior.mean_vector().detach()
    total = torch.zeros(model.layout.size, model.layout.size, dtype=torch.float64)
    for index in range(4):

        def outputs(flat: Tensor, index: int = index) -> Tensor:
            pair = (left[index : index + 1], right[index : index + 1])
            found: Tensor = model.call(model.layout.unflatten(flat), pair)[0]
            return found

        slope = jacobian(outputs, weights)
        total += slope.T @ softmax_curvature(outputs(weights)) @ slope
    batches = [((left[:3], right[:3]), y[:3]), ({"left": left[3:], "right": right[3:]}, y[3:])]
    _, posterior = LaplaceApproximation("full").finish(model, bw.Categorical(), batches, 4)
    truth = torch.linalg.inv(total + eye(len(weights)) / 0.49)
    torch.testing.assert_close(covariance_of(posterior), truth)
    with pytest.raises(CompositionError, match="shared by several layers"):
        LaplaceApproximation("kronecker").check(model)


def test_layers_that_are_never_used_keep_their_prior() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.used(x)
            return outputs

    model = bw.bayesian(Idle(), "delta", bw.Normal(0.7))
    x, y = torch.randn(5, 3), torch.randint(0, 2, (5,))
    for structure in STRUCTURES:
        std = finish(model, bw.Categorical(), x, y, structure=structure).posterior.std_vector().detach()
        torch.testing.assert_close(std[8:], torch.full((6,), 0.7))
        assert float(std[:8].max()) < 0.65


# Curvature of the outputs.


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_output_curvature_exact_and_sampled(name: str) -> None:
    """Sampled columns: each entry of the mean of 20,000 products within its z-limit, false failures 1e-6 in all."""
    likelihood, curvature, size, targets = LIKELIHOODS[name]
    outputs, y = 0.8 * torch.randn(2, size, dtype=torch.float64), targets(2)
    exact = curvature_columns(likelihood, outputs, y, None, None)
    for index in range(2):
        found = exact[:, index].T @ exact[:, index]
        torch.testing.assert_close(found, curvature(outputs[index]).double())
    draws, copies = 20_000, 500  # of the two examples beside one another: 40 calls for all draws
    beside = curvature_columns(
        likelihood, outputs.repeat(copies, 1), targets(2 * copies), draws // copies, bw.make_generator(1)
    )
    sampled = beside.reshape(draws, *outputs.shape) * (draws // copies) ** 0.5
    products = torch.einsum("dni,dnj->dnij", sampled, sampled)
    z = stats.norm.isf(1e-6 / (2 * products[0].numel()))
    truth = torch.stack([curvature(row).double() for row in outputs])
    error = (products.mean(0) - truth).abs()
    assert bool((error <= z * products.std(0) / draws**0.5 + 1e-12).all())


def test_many_outputs_are_sampled_and_said_to_be() -> None:
    model = bw.bayesian(nn.Linear(2, 101), "delta")
    x, y = torch.randn(6, 2), torch.randint(0, 101, (6,))
    with pytest.warns(bw.BayeswellWarning, match="101 outputs"):
        finish(model, bw.Categorical(), x, y, structure="diagonal")


def test_draws_give_an_unbiased_curvature() -> None:
    """The mean over 200 seeds of F at 2 draws is the exact F: largest |z| of 38 below 5.5 (false failures 1.4e-6)."""
    model = bw.bayesian(small_net(), "delta", bw.Normal(0.7))
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(0, 3, (6,))

    def curvature(draws: int | None, seed: int) -> Tensor:
        part = LaplaceApproximation("diagonal", draws=draws)
        _, posterior = part.finish(model, bw.Categorical(), [(x, y)], 6, bw.make_generator(seed))
        return posterior.std_vector().detach() ** -2 - 0.7**-2

    found = torch.stack([curvature(2, seed) for seed in range(200)])
    z = (found.mean(0) - curvature(None, 0)) / (found.std(0) / 200**0.5)
    assert float(z.abs().max()) < 5.5


# What surrounds it.


@pytest.mark.parametrize("structure", STRUCTURES)
def test_last_layer_saving_and_an_untouched_model(structure: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.4), nn.Linear(6, 2))
    net(torch.randn(20, 3))
    model = bw.bayesian(net, "delta", bw.Normal(0.7), where="last_layer").train()
    before = copy.deepcopy(model.state_dict())
    x, y = torch.randn(9, 3), torch.randint(0, 2, (9,))
    finished = finish(model, bw.Categorical(), x, y, structure=structure)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.net.modules())
    assert not any(module._forward_hooks for module in model.net.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert finished.posterior.layout.size == 14
    # At the features of the network in evaluation mode this is logistic regression.
    features = nn.Sequential(*net[:-1]).eval()(x).detach()
    head = bw.bayesian(copy.deepcopy(net[-1]), "delta", bw.Normal(0.7))
    alone = finish(head, bw.Categorical(), features, y, structure=structure)
    torch.testing.assert_close(covariance_of(finished.posterior), covariance_of(alone.posterior))
    predicted = bw.predict(finished, x, bw.Categorical(), draws=20, seed=1).probabilities
    bw.save(tmp_path / "model", finished, "categorical")
    loaded = bw.load(tmp_path / "model", net).model
    assert torch.equal(bw.predict(loaded, x, bw.Categorical(), draws=20, seed=1).probabilities, predicted)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"structure": "diag"}, "did you mean 'diagonal'"),
        ({"damping": "none"}, "damping = 'none'"),
        ({"temperature": 0.0}, "temperature = 0.0"),
        ({"draws": 0}, "draws = 0"),
        ({"max_weights": -1}, "max_weights = -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        POST_HOC.resolve({"name": "laplace", **settings})


def test_models_that_cannot_be_finished_are_refused() -> None:
    x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
    net = nn.Linear(3, 2)
    with pytest.raises(CompositionError, match="posterior 'mean_field' is not"):
        finish(bw.bayesian(net), bw.Categorical(), x, y)
    with pytest.raises(CompositionError, match="Gaussian prior"):
        finish(bw.bayesian(net, "delta", bw.LaplacePrior(0.4)), bw.Categorical(), x, y)
    with pytest.raises(SettingError, match=r"3,000,000 weights takes 72,000\.0 GB"):
        LaplaceApproximation("full").check(bw.bayesian(nn.Linear(3000, 1000, bias=False), "delta"))
    grouped = bw.bayesian(nn.Conv2d(4, 4, 2, groups=2), "delta")
    with pytest.raises(CompositionError, match="grouped convolution"):
        LaplaceApproximation("kronecker").check(grouped)
    with pytest.raises(CompositionError, match="6001x1, above 5000"):
        LaplaceApproximation("kronecker").check(bw.bayesian(nn.Linear(1, 6001), "delta"))
    with pytest.raises(CompositionError, match="no Bayesian weight matrix"):
        LaplaceApproximation("kronecker").check(bw.bayesian(net, "delta", where="bias"))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_data_that_cannot_be_used_are_refused(structure: str) -> None:
    model = bw.bayesian(nn.Linear(3, 2), "delta")
    part = LaplaceApproximation(structure)
    x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
    with pytest.raises(DataError, match="batches are empty"):
        part.finish(model, bw.Categorical(), [], 4)
    with pytest.raises(SettingError, match="dataset_size = 0"):
        part.finish(model, bw.Categorical(), [(x, y)], 0)
    with pytest.raises(DataError, match="labels must lie in 0 to 1"):
        part.finish(model, bw.Categorical(), [(x, y + 7)], 4)
    with pytest.raises(NetworkError, match="outputs hold NaN or inf"):
        part.finish(model, bw.Categorical(), [(x * float("inf"), y)], 4)


def test_a_precision_that_is_not_positive_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bw.bayesian(nn.Linear(3, 2), "delta")
    x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
    monkeypatch.setattr("bayeswell.post_hoc.structures._prior_precision", lambda model: torch.full((8,), -3.0).double())
    with pytest.raises(NetworkError, match="the precision of the network is not positive definite"):
        finish(model, bw.Categorical(), x, y, structure="full")
