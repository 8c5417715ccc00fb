"""Weights of examples: a weight of 2 is the example met twice, in gradients, closed forms and curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.training import as_batches, fit

NOISE, PRIOR = 0.6, 0.9
LIKELIHOOD = {"name": "gaussian", "noise": "known", "std": NOISE}


def regression() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 2, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[0.8], [-1.1]], dtype=torch.float64) + NOISE * torch.randn(
        24, 1, generator=generator, dtype=torch.float64
    )
    weights = torch.arange(24) % 4  # 0, 1, 2, 3
    return x, y, weights


def repeated() -> tuple[Tensor, Tensor]:
    x, y, weights = regression()
    return x.repeat_interleave(weights, 0), y.repeat_interleave(weights, 0)


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_integer_weights_equal_repeated_rows_in_the_closed_form() -> None:
    """Mean-field optimum of linear regression: mean of the exact posterior, std 1 / sqrt(Lambda_ii)."""
    x, y, weights = regression()
    rows, targets = repeated()
    precision = rows.T @ rows / NOISE**2 + torch.eye(2, dtype=torch.float64) / PRIOR**2
    mean = torch.linalg.solve(precision, rows.T @ targets / NOISE**2)[:, 0]
    # Variational Laplace is exact for linear regression; the signs of its Hessian are averaged by the last small steps.
    settings: dict[str, Any] = {
        "prior": bw.Normal(PRIOR), "estimator": {"name": "variational_laplace", "curvature": "hessian"},
        "temperature": 1.0, "epochs": 500,
        "batch_size": 24, "stepper": {"name": "adam", "lr": 0.06}, "std_multiplier": 1.0,
    }  # fmt: skip
    net = nn.Linear(2, 1, bias=False).double()
    found = fit(net, (x, y, weights), "vl", LIKELIHOOD, **settings).model.posterior
    np.testing.assert_allclose(found.mean_vector().detach(), mean, rtol=1e-3)
    np.testing.assert_allclose(found.std_vector().detach(), precision.diagonal().rsqrt(), rtol=0.03)
    # The unweighted answer is another one.
    plain = x.T @ x / NOISE**2 + torch.eye(2, dtype=torch.float64) / PRIOR**2
    assert float((plain.diagonal().rsqrt() / precision.diagonal().rsqrt() - 1).abs().max()) > 0.1


def network() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).double()


@pytest.mark.parametrize("estimator", ["weight_sampling", {"name": "weight_sampling", "draws": 3}])
@pytest.mark.parametrize("sharpness", [None, 0.2])
def test_the_gradient_of_one_batch_is_that_of_repeated_rows(estimator: Any, sharpness: float | None) -> None:
    """N total = sum_n w_n nll_n + T KL with N the rows given: the same number as for repeated rows, with their N."""
    (x, y, weights), (rows, targets) = regression(), repeated()
    model = bw.bayesian(network(), bw.MeanField(initial_std=0.3), estimator=estimator)

    def gradient(count: int, *data: Tensor, **given: Tensor) -> tuple[Tensor, Any]:
        objective: Any = bw.ELBO(LIKELIHOOD, count, temperature=0.7)
        if sharpness is not None:
            objective = bw.Sharpness(sharpness).wrap(objective)
        terms = objective(model, *data, generator=bw.make_generator(2), **given)
        grads = torch.autograd.grad(count * terms.total, list(model.posterior.parameters()))
        return torch.cat([g.reshape(-1) for g in grads]), terms

    found, terms = gradient(len(x), x, y, weights=weights.double())
    expected, of_rows = gradient(len(rows), rows, targets)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert float(terms.nll) * len(x) == pytest.approx(float(of_rows.nll) * len(rows), rel=1e-12)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("form", ["tensors", "arrays", "list", "data set", "loader"])
def test_weights_go_with_their_examples_whatever_the_data_come_in(form: str, accumulate: int) -> None:
    """One step of plain SGD on one batch: the step of the repeated rows, scaled by the numbers of rows."""
    (x, y, weights), (rows, targets) = regression(), repeated()
    real = weights.double()
    data: Any = {
        "tensors": (x, y, weights),
        "arrays": (x.numpy(), y.numpy(), weights.numpy()),
        "list": [x, y, real],
        "data set": TensorDataset(x, y, real),
        "loader": DataLoader(TensorDataset(x, y, real), batch_size=24, shuffle=True),
    }[form]

    def moved(data: Any, lr: float) -> Tensor:
        result = fit(
            network(), data, "map", LIKELIHOOD, epochs=1, batch_size=100, rate="constant", accumulate=accumulate,
            stepper={"name": "sgd", "lr": lr, "momentum": 0.0}, temperature=0.7,
        )  # fmt: skip
        return result.model.posterior.mean_vector().detach() - bw.bayesian(network(), "delta").posterior.mean_vector()

    found, expected = moved(data, 1e-3 * len(x)), moved((rows, targets), 1e-3 * len(rows))
    assert float(expected.detach().norm()) > 1e-3
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-9, atol=1e-13)


def test_batches_keep_weights_with_their_rows() -> None:
    x, y = torch.arange(21.0)[:, None], torch.arange(21)
    batches = as_batches((x, y, torch.arange(21) * 2), 5)
    for start in (0, 2):
        for inputs, targets, weights in batches.weighted(3, start):
            assert weights is not None
            assert torch.equal(weights, 2 * inputs[:, 0])
            assert torch.equal(targets, inputs[:, 0].long())
    assert all(weights is None for *_, weights in as_batches((x, y), 5).weighted(3))
    prints = {as_batches(data, 5).fingerprint() for data in ((x, y), (x, y, x[:, 0]), (x, y, 2 * x[:, 0]))}
    assert len(prints) == 3


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_training_curves_weigh_alike(task: str) -> None:
    """nll and score of the first epoch, before anything has moved: those of the repeated rows."""
    x, y, weights = regression()
    y = (y[:, 0] > 0).long() if task == "classes" else y
    net = nn.Linear(2, 2 if task == "classes" else 1).double()
    data = [(x, y, weights), (x.repeat_interleave(weights, 0), y.repeat_interleave(weights, 0))]
    likelihood: Any = "categorical" if task == "classes" else LIKELIHOOD
    still = {"stepper": {"name": "sgd", "lr": 1e-30}, "epochs": 1, "batch_size": 7}
    records = [fit(net, some, "map", likelihood, **still).histories[0].epochs[0] for some in data]
    assert records[0].nll == pytest.approx(records[1].nll, rel=1e-9)
    score = "accuracy" if task == "classes" else "rmse"
    assert records[0].scores[score] == pytest.approx(records[1].scores[score], rel=1e-9)
    unweighted = fit(net, (x, y), "map", likelihood, **still).histories[0].epochs[0]
    assert abs(unweighted.nll - records[0].nll) > 1e-3
    if task == "numbers":
        outputs = net(x).detach()
        nll = 0.5 * ((y - outputs) / NOISE).square() + math.log(NOISE) + 0.5 * math.log(2 * math.pi)
        expected = float((weights[:, None] * nll).sum() / weights.sum())
        assert records[0].nll == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("weights", "line"),
    [
        (torch.ones(23), r"weights of shape \(23,\).*24 examples"),
        (torch.ones(24, 1), r"weights of shape \(24, 1\)"),
        (torch.ones(24).index_fill_(0, torch.tensor([5]), -0.5), "weight of example 5 is -0.5"),
        (torch.ones(24).index_fill_(0, torch.tensor([7]), math.nan), "weight of example 7 is nan"),
        (torch.ones(24).index_fill_(0, torch.tensor([7]), math.inf), "weight of example 7 is inf"),
        (torch.zeros(24), "weights of all examples are 0"),
        ("many", "weights of type str"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_before_any_work(weights: Any, line: str) -> None:
    x, y, _ = regression()
    with pytest.raises(bw.DataError, match=line) as found:
        fit(network(), (x, y, weights), "map", LIKELIHOOD)
    assert "\n" not in str(found.value)


def test_what_does_not_know_weights_says_so() -> None:
    x, y, weights = regression()
    with pytest.raises(bw.CompositionError, match="post_hoc 'laplace' knows no example weights"):
        fit(network(), (x, y, weights), "laplace", LIKELIHOOD, epochs=1)
    with pytest.raises(bw.SettingError, match="validation must be"):
        fit(network(), (x, y), "map", LIKELIHOOD, epochs=1, validation=(x, y, weights))
    for bad, line in ((weights.double() - 1, "weight of example"), (weights.double() * 0, "weights of all examples")):
        loader = DataLoader(TensorDataset(x, y, bad), batch_size=24)
        with pytest.raises(bw.DataError, match=line):
            fit(network(), loader, "map", LIKELIHOOD, epochs=1)
