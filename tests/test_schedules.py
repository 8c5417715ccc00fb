"""KL weights: the formulas of the papers, in exact arithmetic, and what must hold for every one of them."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayeswell as bw

RATIOS = [0.5, 0.97, 1.0, 2.0]


def shares(scheme: bw.Uniform | bw.Geometric, batches: int) -> np.ndarray:
    """pi_i = weight_i / M for i = 1..M, as the scheme gives them."""
    weights = [scheme(bw.Progress(batch=i, batches=batches)) for i in range(batches)]
    return np.array(weights) / batches


def check_shares_sum_to_one(scheme: bw.Uniform | bw.Geometric, batches: int) -> None:
    found = shares(scheme, batches)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert math.fsum(found) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("batches", [1, 2, 3, 8, 500])
@pytest.mark.parametrize("scheme", [bw.Uniform(), *map(bw.Geometric, RATIOS)], ids=repr)
def test_shares_sum_to_one(scheme: bw.Uniform | bw.Geometric, batches: int) -> None:
    check_shares_sum_to_one(scheme, batches)


@settings(max_examples=40)
@given(ratio=st.floats(1e-3, 1e3), batches=st.integers(1, 30))
def test_shares_are_the_formula_for_any_ratio(ratio: float, batches: int) -> None:
    """pi_i = ratio^i / sum_k ratio^k (Book, section 5.2), computed with fractions of unlimited size."""
    exact = Fraction(ratio)
    powers = [exact**i for i in range(1, batches + 1)]
    truth = [float(power / sum(powers)) for power in powers]
    np.testing.assert_allclose(shares(bw.Geometric(ratio), batches), truth, rtol=1e-10, atol=1e-300)


def test_ratio_one_half_is_blundells_formula() -> None:
    """pi_i = 2^(M-i) / (2^M - 1) with M = 8: 128/255, 64/255, ..., 1/255."""
    truth = [2 ** (8 - i) / 255 for i in range(1, 9)]
    np.testing.assert_allclose(shares(bw.Geometric(0.5), 8), truth, rtol=1e-14)


@pytest.mark.parametrize("batches", [7, 500])
@pytest.mark.parametrize("ratio", [0.5, 0.97, 0.2])
def test_inverse_ratio_reverses_the_epoch(ratio: float, batches: int) -> None:
    forwards, backwards = shares(bw.Geometric(ratio), batches), shares(bw.Geometric(1 / ratio), batches)
    np.testing.assert_allclose(forwards, backwards[::-1], rtol=1e-9, atol=1e-300)


def test_ratio_one_is_uniform() -> None:
    np.testing.assert_allclose(shares(bw.Geometric(1.0), 37), 1 / 37, rtol=1e-14)
    np.testing.assert_array_equal(shares(bw.Uniform(), 37), 1 / 37)


def test_the_thesis_counts_for_500_batches() -> None:
    """Ratio 1/2: 1.6 % of the batches get more than 1/M and 3.4 % more than 1/M^2; 0.97: 17.8 % and 58.6 %."""
    counts = {}
    for ratio in (0.5, 0.97):
        found = shares(bw.Geometric(ratio), 500)
        counts[ratio] = (int((found > 1 / 500).sum()), int((found > 1 / 500**2).sum()))
    assert counts == {0.5: (8, 17), 0.97: (89, 293)}


@pytest.mark.parametrize("ratio", [0.5, 0.97, 1.0, 1.03, 2.0])
def test_five_thousand_batches_do_not_overflow(ratio: float) -> None:
    """2^5000 has no double. First, last and middle weight to a hundred digits; a closed-form sum of all."""
    batches = 5000
    scheme = bw.Geometric(ratio)
    for i in (0, 1, 2500, 4998, 4999):
        with decimal.localcontext(decimal.Context(prec=100)):
            exact = decimal.Decimal(ratio)
            total = batches if exact == 1 else exact * (exact**batches - 1) / (exact - 1)
            truth = float(batches * exact ** (i + 1) / total)
        weight = scheme(bw.Progress(batch=i, batches=batches))
        assert math.isfinite(weight)
        assert weight == pytest.approx(truth, rel=1e-9, abs=1e-300)


def test_ratio_zero_is_maximum_likelihood() -> None:
    assert [bw.Geometric(0.0)(bw.Progress(batch=i, batches=4)) for i in range(4)] == [0.0] * 4


def test_linear_anneal_is_t_over_T() -> None:
    whole = bw.LinearAnneal()
    weights = [whole(bw.Progress(step=step, total_steps=8)) for step in range(8)]
    np.testing.assert_allclose(weights, np.arange(1, 9) / 8, rtol=1e-15)
    part = bw.LinearAnneal(fraction=0.25)
    weights = [part(bw.Progress(step=step, total_steps=16)) for step in range(16)]
    np.testing.assert_allclose(weights, [0.25, 0.5, 0.75] + [1.0] * 13, rtol=1e-15)
    # Nothing depends on the batch within its epoch, and training on past the plan keeps the weight.
    assert whole(bw.Progress(step=3, total_steps=8, batch=1, batches=2)) == 0.5
    assert whole(bw.Progress(step=11, total_steps=8)) == 1.0


@pytest.mark.parametrize("ratio", [-0.1, math.inf, math.nan])
def test_impossible_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(bw.SettingError, match=f"ratio = {ratio}"):
        bw.Geometric(ratio)


@pytest.mark.parametrize("fraction", [0.0, 1.1, -1.0, math.nan])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(bw.SettingError, match=f"fraction = {fraction}"):
        bw.LinearAnneal(fraction)


def test_missing_progress_is_named() -> None:
    with pytest.raises(bw.SettingError, match="batches"):
        bw.Geometric(0.5)(bw.Progress())
    with pytest.raises(bw.SettingError, match="total_steps"):
        bw.LinearAnneal()(bw.Progress())
