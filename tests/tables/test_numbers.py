"""Numbers that swallow a column are told by row and column; no real data set is accused."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bayeswell as bw
from bayeswell.datasets import load_data
from bayeswell.errors import BayeswellWarning, DataError, ScaleWarning
from bayeswell.tables import Columns, Preparation, outliers, table_of, warn_of_units


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_one_cell_that_dominates_a_scale_is_told_by_its_row() -> None:
    values = rng().normal(5, 2, 500)
    assert outliers(values) == []
    values[17] = 1e30
    ((row, times),) = outliers(values)
    assert row == 17
    assert times == pytest.approx(1e30 / np.delete(values, 17).std(), rel=0.05)
    values[18] = -1e29  # two do not hide one another
    assert [row for row, _ in outliers(values)] == [17, 18]
    frame = pd.DataFrame({"dose": values}, index=range(100, 600))
    with pytest.warns(BayeswellWarning, match=r"row 117, column 'dose': 1e\+30 .* row 118, column 'dose': -1e\+29"):
        Columns.learn(table_of(frame))


@pytest.mark.parametrize(
    "values",
    [
        np.eye(1, 300).ravel(),  # the only 1 among zeros
        np.where(np.arange(300) % 50, 0.0, 1e5),
        np.exp(rng().normal(0, 3, 5000)),  # heavy tails
        np.full(300, 7.0),
        np.r_[np.zeros(299), 1e5],
        1e9 + np.arange(300.0),
        rng().standard_cauchy(2000),
        np.array([1.0, 1e30]),  # which of two is the outlier?
        np.array([np.nan, np.nan, 1.0]),
    ],
)
def test_no_false_alarm_on_odd_but_honest_columns(values: np.ndarray) -> None:
    assert outliers(values) == []


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "diabetes", "gap"])
def test_no_false_alarm_on_bundled_data(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_data(name)


@pytest.mark.parametrize(
    "name", ["boston", "concrete", "energy", "kin8nm", "naval", "power-plant", "wine-red", "yacht"]
)
def test_no_false_alarm_on_uci_data(name: str) -> None:
    folders = os.environ.get("BAYESWELL_DATA", "")
    if not any((Path(folder) / "uci").exists() for folder in folders.split(os.pathsep) if folder):
        pytest.skip("the files of uci are not in BAYESWELL_DATA")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_data(f"uci_{name}")


def test_arrays_too_are_checked_where_a_scale_is_learned() -> None:
    x, y = rng().normal(size=(50, 3)), rng().normal(size=50)
    x[4, 2] = 1e300
    with pytest.raises(DataError, match=r"inputs: row 4, column '2': 1e\+300 is beyond 1e\+38"):
        Preparation.learn(x, y, standardise=True)
    x[4, 2] = 1e30
    with pytest.warns(BayeswellWarning, match="inputs: row 4, column '2'"):
        Preparation.learn(x, y, standardise=True)
    x[4, 2], y[9] = 0.0, 1e200
    with pytest.raises(DataError, match=r"targets: row 9: 1e\+200 is beyond"):
        Preparation.learn(x, y, standardise=True)
    x[4, 2] = np.nan
    with pytest.raises(DataError, match="inputs: row 4, column '2': the number is missing"):
        Preparation.learn(x, None, standardise=True)


def test_numbers_far_from_unit_scale_are_told_once_with_the_remedy() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 3, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_units(x, None, x[:, :1])
        warn_of_units(torch.rand(50, 3, 8, 8), None, None)
        warn_of_units((torch.rand(500, 64) > 0.999).float(), None, None)  # rare pixels
    far = x * torch.tensor([1.0, 400.0, 30.0]) + torch.tensor([0.0, 1000.0, 0.0])
    with pytest.warns(ScaleWarning) as said:
        warn_of_units(far, ["a", "b", "c"], 5000 + x[:, 0])
    assert len(said) == 1
    line = str(said[0].message)
    mean, std = float(far[:, 1].mean()), float(far[:, 1].std(correction=0))
    assert f"column 'b' has mean {mean:.3g}, std {std:.3g} (and 1 more)" in line
    assert f"targets have mean {5000 + float(x[:, 0].mean()):.3g}" in line
    assert "standardise=True" in line
    with pytest.warns(ScaleWarning, match="inputs: column . has mean"):
        warn_of_units(x * 1e-4, None, None)


def test_fit_says_it_and_standardise_silences_it() -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)) * 500
    y = x[:, :1] * 3
    net = torch.nn.Linear(2, 1)
    with pytest.warns(ScaleWarning, match=r"inputs: column [01] has mean .*; targets have mean"):
        bw.fit(net, (x, y), "map", "gaussian", epochs=1, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        warnings.simplefilter("ignore", bw.VerdictWarning)
        bw.fit(net, (x, y), "map", "gaussian", epochs=1, progress=False, standardise=True)


def test_a_gaussian_prediction_has_a_finite_std_or_an_error() -> None:
    net = torch.nn.Linear(1, 1)
    model = bw.bayesian(net)
    with pytest.raises(bw.NetworkError, match="epistemic variance of the prediction for example 1 is beyond"):
        bw.predict(model, torch.tensor([[1.0], [1e30]]), "gaussian", draws=5, seed=0)
    with pytest.raises(bw.NetworkError, match="aleatoric variance of the prediction for example 0 is beyond"):
        bw.predict(model, torch.ones(2, 1), bw.Gaussian(noise="known", std=1e30), draws=5, seed=0)
    heavy = bw.predict(model, torch.ones(2, 1), bw.StudentT(df=1.5), draws=5, seed=0)
    assert bool(heavy.std.isinf().all())  # it has none, and says so
