"""Scores against answers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayeswell.datasets import Scaling
from bayeswell.experiments.scores import as_json, ood_scores, prediction_scores
from bayeswell.predictive import ClassPrediction, RealPrediction


def test_real_targets_are_scored_in_their_own_units() -> None:
    generator = torch.Generator().manual_seed(3)
    mean, targets = (torch.randn(40, 1, generator=generator) for _ in range(2))
    epistemic, aleatoric = (torch.rand(40, 1, generator=generator) + 0.1 for _ in range(2))
    shift, scale = 7.0, 2.5
    found = prediction_scores(
        RealPrediction(mean, epistemic, aleatoric, draws=9),
        targets,
        Scaling(target_shift=torch.tensor([shift]).double(), target_scale=torch.tensor([scale]).double()),
    )
    y, m = (targets.double() * scale + shift).flatten(), (mean.double() * scale + shift).flatten()
    std = ((epistemic + aleatoric).double().sqrt() * scale).flatten()
    losses = -stats.norm.logpdf(y.numpy(), m.numpy(), std.numpy())
    squares = ((y - m) ** 2).numpy()
    assert found["nll"].value == pytest.approx(losses.mean(), rel=1e-6)
    assert found["nll"].error == pytest.approx(losses.std(ddof=1) / math.sqrt(40), rel=1e-5)
    assert found["rmse"].value == pytest.approx(math.sqrt(squares.mean()), rel=1e-6)
    by_delta = squares.std(ddof=1) / math.sqrt(40) / (2 * math.sqrt(squares.mean()))
    assert found["rmse"].error == pytest.approx(by_delta, rel=1e-5)


def test_several_outputs_are_scored_together() -> None:
    """The NLL is the sum over outputs, and so is the loss of each example that its standard error comes from."""
    generator = torch.Generator().manual_seed(4)
    mean, targets = (torch.randn(30, 3, generator=generator) for _ in range(2))
    variance = torch.rand(30, 3, generator=generator) + 0.2
    scale = torch.tensor([2.5, 0.4, 7.0]).double()
    found = prediction_scores(
        RealPrediction(mean, torch.zeros(30, 3), variance, draws=9),
        targets,
        Scaling(target_shift=torch.zeros(3).double(), target_scale=scale),
    )
    y, m, std = ((part * scale).numpy() for part in (targets, mean, variance.double().sqrt()))
    losses, squares = -stats.norm.logpdf(y, m, std).sum(1), ((y - m) ** 2).mean(1)
    assert found["nll"].value == pytest.approx(losses.mean(), rel=1e-6)
    assert found["nll"].error == pytest.approx(losses.std(ddof=1) / math.sqrt(30), rel=1e-5)
    assert found["rmse"].value == pytest.approx(math.sqrt(squares.mean()), rel=1e-6)
    by_delta = squares.std(ddof=1) / math.sqrt(30) / (2 * math.sqrt(squares.mean()))
    assert found["rmse"].error == pytest.approx(by_delta, rel=1e-5)


def _classes(probabilities: torch.Tensor) -> ClassPrediction:
    entropy = torch.special.entr(probabilities).sum(-1)
    return ClassPrediction(probabilities, entropy, entropy, torch.zeros_like(entropy), draws=1)


def test_classes_are_scored_by_hand() -> None:
    rows = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]], dtype=torch.float64)
    labels = torch.tensor([0, 2, 2, 1])
    found = as_json(prediction_scores(_classes(rows), labels, Scaling()))
    losses = torch.tensor([0.7, 0.3, 0.4, 0.25]).double().log().neg()
    assert found["values"]["accuracy"] == 0.5
    assert found["standard_errors_over_examples"]["accuracy"] == pytest.approx(math.sqrt(1 / 3) / 2)
    assert found["values"]["nll"] == pytest.approx(float(losses.mean()))
    assert found["standard_errors_over_examples"]["nll"] == pytest.approx(float(losses.std() / 2))
    assert found["values"]["brier"] == pytest.approx((0.14 + 0.86 + 0.54 + 0.875) / 4)
    assert found["values"]["ece"] == pytest.approx((0.3 + 0.6 + 0.6 + 0.5) / 4)


def test_the_auroc_is_the_share_of_pairs_with_the_higher_entropy_outside() -> None:
    generator = torch.Generator().manual_seed(5)
    inside, outside = (torch.softmax(k * torch.randn(30, 4, generator=generator).double(), -1) for k in (3.0, 1.5))
    here, there = (torch.special.entr(rows).sum(-1) for rows in (inside, outside))
    expected = (there[:, None] > here[None, :]).double().mean()
    found = ood_scores(_classes(inside), _classes(outside))
    assert found["auroc"].value == pytest.approx(float(expected))
    assert 0.6 < found["auroc"].value < 0.95
    assert found["ood_entropy"].value == pytest.approx(float(there.mean()))
