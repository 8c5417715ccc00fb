"""Risk-coverage curves against slow loops, and all orders of ties."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bayeswell import metrics
from bayeswell.errors import DataError
from bayeswell.random import make_generator
from metrics.inputs import BOOTSTRAP_TOLERANCE, bootstrap


def slow_curve(losses: Tensor, scores: Tensor) -> list[float]:
    """The mean over every order of the examples that sorts the scores."""
    items = list(zip(scores.tolist(), losses.tolist(), strict=True))
    orders = [
        order for order in itertools.permutations(items) if all(a[0] <= b[0] for a, b in itertools.pairwise(order))
    ]
    curves = [[sum(loss for _, loss in order[:k]) / k for k in range(1, len(items) + 1)] for order in orders]
    return [sum(curve[k] for curve in curves) / len(curves) for k in range(len(items))]


@pytest.mark.parametrize(
    "scores",
    [[0.3, 0.1, 0.7, 0.2, 0.9, 0.4], [0.3, 0.1, 0.3, 0.2, 0.2, 0.3], [0.5] * 6, [0.1, 0.5, 0.5, 0.1, 0.1, 0.5]],
)
def test_against_all_orders(scores: list[float]) -> None:
    losses = torch.tensor([0.0, 1.0, 0.0, 2.5, 1.0, 0.25])
    expected = slow_curve(losses, torch.tensor(scores))
    curve = metrics.risk_coverage(losses, torch.tensor(scores))
    assert curve.risk.tolist() == pytest.approx(expected)
    assert curve.coverage.tolist() == pytest.approx([k / 6 for k in range(1, 7)])
    assert metrics.aurc(losses, torch.tensor(scores)) == pytest.approx(sum(expected) / 6)


@given(st.integers(1, 30), st.data())
def test_of_a_perfect_ranking_and_its_reverse(count: int, data: st.DataObject) -> None:
    wrong = data.draw(st.integers(0, count))
    losses = torch.tensor([0.0] * (count - wrong) + [1.0] * wrong)
    scores = torch.arange(count).double()
    best = sum(j / (count - wrong + j) for j in range(1, wrong + 1)) / count
    worst = sum(min(1.0, wrong / k) for k in range(1, count + 1)) / count
    assert metrics.aurc(losses, scores) == pytest.approx(best, abs=1e-14)
    assert metrics.aurc(losses, -scores) == pytest.approx(worst, abs=1e-14)
    # A score that tells nothing: the risk is the same everywhere.
    assert metrics.aurc(losses, torch.zeros(count)) == pytest.approx(wrong / count, abs=1e-14)


def test_one_example() -> None:
    found = metrics.aurc(torch.tensor([1.0]), torch.tensor([0.2]))
    assert found == metrics.Estimate(1.0, None)


def plain_aurc(losses: Tensor, scores: Tensor) -> Tensor:
    """(resamples, examples) -> (resamples,): each of those with equal scores has their mean loss."""
    ordered, order = scores.sort(-1)
    sums = nn.functional.pad(losses.gather(-1, order).cumsum(-1), (1, 0))
    first, last = (torch.searchsorted(ordered, ordered, right=right) for right in (False, True))
    shared = (sums.gather(-1, last) - sums.gather(-1, first)) / (last - first)
    return (shared.cumsum(-1) / torch.arange(1, scores.shape[-1] + 1)).mean(-1)


@pytest.mark.parametrize("steps", [1000, 8])
def test_standard_error_against_the_bootstrap(steps: int) -> None:
    generator = make_generator(5)
    # With few steps most scores are tied.
    scores = (torch.rand(800, generator=generator) * steps).round() / steps
    losses = (torch.rand(800, generator=generator) < 0.6 * scores + 0.05).double()
    found = metrics.aurc(losses, scores)
    direct = bootstrap(plain_aurc, found.value, (losses, scores))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)
    # A score that tells nothing, where early examples weigh more: an error above that of the mean loss.
    shuffled = scores[torch.randperm(800, generator=generator)]
    found = metrics.aurc(losses, shuffled)
    direct = bootstrap(plain_aurc, found.value, (losses, shuffled))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)


def test_bad_input_is_one_line() -> None:
    with pytest.raises(DataError, match=r"scores: shape \(3, 1\); the losses have shape \(3,\)"):
        metrics.aurc(torch.zeros(3), torch.zeros(3, 1))
    with pytest.raises(DataError, match="losses: NaN or infinity"):
        metrics.aurc(torch.tensor([torch.nan]), torch.zeros(1))
    with pytest.raises(DataError, match=r"losses: shape \(0,\) holds no examples"):
        metrics.risk_coverage(torch.zeros(0), torch.zeros(0))
