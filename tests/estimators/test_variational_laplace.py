"""Variational Laplace: exact for linear regression, unbiased for the Fisher, and honest about its gradients.

The penalty is quadratic in its noise, so averaging it over noise vectors with mean 0 and covariance exactly I
(the rows of a Hadamard matrix) gives its expectation exactly; sampled labels are enumerated. What is exact in
this sense is then also asked of the real random numbers, by z-test.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize
from scipy.linalg import hadamard
from torch import Tensor, nn
from torch.func import functional_call

import bayeswell as bw
from bayeswell.types import Step
from linear_models import (
    assert_reaches,
    lift,
    mean_of,
    objective,
    set_mean_and_std,
    std_of,
    train_exactly,
    train_stochastically,
)
from truths.linear_regression import LinearRegression
from truths.statistics import assert_mean_close

CURVATURES = ["fisher_labels", "fisher_reparameterised", "hessian"]
FISHERS = CURVATURES[:2]
REGRESSION = LinearRegression.make(3, count=7, dimension=3)
NOISE = {
    "fisher_labels": "bayeswell.likelihoods.gaussian.standard_normal",
    "fisher_reparameterised": "bayeswell.likelihoods.gaussian.random_signs",
    "hessian": "bayeswell.estimators.variational_laplace.random_signs",
}


def laplace(curvature: str, **settings: Any) -> bw.VariationalLaplace:
    return bw.VariationalLaplace(curvature=curvature, **settings)


@contextmanager
def noise_replaced(target: str, rows: Tensor) -> Iterator[None]:
    """Within the block the named noise function returns the rows in turn, reshaped."""
    turn = itertools.cycle(rows)

    def scripted(shape: Any, *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return next(turn).reshape(tuple(shape)).to(like)

    patch = pytest.MonkeyPatch()
    patch.setattr(target, scripted)
    try:
        yield
    finally:
        patch.undo()


def orthogonal_signs(size: int) -> Tensor:
    """Rows of signs whose average is exactly zero, and whose average outer product exactly the identity."""
    order = 1 << size.bit_length()
    # The first column is all ones; every other one sums to zero.
    return torch.from_numpy(hadamard(order)[:, 1 : size + 1].astype(np.float64))


def exact_average(curvature: str, size: int, call: Callable[[], Tensor]) -> Tensor:
    """The expectation of `call` over the penalty's noise (of `size` numbers)."""
    rows = orthogonal_signs(size)
    with noise_replaced(NOISE[curvature], rows):
        return torch.stack([call() for _ in rows]).mean(0)


def regression_model(curvature: str, posterior: Any = "mean_field", copies: int = 1) -> tuple[bw.BayesianModule, int]:
    """The model, and how many numbers of noise its penalty takes (for each copy)."""
    with pytest.warns(bw.BayeswellWarning) if curvature == "hessian" else _nothing():
        model = lift(REGRESSION, posterior, laplace(curvature), nn.Linear(3, copies, bias=False))
    return model, 3 if curvature == "hessian" else len(REGRESSION.y)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


# Linear regression: the objective is the ELBO itself.


