"""-ELBO on validation and test data along training, against the closed form of linear regression."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.predictive.evaluate import nll_of_draws
from bayeswell.training.scores import validation_on
from bayeswell.types import SAMPLED
from truths.linear_regression import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

NOISE, PRIOR, EXAMPLES = 0.6, 1.4, 37
LIKELIHOOD = bw.Gaussian("known", NOISE)
MEANS = torch.tensor([0.7, -1.1, 0.3], dtype=torch.float64)
STDS = torch.tensor([0.35, 0.15, 0.6], dtype=torch.float64)


def problem(seed: int = 4) -> tuple[Tensor, Tensor]:
    return LinearRegression.make(seed, count=EXAMPLES, dimension=3, noise_std=NOISE, prior_std=PRIOR).tensors()


def expected_nll(data: tuple[Tensor, Tensor], means: Tensor, stds: Tensor) -> float:
    """E_q[nll] = log(2 pi s^2) / 2 + ((y - x'm)^2 + sum_i x_i^2 std_i^2) / (2 s^2), the mean over examples."""
    inputs, targets = data
    squares = (targets - inputs @ means.double()).square() + inputs.square() @ stds.double().square()
    return float((0.5 * math.log(2 * math.pi * NOISE**2) + squares / (2 * NOISE**2)).mean())


def kl(means: Tensor, stds: Tensor) -> float:
    prior = torch.distributions.Normal(0.0, torch.tensor(PRIOR, dtype=torch.float64))
    q = torch.distributions.Normal(means.double(), stds.double())
    return float(torch.distributions.kl_divergence(q, prior).sum())


def known_model(**settings: Any) -> bw.BayesianModule:
    prior = {"name": "normal", "std": PRIOR}
    model = bw.bayesian(nn.Linear(3, 1, bias=False).double(), "mean_field", prior, **settings)
    with torch.no_grad():
        model.posterior.mean.copy_(MEANS)
        model.posterior.log_std.copy_(STDS.log())
    return model


def test_the_bound_is_the_closed_form_with_the_kl_over_the_training_examples() -> None:
    model, data, draws, size, temperature = known_model(), problem(), 4000, 911, 0.3
    found = validation_on(*data, draws=draws).with_bound(model, LIKELIHOOD, size, temperature)
    error = float(nll_of_draws(model, *data, LIKELIHOOD, draws=draws, seed=0).std()) / math.sqrt(draws)
    assert abs(found["expected_nll"] - expected_nll(data, MEANS, STDS)) < 5 * error  # fails once in 1.7 million
    assert found["expected_nll"] - found["nll"] > 10 * error  # Jensen: it is not the NLL of the average
    divergence = kl(MEANS, STDS)
    assert found["minus_elbo"] - found["expected_nll"] == pytest.approx(divergence / size, rel=1e-9)
    assert found["minus_elbo_tempered"] - found["expected_nll"] == pytest.approx(0.3 * divergence / size, rel=1e-9)


def test_the_other_scores_are_what_they_were() -> None:
    model, scores = known_model(), validation_on(*problem(), draws=7)
    plain = scores(model, LIKELIHOOD)
    found = scores.with_bound(model, LIKELIHOOD, 50, 1.0)
    assert plain == {name: found[name] for name in plain}
    assert found.keys() - plain.keys() == {"expected_nll", "minus_elbo", "minus_elbo_tempered"}


def test_a_model_that_predicts_at_its_mean_is_drawn_from() -> None:
    model, data = known_model(), problem()
    model.prediction = "mean"
    found = validation_on(*data, draws=4000).with_bound(model, LIKELIHOOD, 50, 1.0)
    each = nll_of_draws(model, *data, LIKELIHOOD, draws=4000, seed=0, prediction=SAMPLED)
    error = float(each.std()) / math.sqrt(4000)
    assert abs(found["expected_nll"] - expected_nll(data, MEANS, STDS)) < 5 * error
    at_mean = expected_nll(data, MEANS, torch.zeros(3))
    assert found["nll"] == pytest.approx(at_mean, rel=1e-6)
    assert found["expected_nll"] - at_mean > 5 * error


def test_epochs_have_it_of_validation_and_of_the_trace() -> None:
    inputs, targets = problem()
    train, held_out, shown = ((inputs[rows], targets[rows]) for rows in (slice(20), slice(20, 30), slice(30, 37)))
    settings: dict[str, Any] = {"prior": {"name": "normal", "std": PRIOR}, "temperature": 0.4, "batch_size": 10}
    net = nn.Linear(3, 1, bias=False).double()
    result = bw.fit(net, train, "bbb", LIKELIHOOD, epochs=3, validation=held_out, trace=shown, **settings)
    last = result.histories[0].epochs[-1]
    posterior = result.model.posterior
    divergence = kl(posterior.mean_vector().detach(), posterior.std_vector().detach())
    for found, data in ((last.validation, held_out), (last.test, shown)):
        expected = float(nll_of_draws(result.model, *data, LIKELIHOOD, draws=10, seed=0).mean())
        assert found["expected_nll"] == pytest.approx(expected, rel=1e-6)
        assert found["minus_elbo"] == pytest.approx(expected + divergence / 20, rel=1e-6)
        assert found["minus_elbo_tempered"] == pytest.approx(expected + 0.4 * divergence / 20, rel=1e-6)
    assert last.validation["nll"] != last.test["nll"]
    assert {"validation.minus_elbo", "test.minus_elbo", "test.nll"} <= last.values().keys()


@pytest.mark.parametrize("method", ["map", "sgld", "mc-dropout"])
def test_what_has_no_density_has_no_bound(method: str) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.Linear(8, 1)).double()
    data = problem()
    result = bw.fit(net, data, method, LIKELIHOOD, epochs=2, batch_size=12, validation=data, trace=data, members=1)
    last = result.histories[0].epochs[-1]
    assert {"nll", "rmse"} == last.validation.keys()
    assert not [name for name in last.test if "elbo" in name or "expected" in name]


def test_looking_changes_nothing_and_more_draws_are_used() -> None:
    data, other = problem(), problem(5)
    net = nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.2), nn.Linear(6, 1)).double()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 12}
    plain = bw.fit(net, data, "hwa", LIKELIHOOD, **settings)
    looked = bw.fit(net, data, "hwa", LIKELIHOOD, trace=other, trace_draws=1, **settings)
    more = bw.fit(net, data, "hwa", LIKELIHOOD, trace=other, trace_draws=50, **settings)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, looked.model.state_dict()[name])
    assert plain.histories[0].epochs[-1].test == {}
    first, second = looked.histories[0].epochs[-1].test, more.histories[0].epochs[-1].test
    assert first["nll"] == pytest.approx(first["expected_nll"])  # of one draw they are the same
    assert second["nll"] < second["expected_nll"]


