"""MAPIE's conformal predictors on top of the estimators: coverage as promised, whatever the model.

With n calibration and m test examples that are exchangeable and scores without ties, the number of covered test
examples is exactly BetaBinomial(m, k, n + 1 - k), k = ceil((n + 1) coverage). The bounds are its quantiles at 5e-7 and
1 - 5e-7: a false failure in a million runs. A miss of 4 points would be seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mapie.classification import CrossConformalClassifier, SplitConformalClassifier
from mapie.regression import CrossConformalRegressor, SplitConformalRegressor
from scipy.stats import betabinom

from bayeswell.sklearn import BayesianClassifier, BayesianRegressor

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

TRAIN, CALIBRATION, TEST = 200, 2000, 5000
QUICK: dict[str, Any] = {"network": (8,), "epochs": 5, "draws": 10, "random_state": 0, "settings": {"lr": 0.05}}
RATE = 1e-6


def parts(x: Any, y: Any) -> tuple[Any, ...]:
    edges = TRAIN, TRAIN + CALIBRATION
    return (*np.split(x, edges), *np.split(y, edges))


def require_promised(covered: Any, coverage: float) -> None:
    rank = math.ceil((CALIBRATION + 1) * coverage)
    law = betabinom(TEST, rank, CALIBRATION + 1 - rank)
    assert law.ppf(RATE / 2) <= int(covered.sum()) <= law.ppf(1 - RATE / 2)


@pytest.mark.parametrize("coverage", [0.7, 0.9])
def test_intervals_cover_as_promised(coverage: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAIN + CALIBRATION + TEST, 2))
    y = 3 * x[:, 0] + np.exp(x[:, 1] / 2) * rng.normal(size=len(x))  # noise that the model knows nothing of
    train, calibration, test, y_train, y_calibration, y_test = parts(x, y)
    model = BayesianRegressor("bbb", **QUICK).fit(train, y_train)
    conformal = SplitConformalRegressor(model, confidence_level=coverage, prefit=True)
    conformal.conformalize(calibration, y_calibration)
    _, intervals = conformal.predict_interval(test)
    require_promised((intervals[:, 0, 0] <= y_test) & (y_test <= intervals[:, 1, 0]), coverage)


def test_sets_of_classes_cover_as_promised() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(TRAIN + CALIBRATION + TEST, 2))
    centres = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    y = (x @ centres.T + rng.gumbel(size=(len(x), 3))).argmax(1)
    train, calibration, test, y_train, y_calibration, y_test = parts(x, y)
    model = BayesianClassifier("k-tied", **QUICK).fit(train, y_train)
    conformal = SplitConformalClassifier(model, confidence_level=0.8, conformity_score="lac", prefit=True)
    conformal.conformalize(calibration, y_calibration)
    _, sets = conformal.predict_set(test)
    require_promised(sets[np.arange(TEST), y_test, 0], 0.8)


def test_cross_conformal_predictors_train_the_estimators_themselves() -> None:
    """Jackknife+ and CV+ promise 1 - 2 (1 - 0.9) = 0.8 on average; by experience 0.9 or more."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(700, 2))
    y = 3 * x[:, 0] + rng.normal(size=700)
    regressor = CrossConformalRegressor(BayesianRegressor("bbb", **QUICK), confidence_level=0.9, cv=3)
    _, intervals = regressor.fit_conformalize(x[:200], y[:200]).predict_interval(x[200:])
    assert ((intervals[:, 0, 0] <= y[200:]) & (y[200:] <= intervals[:, 1, 0])).mean() > 0.8
    labels = (y > 0).astype(int)
    classifier = CrossConformalClassifier(BayesianClassifier("bbb", **QUICK), confidence_level=0.9, cv=3)
    _, sets = classifier.fit_conformalize(x[:200], labels[:200]).predict_set(x[200:])
    assert sets[np.arange(500), labels[200:], 0].mean() > 0.8
