"""Calibrating what is calibrated: the same data give the same numbers; an end of the search that is hit is said."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.predictive.calibration import SCALES, WIDENINGS
from bayeswell.types.calibration import LARGEST_SCALE, LARGEST_WIDENING

DRAWS = 10
"""Networks in a search: it is the noise that these data are about, not the weights."""


def _predictor(noise: float) -> bw.Predictor:
    torch.manual_seed(0)
    return bw.Predictor(
        bw.bayesian(nn.Linear(3, 1, bias=False).double(), bw.MeanField(initial_std=0.05)), bw.Gaussian("known", noise)
    )


def _data(predictor: bw.Predictor, noise: float, count: int = 60) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, dtype=torch.float64, generator=bw.make_generator(1))
    with torch.no_grad():
        clean = x @ predictor.model.posterior.mean_vector().reshape(1, 3).T
    return x, clean + noise * torch.randn(count, 1, dtype=torch.float64, generator=bw.make_generator(2))


@pytest.mark.parametrize("true", [0.4, 2.5])
def test_the_same_data_give_the_same_numbers(true: float) -> None:
    """The weak prior at 1 would pull anew each time: numbers drift if the second search starts from the first."""
    plain = _predictor(1.0)
    x, y = _data(plain, true)
    once = plain.calibrate(x, y, draws=DRAWS)
    twice = once.calibrate(x, y, draws=DRAWS).calibrate(x, y, draws=DRAWS)
    assert once.calibration is not None
    assert twice.calibration is not None
    assert once.calibration.changes
    for name in ("std_scale", "widening", "nll_before", "nll_after"):
        assert getattr(twice.calibration, name) == pytest.approx(getattr(once.calibration, name), rel=1e-9)
    assert twice.likelihood.noise_factor == pytest.approx(once.likelihood.noise_factor, rel=1e-9)
    stds = [one.model.posterior.std_vector() for one in (once, twice)]
    assert torch.allclose(*stds, rtol=1e-9)


def test_other_data_find_what_they_would_have_found_alone() -> None:
    plain = _predictor(1.0)
    first, second = _data(plain, 0.4), _data(plain, 2.5)
    alone = plain.calibrate(*second, draws=DRAWS)
    after = plain.calibrate(*first, draws=DRAWS).calibrate(*second, draws=DRAWS)
    assert alone.calibration is not None
    assert after.calibration is not None
    assert after.calibration.widening == pytest.approx(alone.calibration.widening, rel=1e-9)


def test_an_end_of_the_search_is_said() -> None:
    plain = _predictor(100.0)
    x, y = _data(plain, 0.5, 400)
    with pytest.warns(bw.BayeswellWarning, match=r"noise std x 0\.125 is as far as the search goes"):
        found = plain.calibrate(x, y, draws=DRAWS)
    assert "noise std x 0.125 is as far as the search goes" in str(found.calibration)


def test_elsewhere_nothing_is_said() -> None:
    plain = _predictor(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = plain.calibrate(*_data(plain, 0.4), draws=DRAWS)
    assert "as far as" not in str(found.calibration)


def test_the_ends_are_those_of_the_search() -> None:
    assert max(SCALES) == LARGEST_SCALE
    assert (min(WIDENINGS), max(WIDENINGS)) == (1 / LARGEST_WIDENING, LARGEST_WIDENING)
    assert math.prod(WIDENINGS) == pytest.approx(1)
