"""Agreement, total variation and the errors of means and stds, against loops and by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.metrics import agreement, mean_error, std_ratio, total_variation
from bayeswell.random import make_generator


def some_probabilities(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=make_generator(seed)).mul(1.7).softmax(-1)


def test_agreement_by_hand() -> None:
    found = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    truth = torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.4, 0.3], [0.5, 0.2, 0.3], [0.1, 0.2, 0.7]])
    # Same, other, same (the lower of two tied classes), other (likewise).
    assert agreement(found, truth) == 0.5
    assert agreement(found, found) == 1.0


def test_agreement_against_a_loop() -> None:
    found, truth = some_probabilities(11, 3, 4), some_probabilities(11, 3, 4, seed=2)
    places = list(itertools.product(range(11), range(3)))
    same = [np.argmax(found[place].numpy()) == np.argmax(truth[place].numpy()) for place in places]
    assert 0 < sum(same) < len(same)
    assert agreement(found, truth) == pytest.approx(sum(same) / len(same))


def test_total_variation_is_the_largest_difference_of_an_event() -> None:
    """The definition: max over all sets A of classes of |P(A) - R(A)|, averaged over inputs."""
    found, truth = some_probabilities(9, 4), some_probabilities(9, 4, seed=2)
    sets = [list(chosen) for size in range(5) for chosen in itertools.combinations(range(4), size)]
    slow = [
        max(abs(float(p[chosen].sum() - r[chosen].sum())) for chosen in sets) for p, r in zip(found, truth, strict=True)
    ]
    assert total_variation(found, truth) == pytest.approx(np.mean(slow), rel=1e-12)
    assert total_variation(found, truth) == total_variation(truth, found)


def test_total_variation_at_its_ends() -> None:
    found = some_probabilities(5, 3)
    assert total_variation(found, found) == 0
    certain = torch.eye(3).repeat(2, 1)
    assert total_variation(certain, certain.roll(1, -1)) == 1
    assert total_variation(certain.float(), torch.full((6, 3), 1 / 3)) == pytest.approx(2 / 3)


def test_mean_error_and_std_ratio_against_loops() -> None:
    generator = make_generator(3)
    mean, truth, std, spread = (torch.rand(7, 2, generator=generator, dtype=torch.float64) + 0.3 for _ in range(4))
    places = list(itertools.product(range(7), range(2)))
    squares = [((mean[place] - truth[place]) / spread[place]).item() ** 2 for place in places]
    assert mean_error(mean, truth, spread) == pytest.approx(math.sqrt(sum(squares) / 14), rel=1e-12)
    ratios = [(std[place] / spread[place]).item() for place in places]
    assert std_ratio(std, spread) == pytest.approx(sum(ratios) / 14, rel=1e-12)
    # Neither depends on the units of the targets.
    assert mean_error(3 * mean - 7, 3 * truth - 7, 3 * spread) == pytest.approx(mean_error(mean, truth, spread))
    assert std_ratio(3 * std, 3 * spread) == pytest.approx(std_ratio(std, spread))


def test_regression_fidelity_at_its_ends() -> None:
    truth, spread = torch.tensor([0.4, -2.0, 0.1]), torch.tensor([0.2, 0.5, 0.7])
    assert mean_error(truth, truth, spread) == 0
    assert mean_error(truth + 1.5 * spread, truth, spread) == pytest.approx(1.5)
    assert std_ratio(torch.zeros(3), spread) == 0
    assert std_ratio(0.8 * spread, spread) == pytest.approx(0.8)


def test_mean_error_of_independent_draws() -> None:
    """sqrt(1 / D): with 4000 inputs the square is chi-square of 4000 degrees, so 8 % is 5 standard errors."""
    draws = torch.randn(25, 4000, generator=make_generator(4)) * 0.3 + 2.0
    found = mean_error(draws.mean(0), torch.full((4000,), 2.0), torch.full((4000,), 0.3))
    assert found == pytest.approx(1 / 5, rel=0.06)


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        (agreement, (torch.ones(3, 2) / 2, torch.ones(4, 2) / 2), r"shape \(3, 2\); the reference has shape \(4, 2\)"),
        (agreement, (torch.randn(3, 2), torch.ones(3, 2) / 2), "logits need a softmax"),
        (total_variation, (torch.ones(3, 2) / 2, torch.ones(3, 2)), "sums go from 2 to 2"),
        (total_variation, (torch.ones(3, 2) / 2, torch.full((3, 2), math.nan)), "must be at least 0 and sum to 1"),
        (total_variation, (torch.ones(0, 2), torch.ones(0, 2)), "at least one example"),
        (mean_error, (torch.ones(3), torch.ones(3, 1), torch.ones(3, 1)), r"mean: shape \(3,\); reference_std has"),
        (mean_error, (torch.ones(3), torch.ones(3), torch.zeros(3)), "reference_std: the smallest is 0; it must be ab"),
        (mean_error, (torch.full((3,), math.inf), torch.ones(3), torch.ones(3)), "mean: NaN or infinity"),
        (std_ratio, (torch.tensor([0.1, -0.2]), torch.ones(2)), "std: the smallest is -0.2; it must be at least 0"),
        (std_ratio, (torch.ones(2), torch.tensor([1.0, 0.0])), "reference_std: the smallest is 0"),
        (std_ratio, (torch.ones(0), torch.ones(0)), "std: shape .* holds no examples"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(function: Any, arguments: tuple[Tensor, ...], says: str) -> None:
    with pytest.raises(bw.DataError, match=says):
        function(*arguments)
