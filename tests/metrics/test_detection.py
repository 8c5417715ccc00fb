"""AUROC, AUPR and FPR95 against scikit-learn, with ties and at the ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.random import make_generator
from metrics.inputs import BOOTSTRAP_TOLERANCE, bootstrap

ALL = (metrics.auroc, metrics.aupr, metrics.fpr_at_recall)
scores = st.lists(st.integers(0, 6), min_size=1, max_size=45).map(lambda found: torch.tensor(found) / 7)


def random_scores(n: int, m: int, *, steps: int = 10**6, seed: int = 6) -> tuple[Tensor, Tensor]:
    generator = make_generator(seed)
    inside, outside = torch.randn(n, generator=generator), 1.3 * torch.randn(m, generator=generator) + 0.9
    return (inside * steps).round() / steps, (outside * steps).round() / steps


def labelled(inside: Tensor, outside: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.zeros(len(inside)), np.ones(len(outside))], torch.cat([inside, outside]).double().numpy()


@given(scores, scores)
def test_against_scikit_learn(inside: Tensor, outside: Tensor) -> None:
    truth, values = labelled(inside, outside)
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # its checks take longer than it
        auroc = sklearn.metrics.roc_auc_score(truth, values)
        aupr = sklearn.metrics.average_precision_score(truth, values)
        # Inside as the positive class, and high scores for it.
        false, true, _ = sklearn.metrics.roc_curve(1 - truth, -values, drop_intermediate=False)
    assert metrics.auroc(inside, outside) == pytest.approx(auroc)
    assert metrics.aupr(inside, outside) == pytest.approx(aupr)
    assert metrics.fpr_at_recall(inside, outside) == pytest.approx(false[np.argmax(true >= 0.95)])
    assert metrics.fpr_at_recall(inside, outside, recall=1.0) == pytest.approx(false[np.argmax(true >= 1.0)])


@given(scores, scores)
def test_symmetries_of_auroc(inside: Tensor, outside: Tensor) -> None:
    value = metrics.auroc(inside, outside)
    assert metrics.auroc(-inside, -outside) == pytest.approx(1 - value)
    assert metrics.auroc(outside, inside) == pytest.approx(1 - value)
    assert metrics.auroc(inside.exp(), outside.exp()) == pytest.approx(value)
    pairs = [(o > i) + 0.5 * (o == i) for o in outside.tolist() for i in inside.tolist()]
    assert value == pytest.approx(sum(pairs) / len(pairs))


def test_scores_that_are_all_equal() -> None:
    inside, outside = torch.full((30,), 0.4), torch.full((10,), 0.4)
    assert metrics.auroc(inside, outside) == 0.5
    assert metrics.aupr(inside, outside) == 0.25
    assert metrics.fpr_at_recall(inside, outside) == 1.0


def test_perfect_separation_and_its_reverse() -> None:
    inside, outside = torch.rand(30), torch.rand(10) + 2
    assert [metric(inside, outside) for metric in ALL] == [1, 1, 0]
    assert metrics.auroc(-inside, -outside) == 0
    assert metrics.fpr_at_recall(-inside, -outside) == 1


def test_the_threshold_of_fpr95() -> None:
    # Twenty inside scores 1 to 20: nineteen of them pass at 19, which is where 0.95 begins.
    inside = torch.arange(1.0, 21.0)
    assert metrics.fpr_at_recall(inside, torch.tensor([18.5, 19.0, 19.5, 30.0])) == 0.5
    # 0.55 * 100 is 55.00000000000001 to a computer.
    inside = torch.arange(1.0, 101.0)
    assert metrics.fpr_at_recall(inside, torch.tensor([54.5, 55.5]), recall=0.55) == 0.5


def plain_auroc(inside: Tensor, outside: Tensor) -> Tensor:
    """The share of pairs in which the outside score is higher, ties half."""
    inside = inside.sort(-1).values
    below, up_to = (torch.searchsorted(inside, outside, right=right).double() for right in (False, True))
    return (below + up_to).mean(-1) / (2 * inside.shape[-1])


def plain_aupr(inside: Tensor, outside: Tensor) -> Tensor:
    """The mean over outside scores of the share of outside ones among all that are as high."""
    wrong, right = (
        (side.shape[-1] - torch.searchsorted(side.sort(-1).values, outside)).double() for side in (inside, outside)
    )
    return (right / (wrong + right)).mean(-1)


def plain_fpr95(inside: Tensor, outside: Tensor) -> Tensor:
    """The share of outside scores up to the one that 95 % of the inside ones are up to."""
    threshold = inside.sort(-1).values[..., math.ceil(0.95 * inside.shape[-1]) - 1, None]
    return (outside <= threshold).double().mean(-1)


PLAIN = {"auroc": plain_auroc, "aupr": plain_aupr, "fpr_at_recall": plain_fpr95}


@pytest.mark.parametrize(("sizes", "steps"), [((600, 350), 10**6), ((600, 350), 2), ((150, 900), 10), ((900, 150), 10)])
@pytest.mark.parametrize("name", PLAIN)
def test_standard_errors_against_the_bootstrap(name: str, sizes: tuple[int, int], steps: int) -> None:
    inside, outside = random_scores(*sizes, steps=steps)
    estimate = getattr(metrics, name)(inside, outside)
    direct = bootstrap(PLAIN[name], estimate.value, (inside,), (outside,))
    assert estimate.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)
    assert estimate.over == "examples"


def test_one_input_of_a_kind_has_no_error() -> None:
    for name in ("auroc", "aupr", "fpr_at_recall"):
        found = getattr(metrics, name)(torch.tensor([0.1]), torch.tensor([0.5, 0.6]))
        assert found.error is None
        assert 0 <= found.value <= 1


def test_bad_input_is_one_line() -> None:
    good = torch.tensor([0.1, 0.2])
    for metric in ALL:
        with pytest.raises(DataError, match=r"outside scores: shape \(0,\) holds no examples"):
            metric(good, torch.zeros(0))
        with pytest.raises(DataError, match=r"inside scores: shape \(2, 1\); they must be \(n,\)"):
            metric(good[:, None], good)
        with pytest.raises(DataError, match="outside scores: NaN or infinity"):
            metric(good, torch.tensor([0.1, torch.inf]))
    with pytest.raises(SettingError, match=r"recall = 95; it must be a number in \(0, 1\]"):
        metrics.fpr_at_recall(good, good, recall=95)