def check_equals_the_elbo(curvature: str = "fisher_labels", temperature: float = 0.6) -> None:
    """Value and gradient at generic (mean, std), averaged exactly over the noise: 1e-10, and 1e-6 (differences)."""
    model, size = regression_model(curvature)
    mean, std = np.array([0.5, -0.9, 0.2]), np.array([0.3, 0.9, 0.14])
    set_mean_and_std(model, mean, std)
    x, y = REGRESSION.tensors()
    elbo = objective(REGRESSION, temperature=temperature)
    value = exact_average(curvature, size, lambda: elbo(model, x, y).elbo)
    assert value.item() == pytest.approx(REGRESSION.elbo(mean, std), rel=1e-10)
    total = exact_average(curvature, size, lambda: elbo(model, x, y).total)
    assert -len(y) * total.item() == pytest.approx(REGRESSION.elbo(mean, std, temperature), rel=1e-10)
    found = torch.cat(torch.autograd.grad(total, [model.posterior.mean, model.posterior.log_std]))
    point = np.concatenate([mean, np.log(std)])
    truth = optimize.approx_fprime(point, lambda p: -REGRESSION.elbo(p[:3], np.exp(p[3:]), temperature) / len(y), 1e-6)
    np.testing.assert_allclose(found.numpy(), truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("curvature", CURVATURES)
def test_equals_the_elbo_of_linear_regression(curvature: str) -> None:
    check_equals_the_elbo(curvature)


def check_equals_the_elbo_with_its_own_noise(curvature: str = "fisher_labels") -> None:
    """The mean of 6,000 reported ELBOs: rate 1e-6. Each call has 50 of them, as its outputs are regressions apart."""
    copies, calls = 50, 120
    model, _ = regression_model(curvature, copies=copies)
    mean, std = np.array([0.5, -0.9, 0.2]), np.array([0.3, 0.9, 0.14])
    set_mean_and_std(model, np.tile(mean, copies), np.tile(std, copies))
    x, y = REGRESSION.tensors()
    targets = y.reshape(-1, 1).expand(-1, copies)
    elbo = objective(REGRESSION, check=False)
    generator = bw.make_generator(1)
    with torch.no_grad():
        values = [float(elbo(model, x, targets, generator=generator).elbo) / copies for _ in range(calls)]
    assert_mean_close(np.array(values), np.array(REGRESSION.elbo(mean, std)))


@pytest.mark.parametrize("curvature", CURVATURES)
def test_equals_the_elbo_with_its_own_noise(curvature: str) -> None:
    check_equals_the_elbo_with_its_own_noise(curvature)


@pytest.mark.parametrize(
    ("curvature", "slope"), [("fisher_reparameterised", -2), ("hessian", -2), ("fisher_labels", -4)]
)
def test_gradient_with_respect_to_learned_noise(curvature: str, slope: int) -> None:
    """The penalty goes as noise_std^-2, so its slope in log noise_std is -2 penalties.

    Labels that are sampled and held fixed double it: g = J'(sampled residual) / noise_std^2 with the residual
    constant. With learned noise 'fisher_labels' therefore settles at another noise than the ELBO's.
    """
    model, size = regression_model(curvature)
    mean, std = np.array([0.5, -0.9, 0.2]), np.array([0.3, 0.9, 0.14])
    set_mean_and_std(model, mean, std)
    x, y = REGRESSION.tensors()
    likelihood = bw.Gaussian("learned", REGRESSION.noise_std).double()
    elbo = bw.ELBO(likelihood, len(y))
    total = exact_average(curvature, size, lambda: elbo(model, x, y).total)
    (found,) = torch.autograd.grad(total, likelihood.log_std)
    residual = y.numpy() - REGRESSION.X @ mean
    at_the_mean = 1 - (residual**2).mean() / REGRESSION.noise_std**2
    half_trace = 0.5 * ((REGRESSION.X * std) ** 2).sum(1).mean() / REGRESSION.noise_std**2
    assert found.item() == pytest.approx(at_the_mean + slope * half_trace, rel=1e-5)


@pytest.mark.parametrize(
    ("curvature", "temperature", "posterior"),
    [
        ("fisher_labels", 0.37, "mean_field"),
        ("fisher_reparameterised", 1.0, bw.MeanField(parameter="rho")),
        ("hessian", 1.9, "mean_field"),
        ("fisher_labels", 1.0, bw.KTied(rank=1)),
    ],
    ids=str,
)
def test_training_reaches_the_mean_field_optimum(curvature: str, temperature: float, posterior: Any) -> None:
    """1e-3 posterior stds, 0.1 % and 1e-4 nat: averaged over exact noise, only L-BFGS's stopping rule is left."""
    model, size = regression_model(curvature, posterior)
    x, y = REGRESSION.tensors()
    elbo = objective(REGRESSION, temperature=temperature, check=False)
    train_exactly(model, lambda: exact_average(curvature, size, lambda: elbo(model, x, y).total), iterations=100)
    assert_reaches(model, REGRESSION.mean(temperature), REGRESSION.mean_field_std(temperature), 1e-3, 1e-3)
    reported = exact_average(curvature, size, lambda: elbo(model, x, y).elbo).item()
    assert reported == pytest.approx(REGRESSION.elbo(mean_of(model), std_of(model)), abs=1e-8)
    assert reported < REGRESSION.log_evidence
    if temperature == 1.0:
        assert reported == pytest.approx(REGRESSION.mean_field_elbo(), abs=1e-4)


@pytest.mark.parametrize(("curvature", "mean_tolerance"), [("fisher_labels", 0.35), ("fisher_reparameterised", 0.02)])
def test_stochastic_training_reaches_the_mean_field_optimum(curvature: str, mean_tolerance: float) -> None:
    """ELBO within 0.1 nat, stds within four times their scatter: one step's Fisher has a relative std of sqrt 2.

    Sampled labels also put noise (of mean zero) on the gradient of the means; reparameterised curvature of a
    linear model does not depend on them at all. A model of 16 outputs is 16 trainings at once, whose average has less
    scatter after fewer steps; means begin three posterior stds away.
    """
    problem = LinearRegression.make(3, count=60, mixing=0.5)
    mean, std = problem.mean(), problem.mean_field_std()
    trainings = 16
    x, y = problem.tensors()
    targets = y.reshape(-1, 1).expand(-1, trainings)
    model = lift(problem, "mean_field", laplace(curvature), nn.Linear(len(mean), trainings, bias=False))
    with torch.no_grad():
        model.posterior.mean.copy_(torch.from_numpy(np.tile(mean + 3 * std * np.array([1, -1, 1, 1, -1]), trainings)))
    elbo = objective(problem, check=False)
    train_stochastically(model, lambda step: elbo(model, x, targets).total, warm_steps=60, steps=210)
    reached = lift(problem, "mean_field", laplace(curvature))
    set_mean_and_std(reached, *(found.reshape(trainings, -1).mean(0) for found in (mean_of(model), std_of(model))))
    attained = problem.elbo(mean_of(reached), std_of(reached))
    assert problem.mean_field_elbo() - 0.1 < attained <= problem.mean_field_elbo() + 1e-9
    assert_reaches(reached, mean, std, mean_tolerance, 0.2)


# A classifier: the Fisher and its derivatives.


class ScriptedLabels(bw.Categorical):
    """A categorical likelihood whose sampled labels are given."""

    labels: Tensor

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.labels


def classifier(
    curvature: str, net: nn.Module | None = None, **settings: Any
) -> tuple[bw.BayesianModule, Tensor, Tensor]:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)) if net is None else net
    with pytest.warns(bw.BayeswellWarning) if curvature == "hessian" else _nothing():
        model = bw.bayesian(net.double(), "mean_field", bw.Normal(0.7), laplace(curvature, **settings))
    with torch.no_grad():
        model.posterior.mean.mul_(2)
        model.posterior.log_std.add_(torch.randn_like(model.posterior.log_std))
    x = torch.randn(3, 2, dtype=torch.float64) * 1.5
    return model, x, torch.tensor([2, 0, 1])


