"""Temperature scaling: the temperature that was planted is found, and nothing gets worse."""

from __future__ import annotations

import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.metrics.temperature import TEMPERATURE_RANGE
from metrics.inputs import awkward, labels_from, random_labels, random_probabilities

CASES = awkward()


@pytest.mark.parametrize("planted", [0.4, 1.7, 6.0])
def test_finds_the_temperature_that_was_planted(planted: float) -> None:
    true = random_probabilities(20_000, 4)
    y = labels_from(true)
    given_p = metrics.scale_by_temperature(true, 1 / planted)  # too sure by this factor
    found = metrics.fit_temperature(given_p, y)
    assert found == pytest.approx(planted, rel=0.05)
    better = metrics.scale_by_temperature(given_p, found)
    assert metrics.nll(better, y) < metrics.nll(given_p, y)
    assert metrics.ece(better, y) < 0.015 < 0.05 < metrics.ece(given_p, y)
    assert torch.equal(better.argmax(-1), given_p.argmax(-1))


def test_against_a_bounded_search() -> None:
    p = random_probabilities(200, 4)
    y = labels_from(metrics.scale_by_temperature(p, 1.8))
    search = scipy.optimize.minimize_scalar(
        lambda t: metrics.nll(metrics.scale_by_temperature(p, t), y), bounds=TEMPERATURE_RANGE, options={"xatol": 1e-9}
    )
    assert metrics.fit_temperature(p, y) == pytest.approx(search.x, rel=1e-6)
    assert 1.3 < search.x < 2.4
    logits = 3 * p.log() + 0.7
    assert metrics.fit_temperature_of_logits(logits, y) == pytest.approx(3 * search.x, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_awkward_predictions_never_get_worse(case: str, dtype: torch.dtype) -> None:
    p, y = CASES[case][0].to(dtype), CASES[case][1]
    found = metrics.fit_temperature(p, y)
    assert TEMPERATURE_RANGE[0] <= found <= TEMPERATURE_RANGE[1] * (1 + 1e-12)
    scaled = metrics.scale_by_temperature(p, found)
    assert scaled.dtype == dtype
    assert metrics.nll(scaled, y) <= metrics.nll(p, y)


@given(st.integers(1, 12), st.integers(2, 4), st.sampled_from([0.3, 3.0, 60.0]), st.integers(0, 99))
def test_never_worse_on_what_it_was_fitted_to(examples: int, classes: int, scale: float, seed: int) -> None:
    p = random_probabilities(examples, classes, scale=scale, seed=seed)
    y = random_labels(examples, classes=classes, seed=seed)
    assert metrics.nll(metrics.scale_by_temperature(p, metrics.fit_temperature(p, y)), y) <= metrics.nll(p, y)


def test_one_impossible_example_does_not_spoil_the_rest() -> None:
    # A label of probability 1e-37 costs 85 nats in the fit but 28 in the NLL, which has a floor: T = 4 is too much.
    wrong = torch.tensor([1e-37] + [0.99] * 60, dtype=torch.float64)
    p, y = torch.stack([wrong, 1 - wrong], -1), torch.zeros(61).long()
    assert metrics.nll(metrics.scale_by_temperature(p, 4), y) > metrics.nll(p, y)
    assert metrics.fit_temperature(p, y) == 1.0


def test_ends_of_the_range() -> None:
    p = random_probabilities(30, 3)
    low, high = TEMPERATURE_RANGE
    assert metrics.fit_temperature(p, p.argmax(-1)) == pytest.approx(low)  # never wrong: as sure as it may be
    assert metrics.fit_temperature(p, p.argmin(-1)) == pytest.approx(high)  # always wrong: as unsure
    assert metrics.fit_temperature(*CASES["all equal"]) == 1.0  # nothing to fit


def test_scaling_is_softmax_of_logits_over_t() -> None:
    logits = torch.log(random_probabilities(3, 4, 5)) + 1.5
    expected = (logits / 2.3).softmax(-1)
    assert torch.allclose(metrics.scale_by_temperature(logits.softmax(-1), 2.3), expected, rtol=1e-12)
    p = random_probabilities(4, 3)
    assert torch.equal(metrics.scale_by_temperature(p, 1), p)


def test_bad_input_is_one_line() -> None:
    p = random_probabilities(2, 3)
    with pytest.raises(SettingError, match="temperature = 0; it must be a finite number above 0"):
        metrics.scale_by_temperature(p, 0)
    with pytest.raises(DataError, match="label 3 at index 1"):
        metrics.fit_temperature(p, torch.tensor([0, 3]))
    with pytest.raises(DataError, match=r"logits: shape \(3,\); they must be \(S, ..., K\)"):
        metrics.fit_temperature_of_logits(torch.zeros(3), torch.zeros(3).long())
    with pytest.raises(DataError, match="logits: NaN"):
        metrics.fit_temperature_of_logits(torch.full((2, 3), torch.nan), torch.zeros(2).long())
