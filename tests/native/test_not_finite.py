"""Numbers that are none, and numbers that are too small: what torch would have made of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.posteriors.one_pass import GaussianPrior, draws_and_kl
from bayeswell.posteriors.std_forms import AS_IT_IS, FROM_LOG_STD, StdForm
from native.formulas import CONSTANT, KEYS, TINY, each_form, needs_library, numbers, precisions, states, the_same
from native.steps import STEPS, Result, step_vectors

BY_FORM: dict[int, StdForm] = {0: FROM_LOG_STD, 1: AS_IT_IS}


def eager_twin(function: Callable[[], Any]) -> tuple[Any, Any]:
    """With the library, and without."""
    found = function()
    with native.disabled():
        return found, function()


def assert_same_kinds(found: Tensor, expected: Tensor) -> None:
    """NaN where NaN is expected, the same infinity where an infinity is, and finite elsewhere."""
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isposinf(), expected.isposinf())
    assert torch.equal(found.isneginf(), expected.isneginf())


@needs_library
@each_form
@pytest.mark.parametrize("where", ["mean", "state", "noise", "inverse_variance", "of_weights", "of_kl"])
@pytest.mark.usefixtures("each_library")
def test_what_is_not_finite_comes_out_as_from_torch(form: int, where: str) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        if form == 0 or where != "state" or not bad < 0:  # a standard deviation is not negative
            check_not_finite(form, bad, where)


def check_not_finite(form: int, bad: float, where: str) -> None:
    """In the middle of a vector register, and in the rest at the end."""
    size, places = 257, (100, 256)
    given = {
        "mean": numbers(size, 1),
        "state": numbers(size, 4, 0.5, -2.0) if form == 0 else states(1, size),
        "noise": numbers(size, 2)[None],
        "inverse_variance": precisions("vector", size).values,
        "of_weights": numbers(size, 3)[None],
        "of_kl": torch.tensor(0.37),
    }
    for place in places:
        given[where].view(-1)[place if given[where].numel() > 1 else 0] = bad

    prior = GaussianPrior(native.Precision(given["inverse_variance"], None))

    def run() -> tuple[Tensor, ...]:
        mean, state = given["mean"].clone().requires_grad_(), given["state"].clone().requires_grad_()
        weights, kl = draws_and_kl(mean, state, given["noise"], prior, CONSTANT, BY_FORM[form])
        assert weights is not None
        grads = torch.autograd.grad((weights, kl), (mean, state), (given["of_weights"], given["of_kl"]))
        return weights.detach(), kl.detach(), *grads

    found, expected = eager_twin(run)
    for which, (one, other) in enumerate(zip(found, expected, strict=True)):
        if which == 1:
            # The KL of an infinite std is infinity here, and torch's is infinity minus infinity.
            assert bool(one.isfinite()) == bool(other.isfinite())
        else:
            assert_same_kinds(one, other)
    assert not all(bool(result.isfinite().all()) for result in found)


@needs_library
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.usefixtures("each_library")
def test_what_is_not_finite_shows_in_sums_and_steps(bad: float) -> None:
    """A gradient that is not finite: so is every sum, and every number made of it, and no other number."""
    for (name, step), place in itertools.product(STEPS.items(), (100, 256)):
        vectors = step_vectors(257)
        vectors["grads"][place] = bad
        before = {key: vector.clone() for key, vector in vectors.items()}
        found: Result = {**vectors, **(step.run(vectors) or {})}
        # An infinite denominator: Adam-like steps may stay finite, a clipped one always; but what they keep is not.
        expected = step.equations({key: vector.double() for key, vector in before.items()})
        for key, value in expected.items():
            if isinstance(value, Tensor):
                assert torch.equal(found[key].isfinite(), value.isfinite()), f"{name}: {key}"
            else:
                assert not math.isfinite(found[key]), f"{name}: {key}"


@needs_library
@pytest.mark.usefixtures("each_library")
def test_stds_that_underflow() -> None:
    """log_std = -200: the std is 0, the draw is the mean, and the KL's slope by log_std is still -1."""
    size, h, c = 257, the_same(0.35, 257), 0.37
    mean, state, noise = numbers(size, 1, 0.7, 0.1), torch.full((size,), -200.0), numbers(size, 2)[None]
    assert torch.equal(native.fresh_draws(0, KEYS, mean, state)[0], mean)
    weights, kl = native.draw_and_kl(0, mean, state, noise, h)
    assert weights is not None
    assert torch.equal(weights, mean[None] if weights.dim() == 2 else mean)
    assert kl == pytest.approx(float((0.35 * mean.double().square() / 2 + 200).sum()), rel=1e-6)
    of_mean, of_state = native.slopes(0, mean, state, noise, h, numbers(size, 3)[None], torch.tensor(c))
    assert torch.equal(of_state, torch.full((size,), -torch.tensor(c)))
    torch.testing.assert_close(of_mean, numbers(size, 3) + c * 0.35 * mean, rtol=1e-6, atol=1e-6)
    assert torch.equal(native.variance(0, state), torch.zeros(size))
    assert torch.equal(native.variance_slope(0, noise[0], state).abs(), torch.zeros(size))


@needs_library
@pytest.mark.usefixtures("each_library")
def test_stds_of_zero_as_they_are() -> None:
    """std = 0: the logarithm stops at the smallest normal number and has no slope there."""
    size, h, c = 257, the_same(0.35, 257), 0.37
    mean, state, noise, g = (
        numbers(size, 1, 0.7, 0.1),
        torch.zeros(size),
        numbers(size, 2)[None],
        numbers(size, 3)[None],
    )
    state[3], state[256] = TINY / 4, 2 * TINY
    weights, kl = native.draw_and_kl(1, mean, state, noise, h)
    assert weights is not None
    assert torch.equal(weights.view(-1), mean)
    logs = 256 * math.log(TINY) + math.log(2 * TINY)
    assert kl == pytest.approx(float((0.35 * mean.double().square() / 2).sum()) - logs, rel=1e-6)
    _, of_state = native.slopes(1, mean, state, noise, h, g, torch.tensor(c))
    torch.testing.assert_close(of_state[:256], (g * noise)[0, :256], rtol=1e-6, atol=0)
    assert float(of_state[256]) == pytest.approx(-c / (2 * TINY), rel=1e-6)


@needs_library
@pytest.mark.usefixtures("each_library")
def test_exponentials_at_their_edges() -> None:
    """exp ends at the edges of float32's normal numbers: 0 below, infinity above."""
    state = torch.tensor(
        [-1e30, -1000.0, -104.0, -87.5, -87.0, -86.9, -1e-8, 0.0, 1e-8, 43.9, 44.1, 87.9, 88.0, 89.0, 1e30]
    )
    ones = torch.ones(15)
    _, std = native.slopes(0, ones, state, ones[None], the_same(1.0, 15), ones[None], None)  # d (m + s) / d log s = s
    expected = state.double().exp().float()
    expected[3] = 0.0  # exp(-87.5) is below the normal numbers
    torch.testing.assert_close(std, expected, rtol=5e-7, atol=0)
