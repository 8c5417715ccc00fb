"""The estimators among scikit-learn's own: pipelines, grids, calibration, copies, files, tables."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bayeswell as bw
from bayeswell.sklearn import BayesianClassifier, BayesianRegressor
from quick_python import QUICK_PYTHON

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

QUICK: dict[str, Any] = {"network": (8,), "epochs": 8, "draws": 10, "random_state": 0, "settings": {"lr": 0.05}}


@pytest.fixture(scope="module")
def blobs() -> tuple[Any, Any]:
    x, y = make_blobs(120, centers=2, random_state=1, cluster_std=1.5)
    return x, np.array(["no", "yes"])[y]


def patients(rows: int = 120, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Age with missing cells, a ward as text, a category; the risk depends on all of them."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, rows)
    ward = rng.choice(["north", "south", "east"], rows)
    smoker = rng.choice(["never", "now"], rows)
    risk = 0.05 * age + 2.0 * (ward == "east") + 1.5 * (smoker == "now") + 0.3 * rng.normal(size=rows)
    shown = np.where(rng.uniform(size=rows) < 0.1, np.nan, age)
    return pd.DataFrame({"age": shown, "ward": ward, "smoker": pd.Categorical(smoker)}), risk


def test_a_grid_over_methods_and_temperatures_in_two_processes(
    blobs: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = blobs
    monkeypatch.setattr(sys, "executable", QUICK_PYTHON)  # what joblib starts its processes with
    pipeline = make_pipeline(StandardScaler(), BayesianClassifier(**QUICK, standardise=False))
    choices = {"bayesianclassifier__method": ["map", "bbb"], "bayesianclassifier__temperature": [0.01, 1.0]}
    grid = GridSearchCV(pipeline, choices, n_jobs=2, cv=2, scoring="neg_log_loss", error_score="raise").fit(x, y)
    assert len(grid.cv_results_["mean_test_score"]) == 4
    assert len(set(grid.cv_results_["mean_test_score"])) == 4  # both make a difference
    assert grid.best_score_ > -0.4
    here = GridSearchCV(pipeline, choices, cv=2, scoring="neg_log_loss", error_score="raise", refit=False).fit(x, y)
    np.testing.assert_allclose(grid.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-6)


def test_cross_validation_and_calibration(blobs: tuple[Any, Any]) -> None:
    x, y = blobs
    model = BayesianClassifier("bbb", **QUICK)
    assert cross_val_score(model, x, y, cv=2, error_score="raise").mean() > 0.85
    calibrated = CalibratedClassifierCV(model, cv=2).fit(x, y)
    assert calibrated.predict_proba(x).shape == (120, 2)
    assert calibrated.score(x, y) > 0.85


def test_weights_are_routed(blobs: tuple[Any, Any]) -> None:
    x, y = blobs
    weights = np.where(y == "yes", 0.01, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = BayesianClassifier("bbb", **QUICK).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, model).fit(x, y, sample_weight=weights)
        found = routed.predict_proba(x)
    scaled = StandardScaler().fit_transform(x)
    np.testing.assert_array_equal(
        found, BayesianClassifier("bbb", **QUICK).fit(scaled, y, weights).predict_proba(scaled)
    )
    assert np.abs(found - BayesianClassifier("bbb", **QUICK).fit(scaled, y).predict_proba(scaled)).max() > 0.01


def test_copies_and_files_are_the_same_and_cheap(blobs: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = blobs
    model = BayesianClassifier("k-tied", **QUICK)
    begun = time.perf_counter()
    for _ in range(20):
        clone(model)
    assert (time.perf_counter() - begun) / 20 < 0.05  # no network is made; a millisecond where nobody disturbs
    model.fit(x, y)
    joblib.dump(model, tmp_path / "model.joblib")
    assert (tmp_path / "model.joblib").stat().st_size < 100_000
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(x), model.predict_proba(x))
    unfitted = clone(model)
    assert not hasattr(unfitted, "result_")
    assert unfitted.get_params() == model.get_params()
    assert "k-tied" in model._repr_html_()


def test_a_raw_table_with_texts_and_missing_cells() -> None:
    frame, risk = patients()
    model = BayesianRegressor("bbb", **{**QUICK, "epochs": 30}).fit(frame, risk)
    assert model.feature_names_in_.tolist() == ["age", "ward", "smoker"]
    assert model.n_features_in_ == 3
    new, truth = patients(seed=1)
    assert model.score(new, truth) > 0.6
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.drop(columns="ward"))
    again = model.predict(new.assign(ward=pd.Categorical(new["ward"])))
    np.testing.assert_array_equal(again, model.predict(new))


def test_repeated_rows_of_a_table_are_weights() -> None:
    frame, risk = patients(30)
    counts = np.random.default_rng(0).integers(0, 3, size=30)
    model = BayesianRegressor("bbb", **QUICK)
    weighted = model.fit(frame, risk, counts).predict(frame)
    places = np.repeat(np.arange(30), counts)[::-1]
    np.testing.assert_allclose(model.fit(frame.iloc[places], risk[places]).predict(frame), weighted, rtol=1e-12)


def test_the_result_is_saved_with_columns_units_and_names_of_classes(tmp_path: Path) -> None:
    frame, risk = patients(60)
    y = np.where(risk > np.median(risk), "high", "low")
    model = BayesianClassifier("bbb", **QUICK).fit(frame, y)
    model.result_.save(tmp_path / "model")
    found = bw.load(tmp_path / "model").predict(frame, draws=10, seed=model.result_.seed)
    assert isinstance(found, bw.ClassPrediction)
    assert found.class_names == ("high", "low")
    np.testing.assert_allclose(found.probabilities, model.predict_proba(frame), rtol=1e-6)


def test_columns_by_scikit_learns_own_transformers() -> None:
    frame, risk = patients()
    frame = frame.assign(age=frame["age"].fillna(50))
    columns = ColumnTransformer([("texts", OneHotEncoder(), ["ward", "smoker"])], remainder="passthrough")
    pipeline = make_pipeline(columns, BayesianRegressor("bbb", **{**QUICK, "epochs": 30}))
    assert pipeline.fit(frame, risk).score(frame, risk) > 0.6
    mean, std = pipeline.predict(frame, return_std=True)
    assert mean.shape == std.shape == (120,)
