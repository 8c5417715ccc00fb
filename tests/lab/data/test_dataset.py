"""Data sets: splits, folds, scaling, and scores in the user's units."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.core.errors import DataError, SettingError
from bayeswell.lab.data import DataSet, load_data
from bayeswell.likelihoods import Gaussian
from bayeswell.prediction import Predictor
from bayeswell.training import fit


def real_data(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(3, 5, (count, 2))
    return x, 100 + 40 * x[:, 0] + np.random.default_rng(1).normal(0, 10, count)


def trained(data: DataSet, epochs: int = 2) -> Predictor:
    net = nn.Linear(2, 1)
    return fit(net, data.train, "map", data.scaled_likelihood(), epochs=epochs, progress=False)


def test_scores_are_in_the_units_of_the_user() -> None:
    x, y = real_data()
    data = load_data((x, y, x, y))
    result = trained(data)
    evaluation = data.evaluate(result)
    with torch.no_grad():
        mean = result.model(data.test[0]).double()[:, 0]
    predicted = float(y.mean()) + float(y.std()) * mean
    rmse = math.sqrt(float((predicted - torch.from_numpy(y)).square().mean()))
    assert evaluation["rmse"].value == pytest.approx(rmse, rel=1e-5)
    assert rmse > 5


def test_the_attached_model_takes_raw_inputs_and_scores_the_same() -> None:
    x, y = real_data()
    data = load_data((x, y, x, y))
    result = trained(data)
    attached = data.attach(result)
    for key in ("rmse", "nll", "coverage_90"):
        raw = attached.evaluate(x, y)[key].value
        assert raw == pytest.approx(data.evaluate(result)[key].value, rel=1e-5)


def test_fit_with_standardize_finds_the_same_scaling() -> None:
    x, y = real_data()
    data = load_data((x, y, x, y))
    inner = fit(nn.Linear(2, 1), (x, y), "map", "gaussian", epochs=1, standardize=True, progress=False).preparation
    assert inner is not None
    torch.testing.assert_close(inner.inputs(x), data.train[0])
    torch.testing.assert_close(inner.targets(y), data.train[1][:, 0])


def test_fixed_noise_is_in_the_units_of_the_user() -> None:
    x, y = real_data()
    data = load_data((x, y, x, y))
    likelihood = data.scaled_likelihood(Gaussian(noise="known", std=10.0))
    assert isinstance(likelihood, Gaussian)
    assert likelihood.std == pytest.approx(10 / y.std())


def test_the_calibration_is_shifted_to_the_units_of_the_user() -> None:
    x, y = real_data()
    data = load_data((x, y, x, y), validation=20)
    result = trained(data).calibrate(*data.validation)
    attached = data.attach(result)
    assert result.calibration is not None
    assert attached.calibration is not None
    shift = attached.calibration.nll_before - result.calibration.nll_before
    assert shift == pytest.approx(data.preparation.nll_shift)


def test_numbers_of_outputs() -> None:
    wine, cancer, gap = load_data("wine"), load_data("breast-cancer"), load_data("gap")
    assert (wine.channels(), cancer.channels("bernoulli"), gap.channels()) == (3, 1, 1)
    assert gap.channels({"name": "gaussian", "noise": "per_input"}) == 2
    with pytest.raises(SettingError, match="'bernoulli' needs two classes, but 'wine' has 3"):
        wine.channels("bernoulli")


def test_validation_examples_are_held_out() -> None:
    data = load_data("wine", validation=0.25, seed=4)
    assert data.validation is not None
    whole = load_data("wine")
    assert len(data.validation[1]) == round(0.25 * len(whole.train[1]))
    joined = torch.cat([data.raw_inputs(data.train[0]), data.raw_inputs(data.validation[0])])
    expected = whole.raw_inputs(whole.train[0])
    torch.testing.assert_close(joined.sum(0), expected.sum(0), rtol=1e-4, atol=1e-3)
    # The held-out examples have no part in the scaling.
    torch.testing.assert_close(data.train[0].mean(0), torch.zeros(13), atol=1e-5, rtol=0)
    assert float(data.validation[0].mean(0).abs().max()) > 0.01


def test_the_rule_last_takes_the_end_of_the_training_examples() -> None:
    x = np.arange(20.0)[:, None]
    data = load_data((x, x[:, 0], x, x[:, 0]), validation=5, validation_rule="last", standardize=False)
    assert data.validation is not None
    assert data.validation[0].flatten().tolist() == [15, 16, 17, 18, 19]


def test_smaller_training_sets_are_parts_of_larger_ones() -> None:
    x = np.arange(50.0)[:, None]
    sizes = (5, 20, 0.8)
    parts = [
        set(load_data((x, x[:, 0], x, x[:, 0]), train_size=size, standardize=False).train[0].flatten().tolist())
        for size in sizes
    ]
    assert [len(part) for part in parts] == [5, 20, 40]
    assert parts[0] < parts[1] < parts[2]


def test_folds_are_a_partition() -> None:
    x = np.arange(23.0)[:, None]
    tests = []
    for number in range(1, 6):
        data = load_data((x, x[:, 0]), fold=f"{number}/5", standardize=False)
        own = data.test[0].flatten().tolist()
        assert sorted(own + data.train[0].flatten().tolist()) == x.flatten().tolist()
        tests += own
    assert sorted(tests) == x.flatten().tolist()


@pytest.mark.parametrize("fold", ["6/5", "0/5", "1", "a/b", "1/1"])
def test_wrong_folds_are_refused(fold: str) -> None:
    with pytest.raises(SettingError, match="write I/K"):
        load_data("wine", fold=fold)


@pytest.mark.parametrize("size", [200, -3, 1.5])
def test_wrong_sizes_are_refused(size: float) -> None:
    with pytest.raises(SettingError, match="`validation`"):
        load_data("wine", validation=size)


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(SettingError, match="`validation_rule` = 'first'"):
        load_data("wine", validation=5, validation_rule="first")


def test_a_missing_part_is_named() -> None:
    data = load_data((*real_data(), *real_data()))
    with pytest.raises(DataError, match="no validation examples; set `validation`"):
        data.evaluate(trained(data), "validation")


def test_a_data_set_is_not_scaled_again() -> None:
    data = load_data("wine")
    again = load_data(data, validation=10)
    assert len(again.train[1]) == len(data.train[1]) - 10
    assert again.preparation is data.preparation
    assert torch.equal(again.test[0], data.test[0])
    assert dataclasses.replace(again, validation=None).task == "classes"
