"""Functions and modules that return a torch distribution, as likelihoods: against the built-in ones and scipy.

Monte Carlo comparisons fail falsely once in a million runs with other seeds; seeds are fixed.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, distributions, nn

from bayeswell.errors import DataError, NetworkError, SettingError
from bayeswell.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    ClassLikelihood,
    Gaussian,
    NegativeBinomial,
    Poisson,
    RealLikelihood,
    StudentT,
    for_outputs,
)
from bayeswell.random import make_generator
from truths.statistics import assert_mean_close


def poisson(f: Tensor) -> distributions.Distribution:
    return distributions.Poisson(f.exp())


class Noisy(nn.Module):
    """A Gaussian whose noise is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.tensor(-0.4))

    def forward(self, f: Tensor) -> distributions.Distribution:
        return distributions.Normal(f, self.log_std.exp())


class Bent(nn.Module):
    """With a layer of its own, which has a dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, f: Tensor) -> distributions.Distribution:
        return distributions.Normal(self.layer(f), 0.4)


FUNCTIONS: dict[str, tuple[Callable[[Tensor], distributions.Distribution], Any, Callable[[int], Tensor]]] = {
    "poisson": (poisson, Poisson(), lambda n: torch.arange(n) % 7),
    "normal": (lambda f: distributions.Normal(f, 0.3), Gaussian("known", 0.3), lambda n: torch.linspace(-2, 2, n)),
    "student": (
        lambda f: distributions.StudentT(3.5, f, 0.6),
        StudentT("known", 0.6, 3.5),
        lambda n: torch.arange(n) / 3,
    ),
    "counts": (
        lambda f: distributions.NegativeBinomial(2.5, logits=f - np.log(2.5)),
        NegativeBinomial("known", 0.4),
        lambda n: torch.arange(n) % 5,
    ),
    "bernoulli": (lambda f: distributions.Bernoulli(logits=f), Bernoulli(), lambda n: torch.arange(n) % 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3)])
def test_the_same_as_the_built_in_likelihood(name: str, shape: tuple[int, ...]) -> None:
    function, built_in, targets_of = FUNCTIONS[name]
    likelihood = LIKELIHOODS.resolve(function)
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(1))
    targets = targets_of(outputs.numel()).reshape(shape)
    likelihood.check(targets, outputs)
    torch.testing.assert_close(likelihood.nll(outputs, targets), built_in.nll(outputs, targets))
    # (S,) and (S, 1) are interchangeable, and nothing becomes (S, S).
    if shape == (6, 1):
        torch.testing.assert_close(likelihood.nll(outputs, targets[:, 0]), built_in.nll(outputs, targets))
    form = for_outputs(likelihood, outputs)
    if isinstance(built_in, ClassLikelihood):
        assert isinstance(form, ClassLikelihood)
        assert not isinstance(form, RealLikelihood)
        torch.testing.assert_close(form.class_probabilities(outputs), built_in.class_probabilities(outputs))
    else:
        assert isinstance(form, RealLikelihood)
        assert not isinstance(form, ClassLikelihood)
        for found, expected in zip(form.mean_and_variance(outputs), built_in.mean_and_variance(outputs), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 4)])
def test_classes(shape: tuple[int, ...]) -> None:
    likelihood = LIKELIHOODS.resolve(lambda f: distributions.Categorical(logits=f))
    built_in = Categorical(class_axis=-1)
    outputs = torch.randn(shape, dtype=torch.float64, generator=make_generator(2))
    labels = torch.randint(4, shape[:-1], generator=make_generator(3))
    likelihood.check(labels, outputs)
    torch.testing.assert_close(likelihood.nll(outputs, labels), built_in.nll(outputs, labels))
    form = for_outputs(likelihood, outputs)
    torch.testing.assert_close(form.class_probabilities(outputs), built_in.class_probabilities(outputs))


def test_event_axes_belong_to_the_example() -> None:
    covariance = torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)
    likelihood = LIKELIHOODS.resolve(lambda f: distributions.MultivariateNormal(f, covariance))
    outputs = torch.randn(5, 2, dtype=torch.float64, generator=make_generator(4))
    targets = torch.randn(5, 2, dtype=torch.float64, generator=make_generator(5))
    truth = [
        -scipy.stats.multivariate_normal.logpdf(y, f, covariance.numpy())
        for y, f in zip(targets.numpy(), outputs.numpy(), strict=True)
    ]
    likelihood.check(targets, outputs)
    np.testing.assert_allclose(likelihood.nll(outputs, targets), truth, rtol=1e-10)
    spread = LIKELIHOODS.resolve(lambda f: distributions.Independent(distributions.Bernoulli(logits=f), 1))
    labels = torch.tensor([[0, 1]] * 5)
    torch.testing.assert_close(spread.nll(outputs, labels), Bernoulli().nll(outputs, labels))
    assert for_outputs(spread, outputs).class_probabilities(outputs).shape == (5, 2, 2)


def test_draws_come_from_the_generator_and_leave_the_global_one_alone() -> None:
    likelihood = LIKELIHOODS.resolve(poisson)
    outputs = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64).expand(100_000, 3)
    before = torch.get_rng_state()
    generator = make_generator(6)
    drawn = likelihood.sample_targets(outputs, generator)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn, likelihood.sample_targets(outputs, make_generator(6)))
    assert not torch.equal(drawn, likelihood.sample_targets(outputs, generator))
    assert_mean_close(drawn, outputs[0].exp())
    torch.manual_seed(3)
    first = likelihood.sample_targets(outputs, None)
    torch.manual_seed(3)
    assert torch.equal(first, likelihood.sample_targets(outputs, None))


def test_scores_of_draws_have_the_fisher_information() -> None:
    """What variational Laplace makes its curvature of: for a Poisson in its log rate, the rate."""
    likelihood = LIKELIHOODS.resolve(poisson)
    rows = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64).repeat(100_000, 1).requires_grad_()
    drawn = likelihood.sample_targets(rows, make_generator(7))
    (score,) = torch.autograd.grad(likelihood.nll(rows, drawn).sum(), rows)
    assert_mean_close(score.square(), rows[0].detach().exp())


def test_a_module_brings_its_parameters() -> None:
    likelihood = LIKELIHOODS.resolve(Noisy())
    assert isinstance(likelihood, nn.Module)
    assert [name for name, _ in likelihood.named_parameters()] == ["function.log_std"]
    outputs, targets = torch.tensor([0.3, 1.1]), torch.tensor([0.1, 1.9])
    truth = -scipy.stats.norm.logpdf(targets.numpy(), outputs.numpy(), np.exp(-0.4))
    np.testing.assert_allclose(likelihood.nll(outputs, targets).detach(), truth, rtol=1e-5)
    twin = copy.deepcopy(likelihood)
    assert twin.function is not likelihood.function


def test_a_module_with_layers_takes_outputs_of_another_dtype() -> None:
    likelihood = LIKELIHOODS.resolve(Bent())
    outputs = torch.randn(4, 3, dtype=torch.float64, generator=make_generator(8))
    assert likelihood.nll(outputs, torch.zeros(4, 3)).dtype == torch.float64
    mean, variance = for_outputs(likelihood, outputs).mean_and_variance(outputs)
    assert {mean.dtype, variance.dtype} == {torch.float64}


def test_no_curvature_is_promised() -> None:
    assert not hasattr(LIKELIHOODS.resolve(poisson), "curvature_root")


def test_a_distribution_without_moments_predicts_nothing() -> None:
    base = distributions.transforms.ExpTransform()
    likelihood = LIKELIHOODS.resolve(
        lambda f: distributions.TransformedDistribution(distributions.Normal(f, 0.3), [base, base])
    )
    form = for_outputs(likelihood, torch.zeros(4))
    assert not isinstance(form, ClassLikelihood | RealLikelihood)


@pytest.mark.parametrize(
    ("function", "targets", "outputs", "words"),
    [
        (poisson, torch.tensor([1.0, -2.0]), torch.zeros(2), ["poisson: target -2 at index 1", "Poisson"]),
        (poisson, torch.tensor([1.0, float("nan")]), torch.zeros(2), ["target nan at index 1"]),
        (poisson, torch.zeros(4), torch.zeros(4, 4), ["(4,)", "(4, 4)"]),
        (lambda f: distributions.Categorical(logits=f), torch.zeros(2), torch.zeros(2, 3), ["float32", "integers"]),
        (
            lambda f: distributions.Categorical(logits=f),
            torch.tensor([0, 5]),
            torch.zeros(2, 3),
            ["target 5 at index 1"],
        ),
        (
            lambda f: distributions.Normal(f.sum(), 1.0),
            torch.zeros(2),
            torch.zeros(2),
            ["batch shape ()", "examples (2)"],
        ),
        (lambda f: distributions.Normal(f.T, 1.0), torch.zeros(3, 2), torch.zeros(2, 3), ["batch shape (3, 2)"]),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    function: Any, targets: Tensor, outputs: Tensor, words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        LIKELIHOODS.resolve(function).check(targets, outputs)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_a_function_that_returns_something_else() -> None:
    with pytest.raises(SettingError, match=r"likelihood <lambda> returned a Tensor.*Distribution"):
        LIKELIHOODS.resolve(lambda f: f.exp()).nll(torch.zeros(3), torch.zeros(3))


@pytest.mark.parametrize("checked", [True, False])
def test_parameters_that_torch_refuses_are_one_line(checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a torch.compile, which turns torch's own check off in the whole process."""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", checked)
    with pytest.raises(NetworkError, match="rate") as caught:
        LIKELIHOODS.resolve(lambda f: distributions.Poisson(f)).nll(torch.tensor([-1.0, 2.0]), torch.zeros(2))
    assert "\n" not in str(caught.value)
    # Who asks for no check by name has none.
    likelihood = LIKELIHOODS.resolve(lambda f: distributions.Poisson(f, validate_args=False))
    assert likelihood.nll(torch.tensor([-1.0, 2.0]), torch.zeros(2)).tolist() == [-1.0, 2.0]


def test_what_is_no_likelihood_is_refused() -> None:
    with pytest.raises(SettingError, match="lacks `nll`"):
        LIKELIHOODS.resolve(object())
    for choice in (distributions.Poisson, distributions.Poisson(2.0)):
        with pytest.raises(SettingError, match=r"likelihood = Poisson.*lambda outputs: Poisson"):
            LIKELIHOODS.resolve(choice)


def test_copies_and_pickles() -> None:
    for choice in (poisson, Noisy()):
        likelihood = LIKELIHOODS.resolve(choice)
        outputs, targets = torch.tensor([0.3, 1.1]), torch.tensor([1.0, 2.0])
        for twin in (copy.deepcopy(likelihood), pickle.loads(pickle.dumps(likelihood))):
            assert torch.equal(twin.nll(outputs, targets), likelihood.nll(outputs, targets))
