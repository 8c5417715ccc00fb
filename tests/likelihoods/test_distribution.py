"""Likelihoods from functions and modules that return a torch distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch import distributions as td

from bayeswell.core.errors import DataError, NetworkError, SettingError
from bayeswell.core.protocols import Likelihood
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import LIKELIHOODS, Bernoulli, Categorical, DistributionLikelihood, Gaussian

OUTPUTS = torch.tensor([[0.3, -1.2], [2.1, 0.4], [-0.7, 1.9]])


def gamma(outputs: Tensor) -> td.Distribution:
    return td.Gamma(outputs.exp(), 2.0)


def test_nll_and_predictions_are_those_of_the_distribution() -> None:
    likelihood: Likelihood = LIKELIHOODS.resolve(gamma)
    targets = torch.tensor([[0.4, 1.1], [2.0, 0.3], [0.9, 4.2]])
    likelihood.check(targets, OUTPUTS)
    expected = gamma(OUTPUTS)
    torch.testing.assert_close(likelihood.nll(OUTPUTS, targets), -expected.log_prob(targets).sum(1))
    mean, variance = likelihood.mean_and_variance(OUTPUTS)
    torch.testing.assert_close(mean, expected.mean)
    torch.testing.assert_close(variance, expected.variance)
    torch.testing.assert_close(likelihood.cdf(OUTPUTS, targets), expected.cdf(targets))
    assert bool((likelihood.cdf(OUTPUTS, -targets) == 0).all())
    assert torch.equal(likelihood.sample(OUTPUTS, make_generator(1)), likelihood.sample(OUTPUTS, make_generator(1)))


def test_supports_follows_the_distribution() -> None:
    cases = [
        (gamma, {"mean_and_variance", "cdf"}),
        (lambda f: td.Poisson(f.exp()), {"mean_and_variance"}),
        (lambda f: td.Categorical(logits=f), {"probabilities"}),
        (lambda f: td.Independent(td.Bernoulli(logits=f), 1), {"probabilities"}),
        (lambda f: td.MultivariateNormal(f, torch.eye(2)), {"mean_and_variance"}),
    ]
    for function, expected in cases:
        likelihood = LIKELIHOODS.resolve(function).for_outputs(OUTPUTS)
        methods = {"probabilities", "mean_and_variance", "cdf", "curvature_root"}
        assert {method for method in methods if likelihood.supports(method)} == expected
    assert LIKELIHOODS.resolve(cases[1][0]).for_outputs(OUTPUTS).is_discrete


def test_distributions_match_the_named_likelihoods() -> None:
    labels, binary, reals = torch.tensor([0, 1, 1]), torch.tensor([[0.0, 1.0]] * 3), torch.randn(3, 2)
    pairs = [
        (lambda f: td.Categorical(logits=f), Categorical(), labels),
        (lambda f: td.Bernoulli(logits=f), Bernoulli(), binary),
        (lambda f: td.Normal(f, 0.5), Gaussian("known", std=0.5), reals),
    ]
    for function, named, targets in pairs:
        likelihood = LIKELIHOODS.resolve(function)
        torch.testing.assert_close(likelihood.nll(OUTPUTS, targets), named.nll(OUTPUTS, targets))
        if named.supports("probabilities"):
            torch.testing.assert_close(likelihood.probabilities(OUTPUTS), named.probabilities(OUTPUTS))


def test_parameters_of_a_module_are_learned() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale = nn.Parameter(torch.zeros(()))

        def forward(self, outputs: Tensor) -> td.Distribution:
            return td.Laplace(outputs, self.log_scale.exp())

    likelihood = LIKELIHOODS.resolve(Noise())
    likelihood.nll(OUTPUTS, OUTPUTS + 0.3).mean().backward()
    (parameter,) = likelihood.parameters()
    assert parameter.grad is not None


def test_named_subclass_is_resolved_by_name() -> None:
    @dataclass(eq=False)
    class Exponential(DistributionLikelihood):
        shift: float = 0.0
        name: ClassVar[str] = "test_exponential"

        def distribution(self, outputs: Tensor) -> td.Distribution:
            return td.Exponential((outputs + self.shift).exp())

    LIKELIHOODS.register(Exponential)
    try:
        likelihood = LIKELIHOODS.resolve({"name": "test_exponential", "shift": 0.5})
        torch.testing.assert_close(
            likelihood.nll(OUTPUTS, OUTPUTS.abs()),
            -td.Exponential((OUTPUTS + 0.5).exp()).log_prob(OUTPUTS.abs()).sum(1),
        )
    finally:
        LIKELIHOODS.unregister(Exponential)


def test_parameters_are_checked_without_the_validation_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(td.Distribution, "_validate_args", False)
    with pytest.raises(NetworkError, match="parameter rate of Poisson must satisfy"):
        LIKELIHOODS.resolve(lambda f: td.Independent(td.Poisson(f), 1)).check(torch.ones(3, 2), -torch.ones(3, 2))


def test_wrong_functions_and_targets_are_refused() -> None:
    targets = torch.ones(3, 2)
    with pytest.raises(SettingError, match="must return a torch"):
        LIKELIHOODS.resolve(lambda f: f.square()).check(targets, OUTPUTS)
    with pytest.raises(NetworkError, match="rate"):
        LIKELIHOODS.resolve(lambda f: td.Poisson(f)).check(targets, OUTPUTS)
    with pytest.raises(DataError, match="count the 3 examples"):
        LIKELIHOODS.resolve(lambda f: td.Normal(f.mean(), 1.0)).check(targets, OUTPUTS)
    with pytest.raises(DataError, match=r"gamma.*target -1 at index.*outside the support"):
        LIKELIHOODS.resolve(gamma).check(-targets, OUTPUTS)
    with pytest.raises(DataError, match="integers"):
        LIKELIHOODS.resolve(lambda f: td.Categorical(logits=f)).check(torch.ones(3), OUTPUTS)
    with pytest.raises(SettingError, match="supports"):
        LIKELIHOODS.resolve(type("Bare", (), {"nll": None})())
