"""OOD detection and selective prediction against scikit-learn and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError
from bayeswell.core.random import make_generator
from bayeswell.metrics import aupr, aurc, auroc, risk_coverage
from sklearn import metrics as sk

from .inputs import BOOTSTRAP_TOLERANCE, bootstrap_se


def _sides(ties: bool) -> tuple[Tensor, Tensor]:
    generator = make_generator(4)
    inside = torch.randn(250, generator=generator).double()
    outside = torch.randn(160, generator=generator).double() + 0.8
    return ((inside * 2).round(), (outside * 2).round()) if ties else (inside, outside)


@pytest.mark.parametrize("ties", [False, True])
def test_areas_match_scikit_learn(ties: bool) -> None:
    inside, outside = _sides(ties)
    truth, scores = np.r_[np.zeros(250), np.ones(160)], torch.cat([inside, outside]).numpy()
    assert auroc(inside, outside).value == pytest.approx(sk.roc_auc_score(truth, scores))
    assert aupr(inside, outside).value == pytest.approx(sk.average_precision_score(truth, scores))
    assert auroc(-inside, -outside).value == pytest.approx(1 - auroc(inside, outside).value)


@pytest.mark.parametrize("score", [auroc, aupr])
@pytest.mark.parametrize("ties", [False, True])
def test_standard_errors_of_areas_match_the_bootstrap(score: object, ties: bool) -> None:
    inside, outside = _sides(ties)
    expected = bootstrap_se(score, (inside,), (outside,))  # type: ignore[arg-type]
    assert score(inside, outside).se == pytest.approx(expected, rel=BOOTSTRAP_TOLERANCE)  # type: ignore[operator]


def test_uninformative_and_perfect_scores() -> None:
    same = torch.ones(20)
    assert auroc(same, same[:5]).value == 0.5
    assert aupr(same, same[:5]).value == pytest.approx(0.2)
    assert auroc(same, same + 1).value == aupr(same, same + 1).value == 1
    assert auroc(same[:1], same).se is None
    with pytest.raises(DataError, match="one score"):
        auroc(same[:, None], same)


def test_risk_coverage_averages_over_the_orders_of_ties() -> None:
    losses, scores = torch.tensor([1.0, 0.0, 3.0, 0.5, 2.0]), torch.tensor([0.1, 0.4, 0.4, 0.4, 0.9])
    curves = []
    for order in itertools.permutations([1, 2, 3]):
        ordered = losses[[0, *order, 4]]
        curves.append(ordered.cumsum(0) / torch.arange(1, 6))
    found = risk_coverage(losses, scores)
    torch.testing.assert_close(found.risk, torch.stack(curves).mean(0).double())
    torch.testing.assert_close(found.coverage, torch.arange(1, 6).double() / 5)
    assert aurc(losses, scores).value == pytest.approx(float(found.risk.mean()))


def test_aurc_of_perfect_and_constant_rankings() -> None:
    n, m = 40, 7
    losses = torch.tensor([0.0] * (n - m) + [1.0] * m)
    expected = sum(j / (n - m + j) for j in range(1, m + 1)) / n
    assert aurc(losses, torch.arange(n)).value == pytest.approx(expected)
    assert aurc(losses, torch.zeros(n)).value == pytest.approx(m / n)


def test_standard_error_of_aurc_matches_the_bootstrap() -> None:
    generator = make_generator(6)
    scores = torch.rand(300, generator=generator).double()
    losses = (torch.rand(300, generator=generator) < scores).double()
    expected = bootstrap_se(aurc, (losses, scores))
    assert aurc(losses, scores).se == pytest.approx(expected, rel=BOOTSTRAP_TOLERANCE)
