"""Facts that hold for every likelihood: normalization, moments of samples, curvature, copies."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError, Unsupported
from bayeswell.core.protocols import Likelihood
from bayeswell.core.random import make_generator
from bayeswell.core.registry import describe
from bayeswell.likelihoods import LIKELIHOODS, Categorical, Gaussian

from .cases import CASES, outputs_of

REALS = [name for name in CASES if CASES[name][0].supports("mean_and_variance")]
CLASSES = [name for name in CASES if CASES[name][0].supports("probabilities") and name != "next_token"]


@pytest.mark.parametrize("name", [n for n in REALS if not CASES[n][0].is_discrete])
def test_density_of_real_targets_integrates_to_one(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)[:1]
    center = likelihood.mean_and_variance(outputs)[0].detach()
    # y = sinh(u): heavy tails end within the grid; the trapezoid rule is exact to rounding for smooth integrands.
    u = torch.linspace(-22, 22, 4001, dtype=torch.float64)
    values = center.expand(len(u), -1).clone()
    values[:, 0] += u.sinh()
    density = torch.exp(-likelihood.nll(outputs.expand(len(u), -1), values)).detach()
    # The other output sits at its center: the integral is its density there.
    other = torch.exp(-likelihood.nll(outputs, center)).detach()
    at_center = torch.trapezoid(density * u.cosh(), u)
    assert at_center > other
    values[:, 0], swapped = center[0, 0], values[:, 0].clone()
    values[:, 1] = swapped - center[0, 0] + center[0, 1]
    product = at_center * torch.trapezoid(
        torch.exp(-likelihood.nll(outputs.expand(len(u), -1), values)).detach() * u.cosh(), u
    )
    assert float(product / other) == pytest.approx(1, rel=1e-6)


def test_probabilities_of_counts_sum_to_one_and_match_the_moments() -> None:
    likelihood, outputs = CASES["poisson"][0], outputs_of("poisson")[:1, :1]
    counts = torch.arange(400, dtype=torch.float64)[:, None]
    mass = torch.exp(-likelihood.nll(outputs.expand(400, 1), counts)).detach()
    mean, variance = (part.detach() for part in likelihood.mean_and_variance(outputs))
    assert float(mass.sum()) == pytest.approx(1, rel=1e-6)
    first = (mass * counts[:, 0]).sum()
    torch.testing.assert_close(first, mean[0, 0], rtol=1e-6, atol=0)
    torch.testing.assert_close((mass * (counts[:, 0] - first).square()).sum(), variance[0, 0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", CLASSES)
def test_probabilities_are_those_of_the_nll(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)
    probabilities = likelihood.probabilities(outputs)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(probabilities.shape[:-1], dtype=torch.float64))
    for label in range(probabilities.shape[-1]):
        targets = torch.full(probabilities.shape[:-1], label)
        expected = -probabilities[..., label].log().reshape(len(outputs), -1).sum(1)
        torch.testing.assert_close(likelihood.nll(outputs, targets), expected)


@pytest.mark.parametrize("name", REALS)
def test_samples_have_the_mean_and_variance(name: str) -> None:
    likelihood, count = CASES[name][0], 20_000
    outputs = outputs_of(name)[:1].expand(count, -1)
    samples = likelihood.sample(outputs, make_generator(5)).detach()
    mean, variance = (part[0].detach() for part in likelihood.mean_and_variance(outputs))
    # 4.5 standard errors: 1 failure in 150,000 for each number.
    assert bool(((samples.mean(0) - mean).abs() < 4.5 * (variance / count).sqrt()).all())
    squares = (samples - mean).square()
    assert bool(((squares.mean(0) - variance).abs() < 4.5 * squares.std(0) / math.sqrt(count)).all())


@pytest.mark.parametrize("name", CLASSES)
def test_samples_have_the_class_probabilities(name: str) -> None:
    likelihood, count = CASES[name][0], 5_000
    outputs = outputs_of(name)[:1].expand(count, *CASES[name][1][1:])
    samples = likelihood.sample(outputs, make_generator(5)).long()
    probabilities = likelihood.probabilities(outputs)[0]
    shares = torch.nn.functional.one_hot(samples, probabilities.shape[-1]).double().mean(0)
    se = (probabilities * (1 - probabilities) / count).sqrt()
    assert bool(((shares - probabilities).abs() < 4.5 * se).all())


def _hessian_over_targets(likelihood: Likelihood, outputs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean over sampled targets of the Hessian of the NLL by autograd, and its standard error."""
    targets = likelihood.sample(outputs.expand(count, *outputs.shape[1:]), make_generator(7))

    def nll(flat: Tensor, target: Tensor) -> Tensor:
        return likelihood.nll(flat.reshape(outputs.shape), target[None]).sum()

    hessians = torch.stack([torch.func.hessian(nll)(outputs.flatten(), target).detach() for target in targets])
    return hessians.mean(0), hessians.std(0) / math.sqrt(count)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("categorical, images", "next_token")])
