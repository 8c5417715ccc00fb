"""Variational Laplace: its penalty against explicit per-example gradients, Fisher matrices and Hessians."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.core.errors import BayeswellWarning, SettingError
from bayeswell.core.protocols import BatchContext, Progress
from bayeswell.core.random import make_generator
from bayeswell.estimators import VariationalLaplace, variational_laplace
from bayeswell.likelihoods import LIKELIHOODS, Gaussian
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO
from bayeswell.priors import Normal
from helpers import LinearRegression, assert_mean_close

CURVATURES = ["fisher_labels", "fisher_reparameterized", "hessian"]


def problem() -> tuple[BayesianModule, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    model = bayesian(net, {"name": "mean_field", "initial_std": 0.3})
    with torch.no_grad():
        model.posterior.log_std.add_(0.3 * torch.randn(model.layout.size, dtype=torch.float64))
    x = torch.randn(6, 3, generator=make_generator(2), dtype=torch.float64)
    return model, x, torch.randint(0, 3, (6,), generator=make_generator(3))


def batch_of(x: Tensor, y: Tensor, likelihood: Any = "categorical", **settings: Any) -> BatchContext:
    return BatchContext(x, y, LIKELIHOODS.resolve(likelihood), **settings)


def outputs_at(model: BayesianModule, weights: Tensor, x: Tensor) -> Tensor:
    return model.call(model.layout.unflatten(weights), x)


def penalty(model: BayesianModule, estimator: VariationalLaplace, batch: BatchContext) -> Tensor:
    value = estimator.nll(model, model.posterior.mean, batch)[0]
    return value - batch.mean_nll(outputs_at(model, model.posterior.mean, batch.inputs))


def fisher_diagonal(model: BayesianModule, weights: Tensor, x: Tensor, sample_weight: Tensor | None = None) -> Tensor:
    """Diagonal of 1/S sum_n weight_n J_n' (diag(p_n) - p_n p_n') J_n, differentiable in the weights."""
    slopes = torch.func.jacrev(lambda w: outputs_at(model, w, x))(weights)
    p = outputs_at(model, weights, x).softmax(-1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    if sample_weight is not None:
        curvature = curvature * sample_weight[:, None, None]
    return torch.einsum("nip,nij,njp->p", slopes, curvature, slopes) / len(x)


def test_penalty_of_sampled_labels_from_explicit_gradients() -> None:
    """1/(2S) sum_l std_l^2 (sum_n g_nl)^2 with the gradient of each example by itself."""
    model, x, y = problem()
    found = penalty(model, VariationalLaplace(), batch_of(x, y, generator=make_generator(9)))
    likelihood, mean = LIKELIHOODS.resolve("categorical"), model.posterior.mean
    labels = likelihood.sample(outputs_at(model, mean, x).detach(), make_generator(9))
    per_example = [
        torch.autograd.grad(likelihood.nll(outputs_at(model, mean, x[n : n + 1]), labels[n : n + 1]).sum(), mean)[0]
        for n in range(len(x))
    ]
    total = torch.stack(per_example).sum(0)
    truth = (model.posterior.std() * total).square().sum() / (2 * len(x))
    assert found.item() == pytest.approx(truth.item(), rel=1e-10)


@pytest.mark.parametrize("curvature", CURVATURES[:2])
@pytest.mark.parametrize("weighted", [False, True])
def test_expected_penalty_is_the_fisher_diagonal(curvature: str, weighted: bool) -> None:
    model, x, y = problem()
    sample_weight = torch.linspace(0.3, 2.5, len(x), dtype=torch.float64) if weighted else None
    batch = batch_of(x, y, generator=make_generator(1), sample_weight=sample_weight)
    estimator = VariationalLaplace(curvature)
    samples = torch.stack([penalty(model, estimator, batch).detach() for _ in range(500)])
    fisher = fisher_diagonal(model, model.posterior.mean, x, sample_weight)
    assert_mean_close(samples, 0.5 * (model.posterior.std().square() * fisher).sum())


def test_expected_hessian_penalty_is_the_hessian_diagonal() -> None:
    model, x, y = problem()
    batch = batch_of(x, y, generator=make_generator(1))
    samples = torch.stack([penalty(model, VariationalLaplace("hessian"), batch).detach() for _ in range(500)])
    hessian = torch.func.hessian(lambda w: batch.mean_nll(outputs_at(model, w, x)))(model.posterior.mean.detach())
    assert_mean_close(samples, 0.5 * (model.posterior.std().square() * hessian.diagonal()).sum())


def gradient_samples(model: BayesianModule, curvature: str, batch: BatchContext, count: int) -> Tensor:
    estimator, rows = VariationalLaplace(curvature), []
    for _ in range(count):
        value = penalty(model, estimator, batch)
        rows.append(torch.cat(torch.autograd.grad(value, list(model.posterior.parameters()))))
    return torch.stack(rows)


def test_reparameterized_gradient_is_that_of_the_fisher() -> None:
    model, x, y = problem()
    samples = gradient_samples(model, "fisher_reparameterized", batch_of(x, y, generator=make_generator(1)), 500)
    mean, std = model.posterior.mean, model.posterior.std()
    value = 0.5 * (std.square() * fisher_diagonal(model, mean, x)).sum()
    assert_mean_close(samples, torch.cat(torch.autograd.grad(value, list(model.posterior.parameters()))))


def test_sampled_labels_have_the_gradient_with_frozen_output_covariance() -> None:
    """For a linear classifier that is zero in the means, whereas the Fisher's own gradient is not."""
    model = bayesian(nn.Linear(3, 3).double(), {"name": "mean_field", "initial_std": 0.3})
    _, x, y = problem()
    samples = gradient_samples(model, "fisher_labels", batch_of(x, y, generator=make_generator(1)), 500)
    mean, std = model.posterior.mean, model.posterior.std()
    value = 0.5 * (std.square() * fisher_diagonal(model, mean, x)).sum()
    of_mean, of_std = torch.autograd.grad(value, list(model.posterior.parameters()))
    assert of_mean.abs().max() > 1e-3
    assert_mean_close(samples, torch.cat([torch.zeros_like(of_mean), of_std]))