class Copies(nn.Module):
    """So many networks like one, each with weights of its own; their outputs for a batch one below the other."""

    def __init__(self, net: nn.Module, count: int) -> None:
        super().__init__()
        self.one = [net]  # in a list: its own weights are not used
        self.weights = nn.ParameterList([torch.stack([value.detach()] * count) for value in net.parameters()])

    def forward(self, x: Tensor) -> Tensor:
        (net,) = self.one
        given = dict(zip(dict(net.named_parameters()), self.weights, strict=True))
        return torch.vmap(lambda weights: functional_call(net, weights, x))(given).flatten(0, 1)


def copies_of(
    curvature: str, net: nn.Module, count: int
) -> tuple[bw.BayesianModule, bw.BayesianModule, Tensor, Tensor]:
    """A classifier, and so many of it in one model, with inputs of the one and targets of the other.

    What the penalty of all has of one network is that network's own, divided by their number: each has noise of
    its own, so that one call gives as many draws.
    """
    model, x, y = classifier(curvature, net)
    many = bw.bayesian(Copies(net, count).double(), "mean_field", bw.Normal(0.7), laplace(curvature))
    with torch.no_grad():
        for name in ("mean", "log_std"):
            parts = getattr(model.posterior, name).split([site.size for site in model.layout.sites])
            getattr(many.posterior, name).copy_(torch.cat([part.repeat(count) for part in parts]))
    return model, many, x, y.repeat(count)


def outputs_at(model: bw.BayesianModule, x: Tensor, mean: Tensor) -> Tensor:
    return model.call(model.layout.unflatten(mean), x)


def fisher_diagonal(model: bw.BayesianModule, x: Tensor, mean: Tensor, frozen_at: Tensor | None = None) -> Tensor:
    """sum_n diag(J_n' C_n J_n), C = diag(p) - p p', by brute force; with `frozen_at` C is taken there."""
    jacobian = torch.func.jacrev(lambda m: outputs_at(model, x, m))(mean)
    p = outputs_at(model, x, mean if frozen_at is None else frozen_at).softmax(1)
    covariance = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.einsum("nkl,nkj,njl->l", jacobian, covariance, jacobian)


