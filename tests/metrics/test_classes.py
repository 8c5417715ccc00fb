"""NLL, Brier score and uncertainty: identities that hold for every prediction."""

from __future__ import annotations

import math

import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.random import make_generator
from metrics.inputs import awkward, labels_from, random_labels, random_probabilities

CASES = awkward()


@given(
    st.integers(1, 8),
    st.integers(1, 10),
    st.integers(2, 5),
    st.sampled_from([0.5, 3.0, 30.0, 300.0]),
    st.integers(0, 99),
)
def test_nll_of_the_mean_is_never_above_the_mean_nll(
    draws: int, examples: int, classes: int, scale: float, seed: int
) -> None:
    # With a scale of 300 most probabilities are 0 or 1 exactly, or far below the floor of the NLL.
    samples = random_probabilities(draws, examples, classes, seed=seed, scale=scale)
    y = random_labels(examples, classes=classes, seed=seed)
    for given_samples in (samples, samples.float()):
        mean = given_samples.double().mean(0)
        expected = metrics.expected_nll(given_samples, y)
        assert metrics.nll(mean, y) <= expected + 1e-12 * (1 + expected)


def test_jensen_survives_the_floor() -> None:
    # Were single draws floored at 1e-12 too, their mean NLL would be 27.1 here and the NLL of the mean 27.6.
    tiny = torch.tensor([0.0, 0.0, 2.9e-12], dtype=torch.float64)
    samples = torch.stack([tiny, 1 - tiny], -1)[:, None]
    y = torch.tensor([0])
    assert metrics.nll(samples.mean(0), y) <= metrics.expected_nll(samples, y)


def test_expected_nll_is_the_mean_over_draws() -> None:
    samples, y = random_probabilities(7, 40, 3), random_labels(40, classes=3)
    single = [sklearn.metrics.log_loss(y, draw, labels=[0, 1, 2]) for draw in samples]
    assert metrics.expected_nll(samples, y) == pytest.approx(sum(single) / 7, rel=1e-12)
    per_example = metrics.expected_nll.of_examples(samples, y)
    assert per_example[3] == pytest.approx(-float(samples[:, 3, y[3]].log().mean()))


@pytest.mark.parametrize("case", CASES)
def test_tfp_brier_is_brier_less_one(case: str) -> None:
    p, y = CASES[case]
    direct = sum(sum(q * q for q in row) - 2 * row[label] for row, label in zip(p.tolist(), y.tolist(), strict=True))
    assert metrics.tfp_brier(p, y) == pytest.approx(direct / len(y), rel=1e-12, abs=1e-14)
    assert metrics.brier(p, y) == pytest.approx(metrics.tfp_brier(p, y) + 1, rel=1e-12, abs=1e-14)
    assert -1 <= metrics.tfp_brier(p, y) <= 1


def test_the_sign_that_the_k_tied_paper_prints() -> None:
    # Table 3: Brier -0.761 beside NLL 0.495 and an accuracy of 83.5 %. A standard Brier score is never below 0 ...
    p = random_probabilities(4000, 10, scale=6.2, seed=8)
    y = labels_from(p)
    # ... and probabilities of about that NLL and accuracy have about this one in TFP's sign.
    assert 0.4 < metrics.nll(p, y) < 0.55
    assert 0.8 < metrics.accuracy(p, y) < 0.87
    assert metrics.tfp_brier(p, y) == pytest.approx(-0.761, abs=0.03)
    assert metrics.brier(p, y) == pytest.approx(0.239, abs=0.03)


def test_negative_elbo() -> None:
    assert metrics.negative_elbo(0.31, 1200.0, 4000) == pytest.approx(0.61)
    with pytest.raises(SettingError, match="training_examples = 0"):
        metrics.negative_elbo(0.3, 1.0, 0)
    with pytest.raises(SettingError, match="kl = nan"):
        metrics.negative_elbo(0.3, math.nan, 5)


def test_agreeing_draws_have_no_mutual_information_at_all() -> None:
    # As a score, rounding errors would rank the inputs by nothing.
    same = random_probabilities(1, 200, 5).expand(30, 200, 5)
    assert metrics.mutual_information.of_examples(same).tolist() == [0.0] * 200
    apart = random_probabilities(30, 200, 5)
    information = metrics.mutual_information.of_examples(apart)
    assert bool((information > 0).all() & (information < math.log(5)).all())
    assert metrics.mutual_information(apart) == pytest.approx(float(information.mean()))
    parts = metrics.expected_entropy(apart) + metrics.mutual_information(apart)
    assert metrics.predictive_entropy(apart.mean(0)) == pytest.approx(parts, rel=1e-12)


def test_per_example_numbers_keep_their_shape() -> None:
    p, y = random_probabilities(3, 4, 5), random_labels(3, 4, classes=5)
    functions = (metrics.accuracy.of_examples, metrics.nll.of_examples, metrics.brier.of_examples)
    for function, mean in zip(functions, (metrics.accuracy, metrics.nll, metrics.brier), strict=True):
        assert function(p, y).shape == (3, 4)
        assert float(function(p, y).mean()) == pytest.approx(mean(p, y))
    assert metrics.least_confidence(p)[1, 2] == pytest.approx(1 - max(p[1, 2].tolist()))


def test_bad_samples_are_one_line() -> None:
    y = torch.tensor([0, 1])
    with pytest.raises(DataError, match=r"\(D, S, ..., K\)"):
        metrics.expected_nll(random_probabilities(2, 3), y)
    with pytest.raises(DataError, match=r"labels have shape \(2,\).*ask for \(4,\)"):
        metrics.expected_nll(random_probabilities(2, 4, 3), y)
    with pytest.raises(DataError, match="label 1 at index 1"):
        metrics.expected_nll(torch.ones(2, 2, 1), y)
    with pytest.raises(DataError, match="labels: a list; it must be a tensor"):
        metrics.nll(random_probabilities(2, 3), [0, 1])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="sum to 1"):
        metrics.least_confidence(torch.randn(3, 4, generator=make_generator(1)))