@pytest.mark.parametrize("curvature", CURVATURES)
def test_objective_is_the_elbo_of_linear_regression(curvature: str) -> None:
    """Exactly in expectation, at generic means and stds; the Hessian form of one weight has no noise at all."""
    regression = LinearRegression.make(count=7, dimension=3)
    model = bayesian(nn.Linear(3, 1, bias=False).double(), "mean_field", Normal(regression.prior_std))
    std = torch.tensor([0.3, 0.9, 0.14], dtype=torch.float64)
    with torch.no_grad():
        model.posterior.log_std.copy_(std.log())
    elbo = ELBO(Gaussian("known", regression.noise_std), 7, estimator=VariationalLaplace(curvature), temperature=0.6)
    generator = make_generator(4)
    totals = [elbo(model, regression.x, regression.y, generator=generator).total.detach() for _ in range(500)]
    truth = regression.elbo(model.posterior.mean.detach(), std.square().diag(), 0.6)
    assert_mean_close(-7 * torch.stack(totals), truth)


@pytest.mark.parametrize("curvature", CURVATURES)
def test_convolutions_have_the_derivatives_of_torch(curvature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Softplus(), nn.Flatten(), nn.Linear(12, 3))
    model = bayesian(net.double(), {"name": "mean_field", "initial_std": 0.3})
    x, y = torch.randn(5, 2, 4, 4, dtype=torch.float64), torch.randint(0, 3, (5,))
    found = gradient_samples(model, curvature, batch_of(x, y, generator=make_generator(1)), 1)
    monkeypatch.setattr(variational_laplace, "shape_of", lambda module: None)
    truth = gradient_samples(model, curvature, batch_of(x, y, generator=make_generator(1)), 1)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-12)


def test_attention_can_be_differentiated_twice() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
    model = bayesian(nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)))
    elbo = ELBO("categorical", 10, estimator="variational_laplace")
    elbo(model, torch.randn(5, 3, 4), torch.randint(0, 2, (5,))).total.backward()
    assert model.posterior.mean.grad.isfinite().all()


def test_every_k_steps_the_penalty_counts_k_times() -> None:
    model, x, y = problem()
    values = []
    for step in range(6):
        batch = batch_of(x, y, generator=make_generator(1), progress=Progress(step, 6))
        values.append(penalty(model, VariationalLaplace(every=3), batch).item())
    usual = penalty(model, VariationalLaplace(), batch_of(x, y, generator=make_generator(1))).item()
    assert values == pytest.approx([3 * usual, 0, 0, 3 * usual, 0, 0], rel=1e-9, abs=1e-12)


def test_every_k_needs_the_step() -> None:
    model, x, y = problem()
    with pytest.raises(SettingError, match="total_steps"):
        penalty(model, VariationalLaplace(every=3), batch_of(x, y, generator=make_generator(1)))


def test_values_without_gradient_are_the_same() -> None:
    model, x, y = problem()
    usual = penalty(model, VariationalLaplace(), batch_of(x, y, generator=make_generator(1)))
    with torch.no_grad():
        found = penalty(model, VariationalLaplace(), batch_of(x, y, generator=make_generator(1)))
    assert found.item() == pytest.approx(usual.item(), rel=1e-12)
    assert not found.requires_grad


def test_piecewise_linear_layers_and_hessians_are_warned_of() -> None:
    notes = VariationalLaplace("hessian").warnings_for(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Softplus()))
    assert len(notes) == 2
    assert "'1' (ReLU)" in notes[0]
    assert VariationalLaplace().warnings_for(nn.Sequential(nn.Linear(2, 2), nn.Softplus())) == []


def test_fit_warns_of_piecewise_linear_layers_once() -> None:
    _, x, y = problem()
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    settings = {"epochs": 1, "members": 2, "prediction": "sampled"}
    with pytest.warns(BayeswellWarning, match="twice differentiable") as found:
        bw.fit(net, (x, y), "vl", likelihood="categorical", **settings)
    assert sum("twice differentiable" in str(one.message) for one in found) == 1


def test_impossible_settings_are_refused() -> None:
    for settings in ({"curvature": "empirical"}, {"every": 0}):
        with pytest.raises(SettingError):
            VariationalLaplace(**settings)