def penalty(model: bw.BayesianModule, x: Tensor, y: Tensor, likelihood: Any, **named: Any) -> Tensor:
    """What the estimator adds to the NLL at the mean."""
    estimate = model.estimator.expected_nll(
        model, None, Step(x, y, likelihood, named.get("generator"), named.get("at"))
    )
    mean = model.posterior.mean_vector()
    return estimate.nll - likelihood.nll(outputs_at(model, x, mean), y).mean()


def expected_penalty(model: bw.BayesianModule, x: Tensor, y: Tensor, curvature: str) -> Tensor:
    """The penalty's expectation over sampled labels (frozen probabilities) or signs, with its graph."""
    if curvature == "fisher_reparameterised":
        rows = orthogonal_signs(x.shape[0] * 3)
        with noise_replaced("bayeswell.likelihoods.categorical.random_signs", rows):
            return torch.stack([penalty(model, x, y, bw.Categorical()) for _ in rows]).mean()
    probabilities = outputs_at(model, x, model.posterior.mean.detach()).softmax(1)
    likelihood = ScriptedLabels()
    total = torch.zeros((), dtype=torch.float64)
    for labels in itertools.product(range(3), repeat=len(x)):
        likelihood.labels = torch.tensor(labels)
        chance = probabilities[torch.arange(len(x)), likelihood.labels].prod()
        total = total + chance * penalty(model, x, y, likelihood)
    return total


def check_penalty_is_the_fisher(curvature: str) -> None:
    """Weight by weight: d penalty / d log std_l = std_l^2 F_l / S, and the penalty is half their sum."""
    model, x, y = classifier(curvature)
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()
    truth = std.square() * fisher_diagonal(model, x, mean) / len(x)
    expected = expected_penalty(model, x, y, curvature)
    assert expected.item() == pytest.approx(0.5 * truth.sum().item(), rel=1e-10)
    (found,) = torch.autograd.grad(expected, model.posterior.log_std)
    np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("curvature", FISHERS)
def test_penalty_is_the_fisher_in_expectation(curvature: str) -> None:
    check_penalty_is_the_fisher(curvature)


def check_sampled_square_is_unbiased(curvature: str, draws: int = 2000) -> None:
    """The same with real random numbers: std^2 g^2 / S for every weight, rate 1e-6."""
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3))
    model, many, x, y = copies_of(curvature, net, draws)
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()
    truth = std.square() * fisher_diagonal(model, x, mean) / len(x)
    value = draws * penalty(many, x, y, bw.Categorical(), generator=bw.make_generator(4))
    (found,) = torch.autograd.grad(value, many.posterior.log_std)
    sites = found.split([site.size for site in many.layout.sites])
    assert_mean_close(torch.cat([site.view(draws, -1) for site in sites], dim=1), truth)


@pytest.mark.parametrize("curvature", FISHERS)
def test_sampled_square_is_unbiased(curvature: str) -> None:
    check_sampled_square_is_unbiased(curvature)


def exact_penalty_gradients(model: bw.BayesianModule, x: Tensor) -> tuple[Tensor, Tensor]:
    """d/dmean of sum_l std_l^2 F_l / (2 S): the whole derivative, and with the output covariance frozen."""
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()

    def value(m: Tensor, frozen: bool) -> Tensor:
        fisher = fisher_diagonal(model, x, m, mean if frozen else None)
        return 0.5 * (std.square() * fisher).sum() / len(x)

    whole, frozen = (torch.func.grad(lambda m, f=f: value(m, f))(mean) for f in (False, True))
    assert float((whole - frozen).norm() / whole.norm()) > 0.2, "the two must differ for the test to mean anything"
    return whole, frozen


def test_reparameterised_mean_gradient_is_that_of_the_fisher() -> None:
    model, x, y = classifier("fisher_reparameterised")
    whole, _ = exact_penalty_gradients(model, x)
    (found,) = torch.autograd.grad(expected_penalty(model, x, y, "fisher_reparameterised"), model.posterior.mean)
    np.testing.assert_allclose(found, whole, rtol=1e-8, atol=1e-12)


