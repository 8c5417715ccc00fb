"""scikit-learn's own conformance suite, whole: no check is skipped, none is expected to fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
)

from bayeswell.sklearn import BayesianClassifier, BayesianRegressor
from bayeswell.sklearn.measure import Rows

ESTIMATORS = [BayesianClassifier, BayesianRegressor]
SMALL: dict[str, Any] = {"network": (8,), "epochs": 30, "batch_size": 1000, "draws": 10}
"""For these some 65 fits of sets of at most 300 rows; what they must learn is easy."""
METHODS: dict[str, dict[str, Any]] = {
    "auto": {"lr": 0.1, "members": 2},
    "bbb": {"lr": 0.1},
    "k-tied": {"lr": 0.05},
    "swag": {"lr": 0.1},
    "laplace": {"lr": 0.1},
}

pytestmark = [
    # runs this short say that they are; chains that they cannot be judged
    pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning"),
    # sklearn's check of read-only input and others warn by themselves of what they feed
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def require_whole(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else a check is skipped
    found = check_estimator(estimator, on_skip=None, on_fail=None)
    assert len(found) >= 55
    not_passed = {each["check_name"]: each["exception"] for each in found if each["status"] != "passed"}
    assert not_passed == {}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_check_passes(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_whole(kind(method, **SMALL, settings=METHODS[method]), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["map", "hwa", "low-rank", "ivon", "sghmc", "deep-ensemble"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_check_passes_with_other_methods(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require_whole(kind(method), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_check_passes_as_it_comes(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require_whole(kind(), monkeypatch)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_names_of_columns_are_kept_and_compared(kind: Any) -> None:
    estimator = kind("map", **SMALL)
    check_dataframe_column_names_consistency(kind.__name__, estimator)


def test_the_suite_sees_weights_that_are_not_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: rows as they were given, equal ones apart."""

    def as_given(rows: Rows) -> Rows:
        return replace(rows, weights=np.ones(len(rows)) if rows.weights is None else rows.weights)

    estimator = BayesianRegressor("bbb", (8,), epochs=5)
    check_sample_weight_equivalence_on_dense_data("BayesianRegressor", estimator)
    monkeypatch.setattr("bayeswell.sklearn.estimator.merged", as_given)
    with pytest.raises(AssertionError, match="not equivalent to fitting with removed or repeated"):
        check_sample_weight_equivalence_on_dense_data("BayesianRegressor", estimator)
