"""Going on with what was trained: longer, or with the posterior of earlier data as the prior."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.priors import LearnedPrior

pytestmark = [pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning"), pytest.mark.usefixtures("no_verdicts")]

NOISE, PRIOR = 0.7, 1.3
TIGHT = {"temperature": 1.0, "batch_size": 1000, "likelihood": bw.Gaussian("known", NOISE), "prior": bw.Normal(PRIOR)}


def labelled(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=bw.make_generator(seed))
    return x, (x[:, 0] > x[:, 1]).long()


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))


def regression(count: int, features: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = bw.make_generator(seed)
    x = torch.randn(count, features, generator=generator, dtype=torch.float64)
    truth = torch.linspace(-1, 1.5, features, dtype=torch.float64)
    return x, x @ truth[:, None] + NOISE * torch.randn(count, 1, generator=generator, dtype=torch.float64)


def closed_form(x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the weights of linear regression without an offset."""
    precision = (x.T @ x / NOISE**2 + torch.eye(x.shape[1]) / PRIOR**2).numpy()
    return np.linalg.solve(precision, (x.T @ y / NOISE**2).numpy())[:, 0], np.linalg.inv(precision)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("bbb", {"rate": "constant"}),
        ("k-tied", {"rate": {"name": "warm_up", "fraction": 1e-9}}),
        ("f-flipout", {"rate": "constant", "plateau": {"means": {"metric": "nll", "patience": 0}}}),
        ("mc-dropout", {"rate": "constant"}),
        ("swa", {"rate": "constant", "collector": {"name": "swa", "start": 0.0, "cycle": 3}}),
        ("sgld", {"stepper": {"name": "sgld", "lr": 1e-3}, "collector": {"name": "bank", "burn_in": 0, "thinning": 5}}),
        ("ivon", {"rate": "constant"}),
    ],
)
def test_going_on_is_the_longer_run_bit_for_bit(method: str, settings: dict[str, Any]) -> None:
    """At a temperature that is given: the one that is found depends on how far a run has come."""
    data, settings = labelled(70), {"temperature": 0.1, **settings}
    longer = bw.fit(net(), data, method, epochs=5, seed=4, batch_size=20, **settings)
    first = bw.fit(net(), data, method, epochs=2, seed=4, batch_size=20, **settings)
    second = bw.fit(first, data, epochs=3, seed=4, batch_size=20)
    for (name, found), (_, wanted) in zip(
        second.model.state_dict().items(), longer.model.state_dict().items(), strict=True
    ):
        assert torch.equal(found, wanted), name
    assert [r.total for r in second.histories[0].epochs] == [r.total for r in longer.histories[0].epochs]
    assert first.histories[0].epochs == second.histories[0].epochs[:2]


def test_a_result_that_went_on_is_itself_unchanged() -> None:
    data = labelled(60)
    without_statistics = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    first = bw.fit(without_statistics, data, "swag", epochs=8, seed=1, batch_size=20)
    before = {name: value.clone() for name, value in first.model.state_dict().items()}
    bw.fit(first, data, epochs=2, seed=1, batch_size=20)
    bw.fit(first.model, data, "map", "categorical", epochs=1)
    assert all(torch.equal(before[name], value) for name, value in first.model.state_dict().items())