def test_sampled_label_mean_gradient_freezes_the_output_covariance() -> None:
    """Known of the paper's form: the term through the probabilities' own change is lost."""
    model, x, y = classifier("fisher_labels")
    whole, frozen = exact_penalty_gradients(model, x)
    (found,) = torch.autograd.grad(expected_penalty(model, x, y, "fisher_labels"), model.posterior.mean)
    np.testing.assert_allclose(found, frozen, rtol=1e-8, atol=1e-12)
    assert float((found - whole).norm()) > 0.1 * float(whole.norm())


def test_sampled_labels_put_no_pressure_on_the_mean_of_a_linear_classifier() -> None:
    """Softmax regression: zero in expectation, while the Fisher's own gradient is not; 'reparameterised' has it."""
    gradients = {}
    for curvature in FISHERS:
        model, x, y = classifier(curvature, nn.Linear(2, 3))
        (gradients[curvature],) = torch.autograd.grad(expected_penalty(model, x, y, curvature), model.posterior.mean)
    whole, frozen = exact_penalty_gradients(model, x)
    assert float(whole.norm()) > 1e-3
    assert float(frozen.norm()) < 1e-12
    assert float(gradients["fisher_labels"].norm()) < 1e-12
    np.testing.assert_allclose(gradients["fisher_reparameterised"], whole, rtol=1e-8, atol=1e-12)


