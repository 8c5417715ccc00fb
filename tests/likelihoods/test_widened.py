"""Likelihoods made less sure by a factor: the formula, its curvature, its draws; and bit for bit nothing at 1."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.testing import check_part

FACTOR = 1.7
CASES = {
    "categorical": (bw.Categorical(), 4),
    "weighted": (bw.Categorical(class_weights=(1.0, 2.0, 0.5, 1.5)), 4),
    "bernoulli": (bw.Bernoulli(), 1),
    "known": (bw.Gaussian("known", 0.6), 2),
    "learned": (bw.Gaussian("learned", 0.6), 2),
    "per_output": (bw.Gaussian("per_output", (0.4, 0.9)), 2),
    "per_input": (bw.Gaussian("per_input"), 4),
    "student_t": (bw.StudentT("learned", 0.6, 5.0), 2),
}
each_likelihood = pytest.mark.parametrize("name", CASES)


def _targets(name: str, outputs: Tensor) -> Tensor:
    if name in ("categorical", "weighted"):
        return torch.tensor([0, 3, 1, 2, 2, 0, 1])
    if name == "bernoulli":
        return torch.tensor([0, 1, 1, 0, 1, 0, 0])
    return torch.randn(7, 2, dtype=torch.float64)


@each_likelihood
def test_it_is_the_formula(name: str) -> None:
    """Logits over the factor; or noise times the factor: NLL(f, y, c s) = NLL(f / c, y / c, s) + log c an output."""
    torch.manual_seed(1)
    likelihood, size = CASES[name]
    outputs = torch.randn(7, size, dtype=torch.float64)
    targets = _targets(name, outputs)
    found = likelihood.widened(FACTOR).nll(outputs, targets)
    if name in ("categorical", "weighted", "bernoulli"):
        torch.testing.assert_close(found, likelihood.nll(outputs / FACTOR, targets))
        assert float(found.detach().sum()) != pytest.approx(float(likelihood.nll(outputs, targets).detach().sum()))
        return
    means = 2 if name != "per_input" else slice(0, 2)
    shrunk = outputs / FACTOR if name != "per_input" else torch.cat([outputs[:, means] / FACTOR, outputs[:, 2:]], 1)
    log_factor = torch.tensor(FACTOR, dtype=torch.float64).log()
    torch.testing.assert_close(found, likelihood.nll(shrunk, targets / FACTOR) + 2 * log_factor)


@each_likelihood
def test_it_keeps_what_was_learned_and_multiplies(name: str) -> None:
    likelihood, size = CASES[name]
    for parameter in likelihood.parameters():
        parameter.data.add_(0.31)
    outputs = torch.randn(7, size, dtype=torch.float64)
    targets = _targets(name, outputs)
    back = likelihood.widened(FACTOR).widened(1 / FACTOR)
    torch.testing.assert_close(back.nll(outputs, targets), likelihood.nll(outputs, targets))
    same = likelihood.widened(1.0)
    assert torch.equal(same.nll(outputs, targets), likelihood.nll(outputs, targets))


@pytest.mark.parametrize(
    "part",
    [
        bw.Categorical(temperature=FACTOR),
        bw.Categorical(temperature=0.4, class_weights=(1.0, 2.0, 0.5)),
        bw.Bernoulli(temperature=FACTOR),
        bw.Gaussian("known", 0.4, noise_factor=FACTOR),
        bw.Gaussian("per_input", noise_factor=FACTOR),
        bw.StudentT(df=7.0, noise_factor=FACTOR),
    ],
    ids=lambda part: f"{part.name}",
)
def test_gradients_curvature_and_draws_agree_with_the_nll(part: Any) -> None:
    check_part(part, "likelihood")


def test_averaged_probabilities_know_the_temperature() -> None:
    """The short cut for a few classes is the same softmax."""
    net = torch.nn.Linear(3, 4)
    x = torch.randn(5, 3)
    found = bw.predict(bw.bayesian(net, "delta"), x, bw.Categorical(temperature=FACTOR))
    assert isinstance(found, bw.ClassPrediction)
    torch.testing.assert_close(found.probabilities, F.softmax(net(x) / FACTOR, -1))


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "warm"])
def test_a_wrong_factor_is_refused(value: Any) -> None:
    with pytest.raises(SettingError, match="temperature"):
        bw.Categorical(temperature=value)
    with pytest.raises(SettingError, match="noise_factor"):
        bw.Gaussian(noise_factor=value)
