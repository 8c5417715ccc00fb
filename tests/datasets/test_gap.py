"""The curve with a gap is what it says: where its inputs are, and sin(2x) with noise of the std asked for."""

from __future__ import annotations

import math

import pytest

from bayeswell.datasets import load_data
from bayeswell.datasets.gap import Gap
from bayeswell.errors import SettingError


def test_training_inputs_stay_out_of_the_gap_and_test_inputs_do_not() -> None:
    raw = Gap().read(None)
    assert raw.train is not None
    train, test = raw.train[0], raw.test[0]
    assert (len(train), len(test)) == (120, 300)
    assert float(train.abs().min()) >= 1
    assert float(train.abs().max()) <= 3
    assert int((train < 0).sum()) == 60
    # A third of 300, std sqrt(300 * 2/9) = 8.2: four of them fail once in 16,000 seeds.
    assert abs(int((test.abs() < 1).sum()) - 100) < 4 * math.sqrt(300 * 2 / 9)


@pytest.mark.parametrize("noise", [0.1, 0.37])
def test_targets_are_the_curve_with_its_noise(noise: float) -> None:
    raw = Gap(noise=noise, split=3).read(None)
    assert raw.train is not None
    for inputs, targets in (raw.train, raw.test):
        rest = targets - (2 * inputs).sin()
        # std of a sample std of n normals: noise / sqrt(2 n); four of them.
        assert abs(float(rest.std()) - noise) < 4 * noise / math.sqrt(2 * len(rest))
        assert abs(float(rest.mean())) < 4 * noise / math.sqrt(len(rest))


def test_settings_are_looked_at_and_the_seed_decides() -> None:
    with pytest.raises(SettingError, match="noise"):
        Gap(noise=0)
    with pytest.raises(SettingError, match="split"):
        Gap(split=-1)
    first, again, other = (load_data({"name": "gap", "split": split}).fingerprint() for split in (0, 0, 1))
    assert first == again != other