@pytest.mark.parametrize("method", ["bbb", "swag", "sghmc"])
def test_going_on_twice_from_one_result_is_the_same(method: str) -> None:
    """Nothing that the first time changes in place (moments, averages, draws) belongs to the result."""
    data = labelled(60)
    first = bw.fit(net(), data, method, epochs=8, batch_size=20)
    once, again = (bw.fit(first, data, epochs=2, batch_size=20).model.state_dict() for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_sequential_bayes_is_the_posterior_of_all_data_at_once() -> None:
    """A full Gaussian holds the posterior of linear regression exactly, and its path derivative ends without noise."""
    x, y = regression(60, 3, seed=5)
    model = nn.Linear(3, 1, bias=False).double()
    how = {**TIGHT, "posterior": "full", "divergence": "path_derivative", "rate": "cosine"}
    first = bw.fit(model, (x[:25], y[:25]), "bbb", epochs=320, lr=0.1, std_multiplier=1.0, **how)
    again = bw.fit(first, (x[25:], y[25:]), epochs=320, prior="posterior", batch_size=1000)
    mean, covariance = closed_form(x, y)
    np.testing.assert_allclose(again.model.posterior.mean_vector().detach(), mean, atol=2e-4)
    np.testing.assert_allclose(again.model.posterior.std_vector().detach(), np.sqrt(np.diag(covariance)), rtol=2e-3)
    # The prior counts: the second data alone say something else.
    alone = closed_form(x[25:], y[25:])
    assert np.abs(alone[0] - mean).max() > 0.02
    assert (np.sqrt(np.diag(alone[1])) / np.sqrt(np.diag(covariance))).min() > 1.1


def orthogonal(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs with a diagonal Gram matrix: independent weights then hold the posterior exactly."""
    x, y = regression(count, 3, seed)
    q, _ = torch.linalg.qr(x)
    x = q * torch.tensor([4.0, 6.0, 9.0], dtype=torch.float64)
    return x, x @ torch.tensor([[0.4], [-0.8], [1.1]], dtype=torch.float64) + NOISE * (y - y.mean()) / y.std()


@pytest.mark.parametrize("posterior", ["mean_field", {"name": "k_tied", "rank": 1}])
def test_sequential_bayes_of_independent_weights_by_the_closed_form_of_the_kl(posterior: Any) -> None:
    parts = [orthogonal(20, seed) for seed in (1, 2, 3)]
    model = nn.Linear(3, 1, bias=False).double()
    how = {**TIGHT, "posterior": posterior, "lr": 0.12}
    how["estimator"] = {"name": "variational_laplace", "curvature": "hessian"}  # exact for linear regression
    result = bw.fit(model, parts[0], "bbb", epochs=150, **how)
    for part in parts[1:]:
        result = bw.fit(result, part, epochs=150, prior="posterior", batch_size=1000)
    mean, covariance = closed_form(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
    np.testing.assert_allclose(result.model.posterior.mean_vector().detach(), mean, atol=1e-3)
    np.testing.assert_allclose(result.model.posterior.std_vector().detach(), np.sqrt(np.diag(covariance)), rtol=1e-2)


def test_a_learned_prior_at_generic_values() -> None:
    """log p, E[log p] and its parameters against scipy's normal, away from the posterior that it was."""
    from scipy import stats

    model = bw.bayesian(nn.Linear(2, 1).double(), {"name": "mean_field", "initial_std": 0.3})
    with torch.no_grad():
        model.posterior.log_std.copy_(torch.tensor([-1.0, -0.4, 0.2], dtype=torch.float64))
    prior = LearnedPrior(model.posterior_part, model.posterior)
    centre, std = model.posterior.mean.detach().numpy().copy(), np.exp([-1.0, -0.4, 0.2])
    with torch.no_grad():
        model.posterior.mean.add_(5.0)  # it is a copy
    w, m, s = (torch.tensor(v, dtype=torch.float64) for v in ([0.3, -1.2, 0.9], [0.1, 0.5, -0.7], [0.2, 1.1, 0.6]))
    truth = stats.norm.logpdf(w, centre, std).sum()
    assert float(prior.log_prob(w[None])[0]) == pytest.approx(truth, rel=1e-12)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    at = m[:, None].numpy() + s[:, None].numpy() * nodes
    expected = (stats.norm.logpdf(at, centre[:, None], std[:, None]) @ (weights / math.sqrt(2 * math.pi))).sum()
    assert float(prior.expected_log_prob(m, s)) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(prior.inverse_variance, 1 / std**2, rtol=1e-12)
    assert float(prior.log_std_sum) == pytest.approx(float(np.log(std).sum()), rel=1e-12)
    assert not list(prior.parameters())


def test_a_model_with_a_learned_prior_is_saved(tmp_path: Path) -> None:
    x, y = labelled(50)
    first = bw.fit(net(), (x, y), "bbb", epochs=2)
    second = bw.fit(first, (x, y), epochs=2, prior="posterior")
    second.save(tmp_path / "model")
    back = bw.load(tmp_path / "model", net())
    assert torch.equal(back.predict(x, draws=7).probabilities, second.predict(x, draws=7).probabilities)
    weights = torch.randn(2, second.model.layout.size)
    assert torch.equal(back.model.prior.log_prob(weights), second.model.prior.log_prob(weights))
    assert "posterior of earlier data" in str(back.model.describe())
    third = bw.fit(back, (x, y), "bbb", epochs=1)
    assert len(third.histories[0].epochs) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: bw.fit(net(), data, "bbb", epochs=1, prior="posterior"), ["prior = 'posterior'", "fit(result"]),
        (lambda data: bw.fit(bw.fit(net(), data, "map", epochs=1), data, prior="posterior"), ["delta", "density"]),
        (lambda data: bw.fit(bw.bayesian(net()), data), ["which method"]),
        (lambda data: bw.fit(bw.fit(net(), data, "swag", epochs=8).model, data, "map", "categorical"), ["bank"]),
        (lambda data: bw.fit(bw.bayesian(net()), data, "bbb"), ["which likelihood"]),
        (lambda data: bw.fit(bw.fit(net(), data, "deep-ensemble", epochs=1, members=2), data), ["members = 2"]),
    ],
)
def test_what_cannot_go_on_is_refused(change: Any, words: list[str]) -> None:
    with pytest.raises(bw.BayeswellError) as caught:
        change(labelled(40))
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("kind", ["learned", "centred"])
def test_the_kl_by_layer_knows_the_prior(kind: str) -> None:
    """The sum over layers is the KL of the whole, wherever the prior is centred."""
    x, y = labelled(50)
    prior: Any = bw.Normal(0.4, centre="network")
    result = bw.fit(net(), (x, y), "bbb", epochs=3, prior=prior)
    if kind == "learned":
        result = bw.fit(result, (x, y), epochs=3, prior="posterior")
    report = bw.diagnostics.layer_report(result.model)
    _, kl = result.model.posterior.sample_and_kl(None, result.model.prior)
    assert report.kl == pytest.approx(kl.item(), rel=1e-4)