def test_curvature_root_squares_to_the_expected_hessian(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)[:1]
    expected, expected_se = _hessian_over_targets(likelihood, outputs, 60)
    count = 20_000
    roots = likelihood.curvature_root(outputs.expand(count, -1), make_generator(3)).detach()
    products = roots[:, :, None] * roots[:, None, :]
    se = (products.var(0) / count + expected_se.square()).sqrt()
    # 60 targets: 5 standard errors fail in fewer than 1 of 100,000 cases for each number.
    assert bool(((products.mean(0) - expected).abs() <= 5 * se + 1e-9).all())
    if likelihood.supports("curvature_diagonal"):
        diagonal = likelihood.curvature_diagonal(outputs)[0].detach()
        torch.testing.assert_close(diagonal, roots[:1].square()[0], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_curvature_root_is_differentiable_for_extreme_outputs(name: str) -> None:
    likelihood = CASES[name][0]
    outputs = (outputs_of(name).float() * 300).requires_grad_()
    root = likelihood.curvature_root(outputs, make_generator(1)).square().sum() + 0 * outputs.sum()
    (gradient,) = torch.autograd.grad(root, outputs)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n][0].supports("cdf")])
def test_cdf_is_the_share_of_samples(name: str) -> None:
    likelihood, count = CASES[name][0], 10_000
    outputs = outputs_of(name)[:1].expand(count, -1)
    samples = likelihood.sample(outputs, make_generator(2))
    for quantile in (0.2, 0.7):
        value = samples.quantile(quantile, 0, interpolation="lower").expand_as(samples)
        share = (samples <= value).double().mean(0)
        assert bool(((likelihood.cdf(outputs, value)[0] - share).abs() < 4.5 * 0.5 / math.sqrt(count)).all())
    assert bool((likelihood.cdf(outputs[:1], samples[:1] - 1e4) < 1e-6).all())


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n][0].supports("tempered")])
def test_tempered_keeps_learned_noise_and_composes(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.add_(0.3)
    twice, once = likelihood.tempered(1.5).tempered(2.0), likelihood.tempered(3.0)
    targets = likelihood.sample(outputs, make_generator(1))
    torch.testing.assert_close(twice.nll(outputs, targets), once.nll(outputs, targets))
    if likelihood.supports("mean_and_variance"):
        variance, wider = (part.mean_and_variance(outputs)[1] for part in (likelihood, once))
        torch.testing.assert_close(wider, 9 * variance)
    else:
        expected = likelihood.probabilities(outputs).log().div(3).softmax(-1)
        torch.testing.assert_close(once.probabilities(outputs), expected)


@pytest.mark.parametrize("name", CASES)
def test_description_rebuilds_the_likelihood(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)
    rebuilt = LIKELIHOODS.resolve(json.loads(json.dumps(describe(likelihood))))
    rebuilt.load_state_dict(likelihood.state_dict())
    targets = likelihood.sample(outputs, make_generator(1))
    assert torch.equal(rebuilt.nll(outputs, targets), likelihood.nll(outputs, targets))


@pytest.mark.parametrize("name", CASES)
def test_same_seed_gives_the_same_sample(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)
    before = torch.get_rng_state()
    first, second = (likelihood.sample(outputs, make_generator(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", CASES)
def test_half_precision_outputs_have_a_float32_loss(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)
    targets = likelihood.sample(outputs, make_generator(1))
    loss = likelihood.nll(outputs.bfloat16(), targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(
        loss.double(), likelihood.nll(outputs.bfloat16().double(), targets), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", ["gaussian, learned", "poisson", "bernoulli"])
def test_column_targets_do_not_broadcast(name: str) -> None:
    likelihood, outputs = CASES[name][0], outputs_of(name)[:, :1]
    targets = likelihood.sample(outputs, make_generator(1))
    assert torch.equal(likelihood.nll(outputs, targets[:, 0]), likelihood.nll(outputs, targets))
    with pytest.raises(DataError, match="shape"):
        likelihood.nll(outputs, targets[:3, 0])


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.uint8, torch.int32])
def test_integer_targets_of_any_dtype_are_converted(dtype: torch.dtype) -> None:
    labels = torch.tensor([0, 1, 1, 0, 1])
    for name in ("categorical", "gaussian, learned", "poisson", "bernoulli"):
        likelihood, outputs = CASES[name][0], outputs_of(name)
        outputs = outputs if name == "categorical" else outputs[:, 0]
        likelihood.check(labels.to(dtype), outputs)
        torch.testing.assert_close(likelihood.nll(outputs, labels.to(dtype)), likelihood.nll(outputs, labels))


def test_missing_methods_are_unsupported_by_name() -> None:
    assert not Gaussian().supports("probabilities")
    with pytest.raises(Unsupported, match=r"gaussian.*probabilities"):
        Gaussian().probabilities(torch.zeros(2, 1))
    with pytest.raises(Unsupported, match=r"categorical.*mean_and_variance"):
        Categorical().mean_and_variance(torch.zeros(2, 3))
