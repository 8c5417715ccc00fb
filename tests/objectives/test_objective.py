"""The ELBO as a loss: its scale, its gradient over an epoch, and what remains of q without data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from linear_models import (
    PROBLEM,
    SigmaPoints,
    covariance_of,
    lift,
    mean_of,
    objective,
    set_mean_and_std,
    std_of,
    train_exactly,
)
from truths.gaussian import kl_diagonal, log_density_normal
from truths.linear_regression import LinearRegression

GAUSSIAN_FAMILIES: dict[str, Any] = {
    "mean_field": bw.MeanField(),
    "mean_field(rho)": bw.MeanField(parameter="rho"),
    "k_tied(1)": bw.KTied(rank=1),
    "k_tied(2)": bw.KTied(rank=2),
    "low_rank": bw.LowRank(rank=2),
    "matrix_normal": bw.MatrixNormal(),
    "full": bw.Full(),
}
SCHEMES = [bw.Uniform(), bw.Geometric(0.5), bw.Geometric(0.97), bw.Geometric(1.0), bw.Geometric(2.0)]
DATA = 23


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def classification_data() -> tuple[Tensor, Tensor]:
    generator = bw.make_generator(2)
    x = torch.randn(DATA, 3, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 2, (DATA,), generator=generator)


def flat_gradient(model: bw.BayesianModule, total: Tensor) -> Tensor:
    gradients = torch.autograd.grad(total, list(model.parameters()), materialize_grads=True)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


Call = Callable[[Tensor, Tensor, bw.Progress | None], bw.Terms]


def same_draws(model: bw.BayesianModule, elbo: bw.ELBO) -> Call:
    """The objective as a function of the batch alone: every call sees the same weight draws."""
    return lambda x, y, at: elbo(model, x, y, at=at, generator=bw.make_generator(3))


def epoch(call: Call, x: Tensor, y: Tensor, size: int) -> list[bw.Terms]:
    batches = list(zip(x.split(size), y.split(size), strict=True))
    return [call(bx, by, bw.Progress(batch=i, batches=len(batches))) for i, (bx, by) in enumerate(batches)]


def check_epoch_gradient(scheme: Any, size: int, posterior: Any = "mean_field") -> None:
    """The plain average over an epoch is the objective of the whole data set: 1e-10 relative, float64."""
    x, y = classification_data()
    model = bw.bayesian(network(), posterior, bw.Normal(0.7), bw.WeightSampling(draws=2))
    whole = same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6))(x, y, None)
    terms = epoch(same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6, kl_weight=scheme)), x, y, size)
    average = torch.stack([t.total for t in terms]).mean()
    assert average.item() == pytest.approx(whole.total.item(), rel=1e-12)
    truth = flat_gradient(model, whole.total)
    found = flat_gradient(model, average)
    assert float((found - truth).norm() / truth.norm()) < 1e-10


def hand_made_total(model: bw.BayesianModule, x: Tensor, y: Tensor, temperature: float, draws: int) -> float:
    """mean NLL + temperature KL / N from numpy alone, for the same noise as `same_draws`."""
    mean, std = mean_of(model), std_of(model)
    noise = torch.randn(draws, len(mean), generator=bw.make_generator(3), dtype=torch.float64).numpy()
    nlls = []
    for eps in noise:
        w = mean + std * eps
        hidden = np.tanh(x.numpy() @ w[:12].reshape(4, 3).T + w[12:16])
        logits = hidden @ w[16:24].reshape(2, 4).T + w[24:26]
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        nlls.append(-log_p[np.arange(len(y)), y.numpy()].mean())
    return float(np.mean(nlls) + temperature * kl_diagonal(mean, std, 0.0, 0.7) / DATA)


def check_total_by_hand() -> None:
    """At unequal generic stds, so that no square, sum or direction can be missing: 1e-12 relative."""
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7), bw.WeightSampling(draws=2))
    set_mean_and_std(model, mean_of(model) + 0.1, np.linspace(0.2, 1.4, 26))
    terms = same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6))(x, y, None)
    kl = kl_diagonal(mean_of(model), std_of(model), 0.0, 0.7)
    total = hand_made_total(model, x, y, 0.6, draws=2)
    assert terms.total.item() == pytest.approx(total, rel=1e-12)
    assert terms.kl.item() == pytest.approx(kl, rel=1e-12)
    nll = total - 0.6 * kl / DATA
    assert terms.nll.item() == pytest.approx(nll, rel=1e-12)
    assert terms.elbo.item() == pytest.approx(-(DATA * nll + kl), rel=1e-12)
    assert terms.elbo_per_datum.item() == pytest.approx(-(nll + kl / DATA), rel=1e-12)


# Scale.


def test_total_by_hand() -> None:
    check_total_by_hand()


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("size", [1, 4, 5, 7, 12, 22, DATA, 40])
def test_epoch_gradient_is_the_full_data_gradient(scheme: Any, size: int) -> None:
    check_epoch_gradient(scheme, size)


@pytest.mark.parametrize("posterior", ["delta", "k_tied", "low_rank", "matrix_normal", "full"])
def test_epoch_gradient_of_every_posterior(posterior: str) -> None:
    check_epoch_gradient(bw.Geometric(0.5), 5, posterior)


@pytest.mark.parametrize("divergence", ["monte_carlo", "path_derivative", "score_function"])
def test_epoch_gradient_of_every_divergence(divergence: str) -> None:
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7))
    settings: dict[str, Any] = {"divergence": divergence, "temperature": 0.6}
    whole = same_draws(model, bw.ELBO("categorical", DATA, **settings))(x, y, None)
    elbo = bw.ELBO("categorical", DATA, kl_weight=bw.Geometric(2.0), **settings)
    average = torch.stack([t.total for t in epoch(same_draws(model, elbo), x, y, 5)]).mean()
    truth = flat_gradient(model, whole.total)
    assert float((flat_gradient(model, average) - truth).norm() / truth.norm()) < 1e-10


def test_a_ragged_batch_counts_by_its_size_only_when_the_epoch_is_known() -> None:
    """Batches of 7, 7, 7, 2 of 23: the last one's mean NLL counts 2 * 4 / 23."""
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7))
    call = same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6))
    known = call(x[21:], y[21:], bw.Progress(batch=3, batches=4))
    alone = call(x[21:], y[21:], None)
    kl = 0.6 * known.kl.item() / DATA
    assert known.total.item() == pytest.approx(2 * 4 / 23 * known.nll.item() + kl, rel=1e-12)
    assert alone.total.item() == pytest.approx(alone.nll.item() + kl, rel=1e-12)


