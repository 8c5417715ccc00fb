"""Sharpness against the explicit formula: norms, geometries, one neighbor a draw, the same noise in both passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import CompositionError, DataError, SettingError
from bayeswell.core.protocols import BatchContext, Terms
from bayeswell.core.random import make_generator
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO, Sharpness
from bayeswell.priors import Normal

ESTIMATORS: list[Any] = [
    "weight_sampling",
    {"name": "weight_sampling", "draws": 4, "antithetic": True},
    "local_reparameterization",
    {"name": "flipout", "draws": 2},
    {"name": "variational_laplace", "curvature": "fisher_reparameterized"},
]
SETTINGS = [("identity", "paper"), ("identity", "exact"), ("mean_over_std", "paper"), ("mean_over_std", "exact")]


def problem(*extra: nn.Module) -> tuple[BayesianModule, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), *extra, nn.Tanh(), nn.Linear(4, 2)).double()
    model = bayesian(net, {"name": "mean_field", "initial_std": 0.3}, Normal(0.7))
    x = torch.randn(9, 3, generator=make_generator(2), dtype=torch.float64)
    return model, x, torch.randint(0, 2, (9,), generator=make_generator(3))


def elbo_of(estimator: Any = "weight_sampling") -> ELBO:
    return ELBO("categorical", 50, estimator=estimator, temperature=0.6)


def step(objective: Any, model: BayesianModule, x: Tensor, y: Tensor) -> tuple[Terms, Tensor]:
    terms = objective(model, x, y, generator=make_generator(5))
    found = torch.autograd.grad(terms.total, list(model.parameters()), materialize_grads=True)
    return terms, torch.cat([piece.reshape(-1) for piece in found])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_rho_zero_is_the_base_method_bit_for_bit(estimator: Any) -> None:
    model, x, y = problem(nn.Dropout(0.4))
    torch.manual_seed(1)
    base, base_gradient = step(elbo_of(estimator), model, x, y)
    torch.manual_seed(1)
    sharp, gradient = step(Sharpness(0).wrap(elbo_of(estimator)), model, x, y)
    assert torch.equal(base.total, sharp.total)
    assert torch.equal(base_gradient, gradient)


@pytest.mark.parametrize(("geometry", "norm"), SETTINGS)
@pytest.mark.parametrize("draws", [1, 3])
def test_explicit_formula(geometry: str, norm: str, draws: int) -> None:
    """Value and gradient from plain torch: e of each draw, NLL at w + e with e held constant, KL unperturbed."""
    model, x, y = problem()
    sharp = Sharpness(0.2, geometry, norm).wrap(elbo_of({"name": "weight_sampling", "draws": draws}))
    terms, gradient = step(sharp, model, x, y)
    mean, std = model.posterior.mean, model.posterior.std()
    weights = mean + std * torch.randn(draws, 26, generator=make_generator(5), dtype=torch.float64)
    scale = 1.0 if geometry == "identity" else (mean.abs() / std).detach()

    def nll(w: Tensor) -> Tensor:
        hidden = torch.tanh(x @ w[:12].view(4, 3).T + w[12:16])
        return nn.functional.cross_entropy(hidden @ w[16:24].view(2, 4).T + w[24:], y)

    losses = []
    for w in weights:
        (g,) = torch.autograd.grad(nll(w), w, retain_graph=True)
        length = (scale * g).norm() if norm == "paper" else (scale * g * g).sum().sqrt()
        losses.append(nll(w + 0.2 * scale * g / length))
    kl = ((0.7 / std).log() + (std**2 + mean**2) / (2 * 0.49) - 0.5).sum()
    total = torch.stack(losses).mean() + 0.6 * kl / 50
    truth = torch.cat(torch.autograd.grad(total, [mean, model.posterior.log_std]))
    assert terms.total.item() == pytest.approx(total.item(), rel=1e-12)
    assert terms.kl.item() == pytest.approx(kl.item(), rel=1e-12)
    torch.testing.assert_close(gradient, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("geometry", "norm"), SETTINGS)
def test_length_of_the_step(geometry: str, norm: str) -> None:
    """Euclidean for the paper's norm; in the exact one sqrt(e' T^-1 e) = rho, and e is the maximizer of g'e there."""
    model, _, _ = problem()
    gradient = torch.randn(2, 26, generator=make_generator(6), dtype=torch.float64)
    scale = torch.ones(26, dtype=torch.float64)
    if geometry == "mean_over_std":
        scale = (model.posterior.mean.abs() / model.posterior.std()).detach()
    for g, e in zip(gradient, Sharpness(0.3, geometry, norm).ascent(gradient, model.posterior), strict=True):
        length = e.norm() if norm == "paper" else (e * e / scale).sum().sqrt()
        assert length.item() == pytest.approx(0.3, rel=1e-12)
        if norm == "exact":
            assert (g @ e).item() == pytest.approx(0.3 * (g * scale * g).sum().sqrt().item(), rel=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_both_passes_see_the_same_noise(estimator: Any) -> None:
    """As rho -> 0 the value goes to the base value, and the excess to rho |g| for the mean over draws.

    With fresh dropout masks, signs or pre-activation noise in the second pass it would not.
    """
    model, x, y = problem(nn.Dropout(0.4))
    values = []
    for rho in (0.0, 1e-6):
        torch.manual_seed(1)
        values.append(step(Sharpness(rho).wrap(elbo_of(estimator)), model, x, y)[0].nll.item())
    assert 0 < values[1] - values[0] < 1e-5


def test_every_example_of_flipout_moves_by_the_same_offset() -> None:
    """Flipout at w + e is flipout with means moved by e: the deviation from the mean does not contain e."""
    model, x, y = problem()
    elbo = elbo_of("flipout")
    offset = torch.randn(1, 26, generator=make_generator(7), dtype=torch.float64)

    def nll(shift: Tensor, moved_mean: Tensor) -> float:
        batch = BatchContext(x, y, elbo.likelihood, generator=make_generator(5), offset=shift)
        with torch.no_grad():
            model.posterior.mean.add_(moved_mean[0])
            weights, _ = elbo.draw(model, batch)
            value = elbo.estimator.nll(model, weights + shift, batch)[0].item()
            model.posterior.mean.sub_(moved_mean[0])
        return value

    assert nll(offset, 0 * offset) == pytest.approx(nll(0 * offset, offset), rel=1e-12)


def test_batch_norm_statistics_do_not_see_the_perturbed_pass() -> None:
    model, x, y = problem(nn.BatchNorm1d(4))
    step(elbo_of(), model, x, y)
    after_one = {name: value.clone() for name, value in model.net[1].named_buffers()}
    other, _, _ = problem(nn.BatchNorm1d(4))
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            theirs.copy_(mine)
    step(Sharpness(0.5).wrap(elbo_of()), other, x, y)
    for name, value in other.net[1].named_buffers():
        torch.testing.assert_close(value, after_one[name])


def test_first_order_excess_is_rho_times_the_gradient_norm() -> None:
    model, x, y = problem()
    elbo = elbo_of()
    batch = BatchContext(x, y, elbo.likelihood, generator=make_generator(5))
    weights, _ = elbo.draw(model, batch)
    nll = elbo.estimator.nll(model, weights, batch)[0]
    (gradient,) = torch.autograd.grad(nll, weights)
    sharp = step(Sharpness(1e-5).wrap(elbo), model, x, y)[0]
    assert (sharp.nll - nll).item() / 1e-5 == pytest.approx(gradient.norm().item(), rel=1e-3)


def test_no_gradient_no_step() -> None:
    model, _, _ = problem()
    assert not Sharpness(0.3).ascent(torch.zeros(2, 26), model.posterior).any()


def test_settings_of_the_inner_elbo_stay_live() -> None:
    model, x, y = problem()
    elbo = elbo_of()
    sharp = Sharpness(0.1).wrap(elbo)
    before = step(sharp, model, x, y)[0]
    elbo.temperature = 1.2
    after = step(sharp, model, x, y)[0]
    assert (after.total - before.total).item() == pytest.approx(0.6 * before.kl.item() / 50, rel=1e-9)


def test_targets_are_checked_until_a_step_succeeds() -> None:
    model, x, y = problem()
    elbo = elbo_of()
    sharp, calls = Sharpness(0.1).wrap(elbo), []
    check = elbo.likelihood.check
    elbo.likelihood.check = lambda *found: (calls.append(1), check(*found))  # type: ignore[method-assign]
    with pytest.raises(DataError):
        sharp(model, x, y + 5)
    sharp(model, x, y)
    checks = len(calls)
    sharp(model, x, y)
    assert len(calls) == checks


def test_bad_pairs_and_settings_are_refused() -> None:
    with pytest.raises(CompositionError, match="gradient"):
        Sharpness(0.1).wrap(elbo_of("score_function"))
    net = nn.Linear(3, 2).double()
    _, x, y = problem()
    with pytest.raises(CompositionError, match="identity"):
        Sharpness(0.1, "mean_over_std").wrap(elbo_of())(bayesian(net, "low_rank"), x, y)
    for settings in ({"rho": -1}, {"geometry": "round"}, {"norm": "max"}):
        with pytest.raises(SettingError):
            Sharpness(**settings)
