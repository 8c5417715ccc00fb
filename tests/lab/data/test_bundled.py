"""Bundled data sets."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayeswell.core.errors import SettingError
from bayeswell.lab.data import load_data
from sklearn import datasets

SIZES = {
    "digits": (1797, (1, 8, 8), 10),
    "wine": (178, (13,), 3),
    "breast-cancer": (569, (30,), 2),
    "diabetes": (442, (10,), 1),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    data = load_data(name)
    count, shape, outputs = SIZES[name]
    assert (len(data.train[1]) + len(data.test[1]), data.input_shape, data.outputs) == (count, shape, outputs)
    assert len(data.test[1]) == round(count / 4)


def test_rows_keep_their_targets() -> None:
    data = load_data("digits", standardize=False)
    known = datasets.load_digits()
    by_image = {tuple(image): label for image, label in zip(known.data.tolist(), known.target.tolist(), strict=True)}
    for image, label in zip(data.test[0].flatten(1) * 16, data.test[1], strict=True):
        assert by_image[tuple(image.tolist())] == int(label)


def test_another_split_has_other_rows_and_the_same_split_the_same() -> None:
    one, same, other = (load_data({"name": "wine", "split": split}).test[1] for split in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_gap_is_a_noisy_sine_with_a_gap_in_training() -> None:
    data = load_data({"name": "gap", "noise": 0.2}, standardize=False)
    (x, y), (x_test, y_test) = data.train, data.test
    assert float(x.abs().min()) >= 1
    assert int((x < 0).sum()) == 60
    assert float((x_test.abs() < 1).double().mean()) == pytest.approx(1 / 3, abs=0.15)
    residuals = torch.cat([y - (2 * x).sin(), y_test - (2 * x_test).sin()]) / 0.2
    # Chi-squared with 420 degrees of freedom, failing at a rate of 1e-6.
    low, high = stats.chi2(420).ppf([5e-7, 1 - 5e-7])
    assert low < float(residuals.square().sum()) < high
    assert abs(float(residuals.mean())) < 5 / math.sqrt(420)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="nothing to train on"):
        load_data({"name": "digits", "test_share": 1})
    with pytest.raises(SettingError, match=r"`split` must be an integer of at least 0, got 1\.5"):
        load_data({"name": "digits", "split": 1.5})
    with pytest.raises(SettingError, match="has no setting 'splits'; did you mean 'split'"):
        load_data({"name": "gap", "splits": 2})