@pytest.mark.parametrize("pieces", [2, 3])
def test_gradient_accumulation(pieces: int) -> None:
    """A batch in equal micro-batches, each divided by their number, has the gradient of the batch at once."""
    x, y = classification_data()
    x, y = x[:12], y[:12]
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7), bw.WeightSampling(draws=2))
    call = same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6))
    truth = flat_gradient(model, call(x, y, bw.Progress(batch=0, batches=2)).total)
    model.zero_grad()
    for piece, (bx, by) in enumerate(zip(x.chunk(pieces), y.chunk(pieces), strict=True)):
        at = bw.Progress(batch=piece, batches=2 * pieces)
        (call(bx, by, at).total / pieces).backward()
    found = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert float((found - truth).norm() / truth.norm()) < 1e-10


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_accumulation_over_an_epoch_is_one_full_step(scheme: Any) -> None:
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7))
    truth = flat_gradient(model, same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6))(x, y, None).total)
    model.zero_grad()
    terms = epoch(same_draws(model, bw.ELBO("categorical", DATA, temperature=0.6, kl_weight=scheme)), x, y, 6)
    for t in terms:
        (t.total / len(terms)).backward()
    found = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert float((found - truth).norm() / truth.norm()) < 1e-10


def check_kl_share() -> None:
    """Twice the data, half the KL per datum; and KL counts every weight, so twice the weights have twice of it."""
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7), bw.WeightSampling(draws=2))
    kl_parts = []
    for size in (DATA, 2 * DATA):
        terms = same_draws(model, bw.ELBO("categorical", size, temperature=0.6))(x, y, None)
        kl_parts.append(terms.total.item() - terms.nll.item())
    assert kl_parts[0] == pytest.approx(2 * kl_parts[1], rel=1e-10)
    layer = nn.Linear(3, 2).double()
    twice = nn.Sequential(layer, copy.deepcopy(layer))
    kls = []
    for net in (layer, twice):
        lifted = bw.bayesian(net, "mean_field", bw.Normal(0.7))
        kls.append(bw.DIVERGENCES["analytic"]()(lifted.posterior, lifted.prior, None)[1].item())
    assert kls[1] == pytest.approx(2 * kls[0], rel=1e-10)


def test_kl_share() -> None:
    check_kl_share()


def test_temperature_scales_the_kl_and_nothing_else() -> None:
    x, y = classification_data()
    model = bw.bayesian(network(), "mean_field", bw.Normal(0.7))
    cold, warm, none = (
        same_draws(model, bw.ELBO("categorical", DATA, temperature=t))(x, y, None) for t in (0.3, 1.5, 0.0)
    )
    assert (warm.total - cold.total).item() == pytest.approx(1.2 * cold.kl.item() / DATA, rel=1e-10)
    assert none.total.item() == pytest.approx(none.nll.item(), rel=1e-14)
    # What is reported is unscaled.
    assert cold.elbo.item() == warm.elbo.item() == none.elbo.item()


