"""Facts about the original files; BAYESWELL_DATA names their folder."""

from __future__ import annotations

import os

import pytest

from bayeswell.lab.data import load_data
from bayeswell.lab.data.uci import SETS

needs = pytest.mark.skipif(not os.environ.get("BAYESWELL_DATA"), reason="BAYESWELL_DATA names no folder of data")
ROWS = {"boston": 506, "concrete": 1030, "energy": 768, "yacht": 308, "wine-red": 1599, "power-plant": 9568}


@needs
@pytest.mark.slow
def test_mnist_has_its_known_mean_and_std() -> None:
    data = load_data("mnist")
    scaling = data.preparation.input_scaling
    assert scaling is not None
    assert (float(scaling.mean), float(scaling.std)) == pytest.approx((0.1307, 0.3081), abs=1e-4)
    assert data.train[1].bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@needs
@pytest.mark.parametrize("name", ROWS)
def test_uci_sets_have_their_rows(name: str) -> None:
    assert name in SETS
    data = load_data(f"uci-{name}")
    assert len(data.train[1]) + len(data.test[1]) == ROWS[name]
    assert len(data.test[1]) == pytest.approx(ROWS[name] / 10, abs=1)


@needs
@pytest.mark.slow
def test_reviews_are_balanced() -> None:
    data = load_data("imdb")
    assert (len(data.train[1]), int(data.train[1].sum())) == (25_000, 12_500)
    assert int(data.train[0].max()) == 19_999
