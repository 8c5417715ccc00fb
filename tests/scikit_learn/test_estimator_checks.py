"""scikit-learn's own conformance suite, whole: no check is skipped, none is expected to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
)

from bayeswell.sklearn import BayesianClassifier, BayesianRegressor
from bayeswell.sklearn.measure import Rows
from unjudged import unjudged

ESTIMATORS = [BayesianClassifier, BayesianRegressor]
SMALL: dict[str, Any] = {"network": (8,), "batch_size": 75, "draws": 10}
"""For some 60 fits of sets of 10 to 300 rows: one step an epoch for most, more where most is to be learned."""

METHODS: dict[str, dict[str, Any]] = {"auto": {"members": 2}, "bbb": {}, "k-tied": {}, "swag": {}, "laplace": {}}
EPOCHS = {BayesianClassifier: 5, BayesianRegressor: 12}
"""Where it is asked how well was learned. With four seeds: 0.91 and more of the classes right (0.83 are asked for),
0.72 and more of the variance explained (0.5).
"""
FEWEST = {"auto": 3, "bbb": 3, "k-tied": 3, "swag": 6, "laplace": 3}
"""Everywhere else: weights have moved from where they began, and every method has what it collects."""

SLOWER = [(BayesianRegressor, "bbb"), (BayesianRegressor, "k-tied")]
"""Where draws of weights disturb the means most."""

pytestmark = [
    # runs this short say that they are; chains that they cannot be judged
    pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning"),
    # sklearn's check of read-only input and others warn by themselves of what they feed
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def brief_verdicts(method: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a fit says of itself is not asked here, and would take as long as these fits: a mixture and a Gaussian have
    it, from fewer draws.
    """
    monkeypatch.setattr("bayeswell.training.verdicts.elbo._KL_DRAWS", 2)
    monkeypatch.setattr("bayeswell.training.verdicts.curvature._PROBES", 1)
    monkeypatch.setattr("bayeswell.training.verdicts.conclude.DRAWS", 2)
    with nullcontext() if method in ("auto", "bbb") else unjudged():
        yield


@pytest.fixture
def brief_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the checks ``..._train`` ask how well was learned; the others get an estimator of the fewest epochs."""
    all_checks = estimator_checks.estimator_checks_generator

    def with_fewest_epochs(estimator: Any, **settings: Any) -> Iterator[tuple[Any, Any]]:
        for each, check in all_checks(estimator, **settings):
            if not check.func.__name__.endswith("_train"):
                each = clone(each).set_params(epochs=FEWEST[each.method])
            yield each, check

    monkeypatch.setattr(estimator_checks, "estimator_checks_generator", with_fewest_epochs)


def require_whole(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else a check is skipped
    found = check_estimator(estimator, on_skip=None, on_fail=None)
    assert len(found) >= 55
    not_passed = {each["check_name"]: each["exception"] for each in found if each["status"] != "passed"}
    assert not_passed == {}


@pytest.mark.usefixtures("brief_verdicts", "brief_fits")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_check_passes(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"lr": 0.05 if (kind, method) in SLOWER else 0.1, **METHODS[method]}
    require_whole(kind(method, **SMALL, epochs=EPOCHS[kind], settings=settings), monkeypatch)


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
    estimator = kind("map", **SMALL, epochs=3)
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
