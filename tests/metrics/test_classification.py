"""Scores of class probabilities against scikit-learn and formulas."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayeswell.core.errors import DataError
from bayeswell.metrics import (
    accuracy,
    brier,
    entropy,
    expected_entropy,
    least_confidence,
    mutual_information,
    nll,
    predictive_entropy,
)
from sklearn import metrics as sk

from .inputs import BOOTSTRAP_TOLERANCE, bootstrap_se, random_labels, random_probabilities

P, Y = random_probabilities(300, 4), random_labels(300, classes=4)


def test_scores_match_scikit_learn() -> None:
    assert accuracy(P, Y).value == pytest.approx(sk.accuracy_score(Y, P.argmax(-1)))
    assert nll(P, Y).value == pytest.approx(sk.log_loss(Y, P.numpy()))
    one_hot = torch.nn.functional.one_hot(Y, 4)
    assert brier(P, Y).value == pytest.approx(float((P - one_hot).square().sum(-1).mean()))


def test_arrays_lists_and_tensors_are_alike() -> None:
    for probabilities, labels in ((P.numpy(), Y.numpy()), (P.numpy()[::-1][::-1], Y.tolist()), (P, Y.to(torch.uint16))):
        assert nll(probabilities, labels) == nll(P, Y)
    big_endian = P.numpy().astype(">f8")
    assert nll(big_endian, Y) == nll(P, Y)


@pytest.mark.parametrize("score", [accuracy, nll, brier])
def test_standard_error_matches_the_bootstrap(score: object) -> None:
    found = score(P, Y)  # type: ignore[operator]
    assert found.se == pytest.approx(bootstrap_se(score, (P, Y)), rel=BOOTSTRAP_TOLERANCE)  # type: ignore[arg-type]


def test_positions_of_one_example_are_not_independent() -> None:
    repeated, labels = P[:, None].expand(-1, 9, -1), Y[:, None].expand(-1, 9)
    found = nll(repeated, labels)
    assert found.value == pytest.approx(nll(P, Y).value)
    assert found.se == pytest.approx(nll(P, Y).se)


def test_impossible_labels_cost_the_floor() -> None:
    assert nll(torch.eye(2), torch.tensor([1, 0])).value == pytest.approx(-math.log(1e-12))


def test_one_example_has_no_standard_error() -> None:
    assert nll(P[:1], Y[:1]).se is None


@given(seed=st.integers(0, 50), draws=st.integers(1, 6), scale=st.floats(0.1, 8))
def test_draws_obey_jensen_and_the_bounds_of_mutual_information(seed: int, draws: int, scale: float) -> None:
    samples, labels = (
        random_probabilities(draws, 10, 3, seed=seed, scale=scale),
        random_labels(10, classes=3, seed=seed),
    )
    single = [nll(probabilities, labels).value for probabilities in samples]
    assert nll(samples.mean(0), labels).value <= sum(single) / draws + 1e-12
    information = mutual_information.by_example(samples)
    assert bool((information >= 0).all())
    assert bool((information <= math.log(draws) + 1e-12).all())
    total = expected_entropy(samples).value + float(information.mean())
    assert predictive_entropy(samples.mean(0)).value == pytest.approx(total)


def test_entropy_of_extremes() -> None:
    assert float(entropy(torch.tensor([1.0, 0.0]))) == 0
    assert float(entropy(torch.full((8,), 1 / 8))) == pytest.approx(math.log(8))
    assert least_confidence(torch.full((2, 8), 1 / 8)).value == pytest.approx(7 / 8)
    assert mutual_information(P.expand(3, -1, -1)).value == 0


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (P * 2, Y, "sum to 1"),
        (P - 0.3, Y, "at least 0"),
        (P.log(), Y, "softmax"),
        (P, Y.double(), "integers"),
        (P, Y[:5], "shape"),
        (P, Y + 1, "0 to 3"),
        (P[:, 0], Y, r"\(S, ..., K\)"),
        (P[:0], Y[:0], "no examples"),
        (np.array(["a", "b"]), Y, "real numbers"),
    ],
)
def test_wrong_inputs_are_refused(probabilities: object, labels: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nll(probabilities, labels)  # type: ignore[arg-type]


def test_scores_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(nll)) is nll