def test_hessian_penalty_is_the_hessian_trace() -> None:
    """Averaged over signs: sum_l std_l^2 H_l / 2 of the mean NLL at the true labels, and its gradient."""
    model, x, y = classifier("hessian")
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()

    def trace(m: Tensor) -> Tensor:
        hessian = torch.func.hessian(lambda w: bw.Categorical().nll(outputs_at(model, x, w), y).mean())(m)
        return 0.5 * (std.square() * hessian.diagonal()).sum()

    rows = orthogonal_signs(len(mean))
    with noise_replaced(NOISE["hessian"], rows):
        found = torch.stack([penalty(model, x, y, bw.Categorical()) for _ in rows]).mean()
    assert found.item() == pytest.approx(trace(mean).item(), rel=1e-9)
    (gradient,) = torch.autograd.grad(found, model.posterior.mean)
    np.testing.assert_allclose(gradient, torch.func.grad(trace)(mean), rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize("batch", [3, 2])
def test_log_std_gradient_is_the_formula(batch: int) -> None:
    """std^2 g^2 / S + (T/N) (std^2 / s^2 - 1), with g of the very labels that were sampled; S the batch's own."""
    model, x, y = classifier("fisher_labels")
    x, y = x[:batch], y[:batch]
    elbo = bw.ELBO("categorical", 50, temperature=0.6)
    total = elbo(model, x, y, generator=bw.make_generator(9)).total
    (found,) = torch.autograd.grad(total, model.posterior.log_std)
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()
    labels = bw.Categorical().sample_targets(outputs_at(model, x, mean), bw.make_generator(9))
    g = torch.func.grad(lambda m: bw.Categorical().nll(outputs_at(model, x, m), labels).sum())(mean)
    truth = std.square() * g.square() / batch + 0.6 / 50 * (std.square() / 0.7**2 - 1)
    np.testing.assert_allclose(found, truth, rtol=1e-9)


@pytest.mark.parametrize("curvature", FISHERS)
def test_bernoulli_fisher(curvature: str) -> None:
    """One logit: F_l = sum_n p (1 - p) (da/dw_l)^2, rate 1e-6 over 6,000 draws, 50 in each of 120 calls."""
    copies, calls = 50, 120
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    model, many, x, _ = copies_of(curvature, net, copies)
    mean, std = model.posterior.mean.detach(), model.posterior.std_vector().detach()
    jacobian = torch.func.jacrev(lambda m: outputs_at(model, x, m)[:, 0])(mean)
    p = outputs_at(model, x, mean)[:, 0].sigmoid()
    truth = 0.5 / 3 * (std.square() * jacobian.square() * (p * (1 - p))[:, None]).sum()
    generator = bw.make_generator(3)
    y = torch.tensor([1.0, 0.0, 1.0]).repeat(copies)
    with torch.no_grad():
        values = [penalty(many, x, y, bw.Bernoulli(), generator=generator) for _ in range(calls)]
    assert_mean_close(torch.stack(values), truth)


# Cheaper ways.


@pytest.mark.parametrize("curvature", CURVATURES)
def test_every_k_steps_averages_to_every_step(curvature: str) -> None:
    """Over k steps with the same noise the average is exactly that of `every=1`, in value and gradient."""
    plain, x, y = classifier(curvature)
    lazy, _, _ = classifier(curvature, every=4)
    parameters = {"plain": list(plain.parameters()), "lazy": list(lazy.parameters())}
    for start in (0, 2, 7):
        totals = []
        for step in range(start, start + 4):
            at = bw.Progress(step=step)
            totals.append(bw.ELBO("categorical", 50)(lazy, x, y, at=at, generator=bw.make_generator(5)).total)
        assert len({round(t.item(), 9) for t in totals}) == 2, "one step of four has the penalty"
        average = torch.stack(totals).mean()
        truth = bw.ELBO("categorical", 50)(plain, x, y, generator=bw.make_generator(5)).total
        assert average.item() == pytest.approx(truth.item(), rel=1e-12)
        found = torch.autograd.grad(average, parameters["lazy"])
        for one, other in zip(found, torch.autograd.grad(truth, parameters["plain"]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


def test_every_k_needs_the_step() -> None:
    model, x, y = classifier("fisher_labels", every=2)
    with pytest.raises(bw.SettingError, match=r"step"):
        bw.ELBO("categorical", 50)(model, x, y)


@pytest.mark.parametrize("fraction", [0.5, 0.3])
def test_a_fraction_of_the_batch_is_unbiased(fraction: float) -> None:
    """Over all orders of the batch (its first examples count) and exact noise: the penalty of the whole batch.

    Of 3 examples that is two either way: 0.5 rounded up, and 0.3 since two are the least.
    """
    whole, x, y = classifier("fisher_reparameterised")
    truth = expected_penalty(whole, x, y, "fisher_reparameterised")
    model, _, _ = classifier("fisher_reparameterised", fraction=fraction)
    rows = orthogonal_signs(3 * 2)
    values = []
    with noise_replaced("bayeswell.likelihoods.categorical.random_signs", rows):
        for order in itertools.permutations(range(3)):
            at = list(order)
            values += [penalty(model, x[at], y[at], bw.Categorical()) for _ in rows]
    found = torch.stack(values).mean()
    assert found.item() == pytest.approx(truth.item(), rel=1e-10)
    for name in ("mean", "log_std"):
        (one,) = torch.autograd.grad(found, getattr(model.posterior, name), retain_graph=True)
        (other,) = torch.autograd.grad(truth, getattr(whole.posterior, name), retain_graph=True)
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)


def test_a_fraction_works_for_inputs_in_tuples_and_mappings() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 3)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.linear(left + right)

    model, x, y = classifier("fisher_labels", TwoInputs(), fraction=0.5)
    elbo = bw.ELBO("categorical", 50)
    as_tuple = elbo(model, (x, x), y, generator=bw.make_generator(6)).total
    as_mapping = elbo(model, {"left": x, "right": x}, y, generator=bw.make_generator(6)).total
    single, _, _ = classifier("fisher_labels", nn.Linear(2, 3), fraction=0.5)
    single.posterior.load_state_dict(model.posterior.state_dict())
    truth = elbo(single, 2 * x, y, generator=bw.make_generator(6)).total
    assert as_tuple.item() == as_mapping.item() == pytest.approx(truth.item(), rel=1e-12)


# What a user is told.


def test_piecewise_linear_layers_are_named() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 2), nn.Softplus())
    with pytest.warns(bw.BayeswellWarning) as caught:
        bw.bayesian(net, "mean_field", estimator="variational_laplace")
    (message,) = (str(warning.message) for warning in caught)
    assert "'1' (ReLU)" in message
    assert "'2' (MaxPool2d)" in message
    assert "Softplus)" not in message
    assert "softplus" in message, "the remedy"


@pytest.mark.parametrize("estimator", ["weight_sampling", "local_reparameterization", "flipout"])
def test_other_estimators_do_not_mind_relu(estimator: str) -> None:
    bw.bayesian(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "mean_field", estimator=estimator)


def test_smooth_networks_are_not_warned_about() -> None:
    net = nn.Sequential(
        nn.Linear(2, 2), nn.Softplus(), nn.GELU(), nn.Tanh(), nn.SiLU(), nn.Unflatten(1, (1, 2)), nn.AvgPool1d(2)
    )
    bw.bayesian(net, "mean_field", estimator="variational_laplace")


def test_the_hessian_is_warned_about() -> None:
    with pytest.warns(bw.BayeswellWarning, match=r"'hessian'.*without bound.*fisher"):
        bw.bayesian(nn.Linear(2, 2), "mean_field", estimator=laplace("hessian"))


