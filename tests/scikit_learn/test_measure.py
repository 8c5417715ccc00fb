"""Weights are repetitions: the same measure, however it is written, is the same training set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayeswell.errors import DataError
from bayeswell.sklearn import BayesianRegressor, measure
from bayeswell.sklearn.measure import Rows, counted, merged, written_out

X = np.array([[0.5, -0.0], [2.0, 1.0], [0.5, 0.0], [2.0, 1.0]])
Y = np.array([1.0, 3.0, 1.0, 4.0])


def test_equal_rows_are_one_with_the_sum_of_their_weights() -> None:
    found = merged(Rows(X, Y, np.array([1.5, 1.0, 0.25, 2.0])))
    listed = {(*x, y): w for x, y, w in zip(found.inputs.tolist(), found.targets, found.weights, strict=True)}
    assert {(abs(a), abs(b), y): w for (a, b, y), w in listed.items()} == {
        (0.5, 0.0, 1.0): 1.75, (2.0, 1.0, 3.0): 1.0, (2.0, 1.0, 4.0): 2.0,
    }  # fmt: skip


def test_rows_are_sorted_by_their_numbers() -> None:
    numbers = np.array([-np.inf, -2.5, -2.0, -1e-300, 0.0, 1e-300, 1.0, 3.0, np.inf])
    mixed = np.random.default_rng(0).permutation(numbers)
    np.testing.assert_array_equal(merged(Rows(mixed[:, None], np.zeros(9))).inputs.ravel(), numbers)
    np.testing.assert_array_equal(merged(Rows(np.zeros((9, 1)), mixed)).targets, numbers)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any), st.randoms())
def test_weights_and_repetitions_in_any_order_are_the_same_rows(counts: list[int], shuffler: object) -> None:
    rng = np.random.default_rng(len(counts))
    inputs, targets = rng.normal(size=(len(counts), 2)), rng.normal(size=len(counts))
    kept = counted(np.array(counts, dtype=float), len(counts))
    weighted = merged(Rows(inputs[kept], targets[kept], np.array(counts, dtype=float)[kept]))
    places = [row for row, count in enumerate(counts) for _ in range(count)]
    shuffler.shuffle(places)  # type: ignore[attr-defined]
    repeated = merged(Rows(inputs[places], targets[places]))
    one, other = written_out(weighted, len(counts)), written_out(repeated, len(places))
    assert one.weights is None
    assert other.weights is None
    assert len(one) == sum(counts)
    np.testing.assert_array_equal(one.inputs, other.inputs)
    np.testing.assert_array_equal(one.targets, other.targets)


def test_other_weights_stay_weights_and_so_do_very_many_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(X[:2], Y[:2], np.array([1.0, 0.5]))
    assert written_out(rows, 2) is rows
    monkeypatch.setattr(measure, "MOST_REPEATED", 4)
    many = Rows(X[:2], Y[:2], np.array([2.0, 3.0]))
    assert written_out(many, 2) is many
    assert len(written_out(many, 5)) == 5  # so many rows were given: they are never turned into weights


def test_weights_of_zero_alone_are_refused() -> None:
    with pytest.raises(DataError, match="all examples are zero"):
        counted(np.zeros(3), 3)


@pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")
def test_fractions_of_a_weight_add_up_and_the_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    weights = rng.integers(1, 8, size=30) / 4
    model = BayesianRegressor("bbb", (5,), epochs=4, random_state=0)
    whole = model.fit(x, y, weights).predict(x)
    order = rng.permutation(45)
    halves = np.concatenate([x, x[:15]]), np.concatenate([y, y[:15]])
    split = np.concatenate([weights, weights[:15] / 2])
    split[:15] /= 2
    np.testing.assert_array_equal(model.fit(halves[0][order], halves[1][order], split[order]).predict(x), whole)
    assert np.abs(model.fit(x, y).predict(x) - whole).max() > 1e-3  # they do count
