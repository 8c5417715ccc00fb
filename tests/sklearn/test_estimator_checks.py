"""scikit-learn's own conformance suite: no check is skipped, none is expected to fail."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, check_estimator

from bayeswell.sklearn import BayesianClassifier, BayesianRegressor

KINDS = [BayesianClassifier, BayesianRegressor]
EPOCHS = {BayesianClassifier: 5, BayesianRegressor: 12}
"""Enough for 0.83 right classes and an R2 of 0.5, which ``check_..._train`` ask for."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of scikit-learn about its own input
]


def require_all_checks(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else a check is skipped
    found = check_estimator(estimator, on_skip=None, on_fail=None)
    assert len(found) >= 55
    assert {each["check_name"]: each["exception"] for each in found if each["status"] != "passed"} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_all_checks_pass(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"lr": 0.1, "batch_size": 75}
    require_all_checks(kind("map", (8,), epochs=EPOCHS[kind], draws=2, settings=settings), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "bbb", "k-tied", "swag", "laplace", "deep-ensemble"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_checks_pass_with_other_methods(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"lr": 0.05, "batch_size": 75}
    if method in ("auto", "deep-ensemble"):
        settings["members"] = 2
    require_all_checks(kind(method, (8,), epochs=20, draws=10, settings=settings), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_checks_pass_with_defaults(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require_all_checks(kind(), monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_column_names_are_kept_and_compared(kind: Any) -> None:
    check_dataframe_column_names_consistency(kind.__name__, kind("map", (8,), epochs=3))