def test_delta_is_maximum_a_posteriori() -> None:
    x, y = classification_data()
    model = bw.bayesian(network(), "delta", bw.Normal(0.7))
    terms = bw.ELBO("categorical", DATA)(model, x, y)
    log_prior = log_density_normal(mean_of(model), 0.7).sum()
    assert terms.kl.item() == pytest.approx(-log_prior, rel=1e-12)
    gradient = flat_gradient(model, terms.total - terms.nll)
    data_only = flat_gradient(model, bw.ELBO("categorical", DATA, temperature=0.0)(model, x, y).total)
    np.testing.assert_allclose((gradient - data_only).numpy(), mean_of(model) / 0.7**2 / DATA, rtol=1e-9, atol=1e-15)


# No data: q returns to the prior.


class Deaf(nn.Module):
    """Its output does not depend on its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 2)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return 0 * self.linear(x)


def check_no_data_returns_the_prior(posterior: Any) -> None:
    torch.manual_seed(4)
    model = bw.bayesian(Deaf().double(), posterior, {"conv*": bw.Normal(0.4), "*": bw.Normal(1.7)})
    x = torch.ones(5, 4, dtype=torch.float64)
    elbo = bw.ELBO(bw.Gaussian("known", 0.8), 5, temperature=0.6)
    before = elbo(model, x, x[:, :3]).kl.item()
    train_exactly(model, lambda: elbo(model, x, x[:, :3]).total)
    kl = elbo(model, x, x[:, :3]).kl.item()
    assert before > 1, "it must start away from the prior"
    assert -1e-9 < kl < 1e-5
    prior_std = np.repeat([0.4, 1.7], [3 * 2 * 2 + 3, 4 * 3 + 3])
    np.testing.assert_allclose(mean_of(model), 0, atol=3e-3)
    np.testing.assert_allclose(std_of(model), prior_std, rtol=3e-3)
    np.testing.assert_allclose(covariance_of(model), np.diag(prior_std**2), atol=1e-2)


@pytest.mark.parametrize("posterior", GAUSSIAN_FAMILIES)
def test_no_data_returns_the_prior(posterior: str) -> None:
    check_no_data_returns_the_prior(GAUSSIAN_FAMILIES[posterior])


@pytest.mark.parametrize("posterior", ["mean_field", "low_rank", "full"])
def test_infinite_temperature_returns_the_prior(posterior: str) -> None:
    """At temperature 1e9 the data weigh 1e-9: the optimum's KL is theirs to second order, below 1e-6 nat."""
    problem = LinearRegression.make(9, count=20, dimension=3)
    x, y = problem.tensors()
    model = lift(problem, posterior, SigmaPoints())
    elbo = objective(problem, temperature=1e9)
    # Divided by the temperature so that L-BFGS sees numbers of order one.
    train_exactly(model, lambda: elbo(model, x, y).total / 1e9)
    assert elbo(model, x, y).kl.item() < 1e-5
    np.testing.assert_allclose(std_of(model), problem.prior_std, rtol=3e-3)


# Bad input.


@pytest.mark.parametrize("size", [0, -3, 2.5, True])
def test_impossible_data_set_sizes_are_refused(size: Any) -> None:
    with pytest.raises(bw.SettingError, match="dataset_size"):
        bw.ELBO("categorical", size)


@pytest.mark.parametrize("temperature", [-0.1, float("nan"), float("inf")])
def test_impossible_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(bw.SettingError, match="temperature"):
        bw.ELBO("categorical", 10, temperature=temperature)


def test_an_empty_batch_is_refused() -> None:
    x, y = classification_data()
    with pytest.raises(bw.DataError, match="empty"):
        bw.ELBO("categorical", DATA)(bw.bayesian(network()), x[:0], y[:0])


def test_nan_inputs_are_named() -> None:
    x, y = classification_data()
    x[4, 1] = float("nan")
    with pytest.raises(bw.DataError, match=r"the inputs, first at index \(4, 1\)"):
        bw.ELBO("categorical", DATA)(bw.bayesian(network()), x, y)


def test_a_loss_that_overflows_is_one_clear_line() -> None:
    """Everything given is finite, and only the loss is not."""
    x, y = PROBLEM.tensors()
    model = lift(PROBLEM, "mean_field", "weight_sampling")
    set_mean_and_std(model, np.full(5, 1e200), np.full(5, 0.1))
    with pytest.raises(bw.DivergenceError, match="the loss is not finite"):
        objective(PROBLEM)(model, x, y)
