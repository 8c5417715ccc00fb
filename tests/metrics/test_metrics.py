"""Metrics against scikit-learn and slow direct formulas, at awkward inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from torch import Tensor

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.random import make_generator


def random_probabilities(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return (2 * torch.randn(shape, dtype=dtype, generator=make_generator(seed))).softmax(-1)


def slow_ece(probabilities: Tensor, labels: Tensor, bins: int) -> float:
    """Bin by bin: [b / bins, (b + 1) / bins), the last closed."""
    rows, truth = probabilities.double().tolist(), labels.tolist()
    total = 0.0
    for b in range(bins):
        members = [
            (max(p), p.index(max(p)) == y)
            for p, y in zip(rows, truth, strict=True)
            if b / bins <= max(p) < (b + 1) / bins or (b == bins - 1 and max(p) >= 1)
        ]
        if members:
            confidence = sum(c for c, _ in members) / len(members)
            right = sum(r for _, r in members) / len(members)
            total += len(members) / len(rows) * abs(right - confidence)
    return total


@pytest.mark.parametrize(("examples", "classes"), [(200, 5), (60, 2), (1, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_class_metrics_against_scikit_learn(examples: int, classes: int, dtype: torch.dtype) -> None:
    p = random_probabilities(examples, classes, dtype=dtype)
    y = torch.randint(classes, (examples,), generator=make_generator(2))
    every = list(range(classes))
    # scikit-learn wants rows that sum to 1 to its own precision.
    rows = p.double() / p.double().sum(-1, keepdim=True)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    assert metrics.nll(p, y) == pytest.approx(sklearn.metrics.log_loss(y, rows, labels=every), rel=tolerance)
    assert metrics.accuracy(p, y) == pytest.approx(sklearn.metrics.accuracy_score(y, rows.argmax(-1)))
    direct = np.mean([((rows[i].numpy() - np.eye(classes)[y[i]]) ** 2).sum() for i in range(examples)])
    assert metrics.brier(p, y) == pytest.approx(direct, rel=tolerance)
    if classes == 2:
        assert metrics.brier(p, y) == pytest.approx(2 * sklearn.metrics.brier_score_loss(y, rows[:, 1]), rel=tolerance)


@pytest.mark.parametrize("bins", [1, 7, 15, 20])
def test_ece_against_a_slow_formula(bins: int) -> None:
    p = random_probabilities(500, 4)
    y = torch.randint(4, (500,), generator=make_generator(3))
    assert metrics.ece(p, y, bins=bins) == pytest.approx(slow_ece(p, y, bins), rel=1e-11)
    assert metrics.ece(p, y) == pytest.approx(slow_ece(p, y, 15), rel=1e-11)


def test_ece_of_known_cases() -> None:
    labels = torch.tensor([0, 1, 2, 3] * 5)
    sure = torch.eye(4, dtype=torch.float64)
    assert metrics.ece(sure[labels], labels) == 0  # confident and right; 1.0 has a bin
    assert metrics.ece(sure[torch.zeros(20).long()], labels) == pytest.approx(0.75)  # confidence 1, accuracy 1/4
    # Constant 1/K: all tied, the lowest class is guessed, right for 1/K.
    assert metrics.ece(torch.full((20, 4), 0.25, dtype=torch.float64), labels) == pytest.approx(0, abs=1e-15)


def test_ece_bins_are_closed_on_the_left() -> None:
    # With 4 bins, 0.75 belongs to [0.75, 1]: with 0.9 right and 0.75 wrong the bin's gap is |1/2 - 0.825|.
    # Bins closed on the right would keep them apart: (0.75 + 0.1) / 2.
    p = torch.tensor([[0.75, 0.25], [0.9, 0.1]], dtype=torch.float64)
    y = torch.tensor([1, 0])
    assert metrics.ece(p, y, bins=4) == pytest.approx(0.325)
    # 0.7 and 0.75 in float32 share the bin [0.7, 0.8) of ten.
    p32 = torch.tensor([[0.7, 0.3], [0.75, 0.25]])
    assert metrics.ece(p32, y.flip(0), bins=10) == pytest.approx(abs(0.5 - 0.725), rel=1e-6)


def test_certain_and_impossible_predictions() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    right, wrong = torch.tensor([0, 1]), torch.tensor([0, 2])
    assert metrics.nll(p, right) == 0
    assert metrics.nll(p, wrong) == pytest.approx(-math.log(1e-12) / 2)
    assert metrics.brier(p, right) == 0
    assert metrics.brier(p, wrong) == 1
    assert metrics.accuracy(p, wrong) == 0.5
    assert metrics.predictive_entropy(p) == 0


def test_ties_go_to_the_lowest_class() -> None:
    p = torch.tensor([[0.2, 0.4, 0.4]]).expand(2, 3)
    assert metrics.accuracy(p, torch.tensor([1, 2])) == 0.5
    assert metrics.accuracy(p, torch.tensor([1, 1])) == 1


def test_further_axes_count_as_examples() -> None:
    p, y = random_probabilities(3, 4, 5, 2), torch.randint(2, (3, 4, 5), generator=make_generator(4))
    for metric in (metrics.accuracy, metrics.nll, metrics.ece, metrics.brier):
        assert metric(p, y) == pytest.approx(metric(p.reshape(-1, 2), y.reshape(-1)))


def test_entropies_against_scipy() -> None:
    samples = random_probabilities(6, 40, 5)
    p = samples.mean(0)
    predictive = scipy.stats.entropy(p.numpy(), axis=-1).mean()
    expected = scipy.stats.entropy(samples.numpy(), axis=-1).mean()
    assert metrics.predictive_entropy(p) == pytest.approx(predictive, rel=1e-12)
    assert metrics.expected_entropy(samples) == pytest.approx(expected, rel=1e-12)
    # As the mean divergence of the draws from their average.
    divergence = scipy.stats.entropy(samples.numpy(), p.expand(6, 40, 5).numpy(), axis=-1).mean()
    assert metrics.mutual_information(samples) == pytest.approx(divergence, rel=1e-10)


def test_mutual_information_reaches_both_ends() -> None:
    same = random_probabilities(1, 30, 5, dtype=torch.float32).expand(7, 30, 5)
    assert metrics.mutual_information(same) == pytest.approx(0, abs=1e-12)
    apart = torch.eye(5)[:3, None, :].expand(3, 4, 5)  # each of 3 draws sure of another class
    assert metrics.mutual_information(apart) == pytest.approx(math.log(3))
    assert metrics.expected_entropy(apart) == 0


def test_regression_metrics_against_scipy() -> None:
    generator = make_generator(5)
    mean, y = (torch.randn(30, 2, dtype=torch.float64, generator=generator) for _ in range(2))
    variance = torch.rand(30, 2, dtype=torch.float64, generator=generator) + 0.1
    assert metrics.rmse(mean, y) == pytest.approx(math.sqrt(sklearn.metrics.mean_squared_error(y, mean)))
    density = scipy.stats.norm.logpdf(y.numpy(), mean.numpy(), variance.sqrt().numpy())
    assert metrics.gaussian_nll(mean, variance, y) == pytest.approx(-density.sum(1).mean(), rel=1e-12)


def test_regression_metrics_never_broadcast() -> None:
    mean, y = torch.arange(6.0), torch.arange(6.0) + 0.3
    variance = torch.full((6, 1), 0.2)
    assert metrics.rmse(mean[:, None], y) == pytest.approx(0.3, rel=1e-5)
    expected = 0.5 * (0.09 / 0.2 + math.log(2 * math.pi * 0.2))
    assert metrics.gaussian_nll(mean, variance, y[:, None]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(DataError, match=r"shape \(6, 1\).*\(6, 2\)"):
        metrics.rmse(mean[:, None], torch.zeros(6, 2))


GOOD = torch.tensor([[0.3, 0.7], [0.6, 0.4]])


@pytest.mark.parametrize(
    ("p", "y", "words"),
    [
        (GOOD, torch.tensor([0, 2]), ["label 2 at index 1", "2 classes"]),
        (GOOD, torch.tensor([-1, 0]), ["label -1 at index 0"]),
        (GOOD, torch.tensor([0.0, 1.0]), ["float32", "integers"]),
        (GOOD, torch.tensor([[0], [1]]), ["(2, 1)", "ask for (2,)"]),
        (GOOD[:0], torch.zeros(0).long(), ["(0, 2)", "at least one example"]),
        (torch.randn(2, 2, generator=make_generator(6)), torch.tensor([0, 1]), ["sum to 1", "softmax"]),
        (torch.tensor([[math.nan, 0.7], [0.6, 0.4]]), torch.tensor([0, 1]), ["nan"]),
        (torch.tensor([[1.2, -0.2], [0.6, 0.4]]), torch.tensor([0, 1]), ["-0.2"]),
    ],
)
def test_bad_predictions_are_one_line(p: Tensor, y: Tensor, words: list[str]) -> None:
    for metric in (metrics.accuracy, metrics.nll, metrics.ece, metrics.brier):
        with pytest.raises(DataError) as caught:
            metric(p, y)
        assert all(word in str(caught.value) for word in words), caught.value
        assert "\n" not in str(caught.value)


def test_bad_settings_and_shapes() -> None:
    with pytest.raises(SettingError, match="bins = 0"):
        metrics.ece(GOOD, torch.tensor([0, 1]), bins=0)
    with pytest.raises(DataError, match=r"\(D, S, ..., K\)"):
        metrics.mutual_information(GOOD)
    with pytest.raises(DataError, match="smallest variance is 0"):
        metrics.gaussian_nll(torch.zeros(3), torch.tensor([0.1, 0.0, 0.2]), torch.zeros(3))
    with pytest.raises(DataError, match="targets: NaN"):
        metrics.rmse(torch.zeros(2), torch.tensor([0.0, math.nan]))


def test_gradients_are_left_behind() -> None:
    p = random_probabilities(10, 3).requires_grad_()
    assert isinstance(metrics.nll(p, torch.zeros(10).long()), float)