@pytest.mark.parametrize("method", ["hwa", "swa", "swag", "sgld"])
def test_the_average_is_measured_beside_the_iterate(method: str) -> None:
    data, other = problem(), problem(5)
    net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).double()
    result = bw.fit(net, data, method, LIKELIHOOD, epochs=6, batch_size=12, trace=other, members=1, seed=3)
    last = result.histories[0].epochs[-1].test
    wanted = validation_on(*other, draws=10)(result.model, result.likelihood)
    tolerance = 0.05 if method in ("hwa", "swag") else 1e-6  # BatchNorm's statistics are made with other draws
    assert {name: last[f"average.{name}"] for name in wanted} == pytest.approx(wanted, rel=tolerance)
    assert last["nll"] != pytest.approx(last["average.nll"], rel=1e-4)


def test_nothing_is_chosen_by_it() -> None:
    data = problem()
    net = nn.Linear(3, 1).double()
    with pytest.raises(bw.SettingError, match=r"plateau: metric = 'test\.nll': nothing is chosen by test data"):
        bw.fit(net, data, "bbb", LIKELIHOOD, epochs=1, trace=data, plateau={"means": "test.nll"})
    with pytest.raises(bw.SettingError, match=r"early stopping: metric = 'test\.nll': nothing is chosen by test data"):
        bw.KeepBest("test.nll")


def test_bad_traces_are_refused_before_any_work() -> None:
    data, net = problem(), nn.Linear(3, 1).double()
    with pytest.raises(bw.DataError, match="trace of type str"):
        bw.fit(net, data, "bbb", LIKELIHOOD, trace="test")
    with pytest.raises(bw.SettingError, match="trace_draws = 0"):
        bw.fit(net, data, "bbb", LIKELIHOOD, trace=data, trace_draws=0)
    with pytest.raises(bw.BayeswellError, match="trace"):
        bw.fit(net, data, "bbb", LIKELIHOOD, trace=(data[0][:, :2], data[1]))


def test_a_plateau_may_listen_to_the_bound() -> None:
    data = problem()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 12, "validation": data}
    plateau = {"means": {"metric": "validation.minus_elbo", "patience": 0, "threshold": 1e9, "factor": 0.5}}
    result = bw.fit(nn.Linear(3, 1).double(), data, "bbb", LIKELIHOOD, rate="constant", plateau=plateau, **settings)
    first, *_, last = result.histories[0].epochs
    assert last.rates["means"] < first.rates["means"]
    with pytest.raises(bw.SettingError, match=r"plateau: metric = 'validation\.minus_elbo'"):
        bw.fit(nn.Linear(3, 1).double(), data, "map", LIKELIHOOD, plateau=plateau, **settings)
