"""Predictions, units, weights, warm starts and sequential learning of the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from bayeswell.core.errors import DataError, SettingError
from bayeswell.prediction import ClassPrediction, load
from bayeswell.sklearn import BayesianClassifier, BayesianRegressor
from sklearn import config_context

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

QUICK: dict[str, Any] = {"epochs": 8, "draws": 10, "random_state": 0, "settings": {"lr": 0.05, "batch_size": 30}}


def curve(rows: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, 400 + 30 * x[:, 0] - 10 * x[:, 1] * x[:, 2] + 5 * rng.normal(size=rows)


def blobs(rows: int = 90) -> tuple[Any, Any]:
    x, y = make_blobs(rows, centers=3, random_state=0, cluster_std=0.5)
    return x, np.array(["ash", "beech", "oak"])[y]


def patients(rows: int = 120, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Age with missing cells, a ward as text, a category; the risk depends on all of them."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, rows)
    ward = rng.choice(["north", "south", "east"], rows)
    smoker = rng.choice(["never", "now"], rows)
    risk = 0.05 * age + 2.0 * (ward == "east") + 1.5 * (smoker == "now") + 0.3 * rng.normal(size=rows)
    shown = np.where(rng.uniform(size=rows) < 0.1, np.nan, age)
    return pd.DataFrame({"age": shown, "ward": ward, "smoker": pd.Categorical(smoker)}), risk


def test_labels_of_any_kind_are_predicted_with_probabilities_in_the_order_of_classes() -> None:
    x, y = blobs()
    found = BayesianClassifier("bbb", (8,), **{**QUICK, "epochs": 20}).fit(x, y)
    assert found.classes_.tolist() == ["ash", "beech", "oak"]
    assert found.score(x, y) > 0.95
    np.testing.assert_array_equal(found.classes_[found.predict_proba(x).argmax(1)], found.predict(x))
    np.testing.assert_allclose(np.exp(found.predict_log_proba(x)), found.predict_proba(x))
    split = found.predict_distribution(x)
    np.testing.assert_allclose(split.aleatoric + split.epistemic, split.entropy, atol=1e-12)
    assert split.class_names == ("ash", "beech", "oak")


def test_noise_and_intervals_are_in_the_units_of_the_targets() -> None:
    """A linear model of linear data with noise of std 5.

    The learned std has a relative standard error of 1 / sqrt(2 n) = 2.9 %; an interval of 0.8 that is wrong by that
    covers 0.8 +- 0.013, and 2,000 targets add 0.009: 5 standard errors are 0.08 (rate 6e-7).
    """
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(600, 3)), rng.normal(size=(2000, 3))
    y, truth = (400 + a @ [30.0, -10.0, 0.0] + 5 * rng.normal(size=len(a)) for a in (x, new))
    settings = {"lr": 0.05, "batch_size": 100}
    found = BayesianRegressor("bbb", (), epochs=20, random_state=0, settings=settings).fit(x, y)
    split = found.predict_distribution(new)
    assert float(split.aleatoric_std.mean()) == pytest.approx(5, rel=5 * 0.029)
    mean, std = found.predict(new, return_std=True)
    np.testing.assert_allclose(std**2, split.variance.ravel())
    lower, upper = found.predict_interval(new, 0.8)
    assert mean.shape == std.shape == lower.shape == (2000,)
    assert ((lower <= truth) & (truth <= upper)).mean() == pytest.approx(0.8, abs=0.08)


def test_known_noise_and_counts_keep_their_units() -> None:
    x, y = curve(40)
    known = {"name": "gaussian", "noise": "known", "std": 1.5}
    found = BayesianRegressor("map", (4,), likelihood=known, **QUICK).fit(x, y)
    np.testing.assert_allclose(found.predict_distribution(x).aleatoric_std, 1.5, rtol=1e-6)
    counts = BayesianRegressor("map", (4,), likelihood="poisson", **QUICK).fit(x, np.arange(40) % 5)
    mean, std = counts.predict(x, return_std=True)
    np.testing.assert_allclose(std**2, mean, rtol=1e-6)


def test_each_of_several_targets_has_its_own_noise() -> None:
    x, y = curve(300)
    both = np.column_stack([y, x[:, 0] / 100])
    found = BayesianRegressor("bbb", (20,), **{**QUICK, "epochs": 20}).fit(x, both)
    mean, std = found.predict(x, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    assert found.score(x, both) > 0.9
    assert std[:, 0].mean() > 100 * std[:, 1].mean()


def test_class_weights_move_the_boundary() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1, 1, (180, 1)), rng.normal(1, 1, (20, 1))])
    y = np.repeat(["common", "rare"], [180, 20])
    # The log odds of two normal densities with one std are linear, as the network is. At 0 both are equal, so the odds
    # are those of the classes: 1 : 9, and 1 : 1 if balanced.
    settings = {"lr": 0.2, "batch_size": 100}
    model = BayesianClassifier("bbb", (), epochs=30, random_state=0, settings=settings)
    assert model.fit(x, y).predict_proba([[0.0]])[0, 1] == pytest.approx(0.1, abs=0.08)
    balanced = model.set_params(class_weight="balanced").fit(x, y).predict_proba([[0.0]])[0, 1]
    assert balanced == pytest.approx(0.5, abs=0.12)
    model.set_params(class_weight={"common": 200 / 360, "rare": 200 / 40})
    assert model.fit(x, y).predict_proba([[0.0]])[0, 1] == balanced


def test_weights_that_are_not_whole_count() -> None:
    x, y = curve(40)
    model = BayesianRegressor("map", (4,), **QUICK)
    plain = model.fit(x, y).predict(x)
    weighted = model.fit(x, y, np.linspace(0.1, 2, 40)).predict(x)
    assert np.abs(plain - weighted).max() > 0
    np.testing.assert_array_equal(model.fit(x, y, np.full(40, 0.5)).predict(x[:3]).shape, (3,))


def test_random_state_decides_everything_and_global_streams_stay() -> None:
    x, y = curve(50)
    state, drawn = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = BayesianRegressor("bbb", (6,), **{**QUICK, "random_state": 3})
    one = model.fit(x, y).predict(x)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(np.random.get_state()[1], drawn)  # noqa: NPY002
    np.testing.assert_array_equal(model.fit(x, y).predict(x), one)
    source = np.random.RandomState(3)
    np.testing.assert_array_equal(model.set_params(random_state=source).fit(x, y).predict(x), one)
    assert np.abs(model.fit(x, y).predict(x) - one).max() > 0


def test_warm_start_equals_the_longer_run() -> None:
    x, y = curve(50)
    settings = {"schedule": "constant", "temperature": 0.3}
    long = BayesianRegressor("bbb", (6,), epochs=6, random_state=0, settings=settings).fit(x, y)
    warm = BayesianRegressor("bbb", (6,), epochs=2, random_state=0, warm_start=True, settings=settings).fit(x, y)
    warm.set_params(epochs=4).fit(x, y)
    assert long.n_iter_ == warm.n_iter_ == 6
    np.testing.assert_array_equal(long.predict(x), warm.predict(x))


def test_warm_start_of_auto_trains_one_network() -> None:
    x, y = blobs()
    warm = BayesianClassifier(network=(6,), epochs=3, warm_start=True, random_state=0).fit(x, y)
    assert warm.result_.method.members == 1
    assert warm.fit(x, y).n_iter_ == 6
    with pytest.raises(DataError, match="elm"):
        warm.fit(x, np.where(y == "oak", "elm", y))


def test_partial_fit_is_sequential_bayes() -> None:
    """Linear regression with orthogonal inputs in each part: the mean-field posterior is exact, part after part.

    With known noise std s and prior N(0, 1): precision 1 + sum x^2 / s^2, mean sum x y / s^2 / precision.
    """
    rng = np.random.default_rng(0)
    s, signs = 0.7, np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    x = np.concatenate([1.3 * np.tile(signs, (3, 1)), 0.6 * np.tile(signs, (4, 1))])
    y = x @ [0.8, -1.7] + s * rng.normal(size=len(x))
    precision = 1 + (x**2).sum(0) / s**2
    mean = x.T @ y / s**2 / precision
    model = BayesianRegressor(
        "vl",
        nn.Linear(2, 1, bias=False).double(),
        likelihood={"name": "gaussian", "noise": "known", "std": s},
        standardize=False,
        epochs=120,
        random_state=0,
        settings={
            "temperature": 1, "prior": {"name": "normal", "std": 1.0}, "std_multiplier": 1.0, "lr": 0.1,
            "batch_size": 100, "estimator": {"name": "variational_laplace", "curvature": "hessian"},
        },
    )  # fmt: skip
    model.partial_fit(x[:12], y[:12]).partial_fit(x[12:], y[12:])
    posterior = model.result_.model.posterior
    std = precision**-0.5
    np.testing.assert_allclose(posterior.mean.detach().numpy(), mean, atol=0.15 * std[0])
    np.testing.assert_allclose(posterior.std().detach().numpy(), std, rtol=0.02)
    second_alone = x[12:].T @ y[12:] / s**2 / (1 + (x[12:] ** 2).sum(0) / s**2)
    assert np.abs(second_alone - mean).max() > std[0]


@pytest.mark.parametrize("method", ["map", "laplace", "ivon", "auto"])
def test_partial_fit_accepts_classes_one_after_the_other(method: str) -> None:
    x, y = blobs()
    model = BayesianClassifier(method, (6,), epochs=4, random_state=0)
    with pytest.raises(SettingError, match="first call"):
        model.partial_fit(x, y)
    first = y != "oak"
    model.partial_fit(x[first], y[first], classes=["oak", "beech", "ash"])
    assert model.predict_proba(x).shape == (90, 3)
    assert model.partial_fit(x, y).result_.method.members == 1
    with pytest.raises(DataError, match="elm"):
        model.partial_fit(x[:2], ["elm", "ash"])


def test_several_networks_have_no_partial_fit() -> None:
    x, y = blobs()
    model = BayesianClassifier("deep-ensemble", (6,), epochs=1, random_state=0, settings={"members": 2})
    assert hasattr(model, "partial_fit")
    assert not hasattr(model.fit(x, y), "partial_fit")


@pytest.mark.parametrize("method", ["bbb", "auto"])
def test_early_stopping_stops_on_noise(method: str) -> None:
    x, _ = curve(40)
    y = np.random.default_rng(5).normal(size=40)
    model = BayesianRegressor(
        method, (50,), epochs=60, early_stopping=3, validation_fraction=0.3, random_state=0, settings={"lr": 0.05}
    )
    assert model.fit(x, y).n_iter_ < 60


def test_networks_are_copied_or_made() -> None:
    x, y = blobs()
    own = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 3))
    before = [p.clone() for p in own.parameters()]
    model = BayesianClassifier("map", own, epochs=2, random_state=0).fit(x, y)
    assert model.predict_proba(x).dtype == np.float32
    assert all(torch.equal(a, b) for a, b in zip(before, own.parameters(), strict=True))
    for choice, count in ((nn.Linear, 9), ((5,), 33), ([4, 3], 39), (None, 303)):
        assert model.set_params(network=choice).fit(x, y).result_.model.layout.size == count
    per_input = BayesianRegressor("map", (5,), likelihood={"name": "gaussian", "noise": "per_input"}, epochs=2)
    assert per_input.fit(x, x[:, 0]).result_.model.layout.size == 27


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "bb"}, "did you mean 'bbb'"),
    "network": ({"network": (50, 0)}, "hidden sizes"),
    "network made": ({"network": lambda a, b: 3}, "must return an nn.Module"),
    "epochs": ({"epochs": 0}, "`epochs` must be"),
    "settings": ({"settings": {"prioor": "normal"}}, "did you mean 'prior'"),
    "settings kind": ({"settings": 3}, "must be a mapping"),
    "validation_fraction": ({"early_stopping": True, "validation_fraction": 1.0}, "leaves no row"),
    "class_weight": ({"class_weight": {"elm": 2.0}}, "are not in class_weight"),
    "class_weight twice": ({"class_weight": "balanced", "likelihood": "categorical"}, "exclude each other"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_refused_in_one_line(case: str) -> None:
    x, y = blobs(30)
    settings, line = BAD[case]
    with pytest.raises(ValueError, match=line) as caught:
        BayesianClassifier(**{"method": "map", "epochs": 1, **settings}).fit(x, y)
    assert "\n" not in str(caught.value)


def test_grid_search_over_a_pipeline() -> None:
    x, y = blobs()
    pipeline = make_pipeline(StandardScaler(), BayesianClassifier("map", (8,), **QUICK, standardize=False))
    grid = GridSearchCV(
        pipeline, {"bayesianclassifier__method": ["map", "bbb"]}, cv=2, scoring="neg_log_loss", error_score="raise"
    ).fit(x, y)
    assert len(set(grid.cv_results_["mean_test_score"])) == 2
    assert grid.best_score_ > -0.7


def test_scikit_learn_calibrates_it() -> None:
    x, y = blobs()
    calibrated = CalibratedClassifierCV(BayesianClassifier("bbb", (8,), **QUICK), cv=2).fit(x, y)
    assert calibrated.score(x, y) > 0.85


def test_sample_weights_are_routed() -> None:
    x, y = blobs()
    weights = np.where(y == "oak", 0.01, 1.0)
    with config_context(enable_metadata_routing=True):
        model = BayesianClassifier("bbb", (8,), **QUICK).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        found = make_pipeline(scaler, model).fit(x, y, sample_weight=weights).predict_proba(x)
    scaled = StandardScaler().fit_transform(x)
    direct = BayesianClassifier("bbb", (8,), **QUICK).fit(scaled, y, weights)
    np.testing.assert_array_equal(found, direct.predict_proba(scaled))


def test_clones_and_joblib_files_predict_the_same(tmp_path: Path) -> None:
    x, y = blobs()
    model = BayesianClassifier("k-tied", (8,), **QUICK).fit(x, y)
    joblib.dump(model, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(x), model.predict_proba(x))
    unfitted = clone(model)
    assert not hasattr(unfitted, "result_")
    assert unfitted.get_params() == model.get_params()
    np.testing.assert_array_equal(unfitted.fit(x, y).predict_proba(x), model.predict_proba(x))


def test_raw_data_frames_with_texts_and_missing_cells() -> None:
    frame, risk = patients()
    model = BayesianRegressor("bbb", (8,), **{**QUICK, "epochs": 40}).fit(frame, risk)
    assert model.feature_names_in_.tolist() == ["age", "ward", "smoker"]
    new, truth = patients(seed=1)
    assert model.score(new, truth) > 0.6
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.drop(columns="ward"))
    counts = np.random.default_rng(0).integers(0, 3, size=120)
    weighted = model.fit(frame, risk, counts).predict(frame)
    places = np.repeat(np.arange(120), counts)
    np.testing.assert_array_equal(model.fit(frame.iloc[places], risk[places]).predict(frame), weighted)


def test_saved_results_keep_columns_units_and_class_names(tmp_path: Path) -> None:
    frame, risk = patients(60)
    model = BayesianClassifier("bbb", (8,), **QUICK).fit(frame, np.where(risk > np.median(risk), "high", "low"))
    model.result_.save(tmp_path / "model")
    found = load(tmp_path / "model").predict(frame, draws=10, seed=model.result_.seed)
    assert isinstance(found, ClassPrediction)
    assert found.class_names == ("high", "low")
    np.testing.assert_allclose(found.probabilities, model.predict_proba(frame), rtol=1e-6)