def test_hessian_stds_grow_without_bound_where_the_loss_is_concave() -> None:
    """f = w^2 below its target: H < 0 pushes log std up at every std; the Fisher does not (eq. 24)."""

    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.3]))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight.square()

    x, y = torch.ones(4, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64)
    slopes: dict[str, list[float]] = {}
    for curvature in CURVATURES:
        with pytest.warns(bw.BayeswellWarning) if curvature == "hessian" else _nothing():
            model = bw.bayesian(Square().double(), "mean_field", bw.Normal(0.7), laplace(curvature))
        slopes[curvature] = []
        for std in (0.1, 1.0, 100.0):
            with torch.no_grad():
                model.posterior.log_std.fill_(float(np.log(std)))
            total = bw.ELBO(bw.Gaussian("known", 0.5), 4)(model, x, y, generator=bw.make_generator(8)).total
            slopes[curvature].append(torch.autograd.grad(total, model.posterior.log_std)[0].item())
    assert (np.array(slopes["hessian"]) < 0).all()
    assert slopes["fisher_labels"][-1] > 0
    assert slopes["fisher_reparameterised"][-1] > 0


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_works_without_gradients(curvature: str, fraction: float) -> None:
    """The same numbers under no_grad."""
    model, x, y = classifier(curvature, fraction=fraction)
    elbo = bw.ELBO("categorical", 50, temperature=0.6)
    truth = elbo(model, x, y, generator=bw.make_generator(7))
    with torch.no_grad():
        terms = elbo(model, x, y, generator=bw.make_generator(7))
        assert not torch.is_grad_enabled()
    assert terms.total.item() == truth.total.item()
    assert terms.elbo.item() == truth.elbo.item()
    assert not terms.total.requires_grad


def test_without_gradients_the_outputs_hold_no_graph() -> None:
    """Else an evaluation loop that keeps outputs for its metrics keeps every activation too."""
    model, x, y = classifier("fisher_labels")
    with torch.no_grad():
        terms = bw.ELBO("categorical", 50)(model, x, y)
    assert not terms.outputs.requires_grad


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"curvature": "fischer_labels"}, "did you mean 'fisher_labels'"),
        ({"every": 0}, "every = 0"),
        ({"fraction": 0.0}, "fraction = 0.0"),
        ({"fraction": 1.5}, "fraction = 1.5"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(bw.SettingError, match=named):
        bw.VariationalLaplace(**settings)


@pytest.mark.parametrize("posterior", ["full", "low_rank", "matrix_normal"])
def test_correlated_posteriors_are_refused(posterior: str) -> None:
    with pytest.raises(bw.CompositionError, match=rf"variational_laplace.*{posterior}.*weight_sampling"):
        bw.bayesian(nn.Linear(2, 2), posterior, estimator="variational_laplace")


def test_convolutions_in_mixed_precision() -> None:
    """torch converts the operands of its own layers only, so these are used there."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.Softplus(), torch.nn.Flatten(), torch.nn.Linear(48, 3))
    data = (torch.randn(20, 1, 6, 6), torch.randint(0, 3, (20,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"epochs": 3, "batch_size": 10, "seed": 4, "progress": False}
        plain = bw.fit(net, data, "vl", **given)
        mixed = bw.fit(net, data, "vl", **given, devices=bw.Devices(precision="bf16-mixed"))
    expected, found = plain.histories[0].epochs[-1].nll, mixed.histories[0].epochs[-1].nll
    # bf16 has three digits.
    assert found == pytest.approx(expected, rel=0.03)
    assert found != expected


def test_a_fraction_of_a_small_batch_with_batch_normalisation() -> None:
    """Two examples at least, and running statistics are those of the whole batches alone."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    x, y = torch.randn(3, 3), torch.tensor([0, 1, 0])
    statistics, penalties = [], []
    for fraction in (1.0, 0.1):
        model = bw.bayesian(net, bw.MeanField(initial_std=0.3), estimator=laplace("fisher_labels", fraction=fraction))
        nll = bw.ELBO("categorical", 3).expected_nll(model, x, y, generator=bw.make_generator(1))
        statistics.append(model.net[1].running_mean.clone())
        penalties.append(float(nll.detach()))
    assert torch.equal(*statistics)
    assert penalties[0] != penalties[1]
