"""Scores against answers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.metrics import r2_score
from torch import nn

from bayeswell.datasets import Data, Scaling
from bayeswell.experiments.scores import as_json, evaluation_of, ood_scores
from bayeswell.likelihoods import Categorical, Gaussian, Poisson, StudentT
from bayeswell.predictive import ClassPrediction, Evaluation
from bayeswell.predictive.predictor import Predictor


class Fixed(nn.Module):
    """Three draws whose outputs are written down; inputs are places."""

    training = False

    def __init__(self, outputs: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("outputs", outputs)

    def draws(self, count: int, generator: Any) -> Iterator[dict[str, torch.Tensor]]:
        yield from ({"outputs": one} for one in self.outputs)

    def useful_draws(self, count: int) -> int:
        return len(self.outputs)

    def call(self, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return weights["outputs"][x.long()]


def scored(outputs: torch.Tensor, targets: torch.Tensor, likelihood: Any, scaling: Scaling) -> Evaluation:
    test = torch.arange(outputs.shape[1]), targets
    classes = tuple("abc") if isinstance(likelihood, Categorical) else None
    data = Data("x", test, None, test, (), targets[0].numel(), "", classes, scaling)
    return evaluation_of(Predictor(Fixed(outputs), likelihood), data, draws=100)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("likelihood", "law"),
    [
        (Gaussian("known", 0.7), lambda f, a, b: stats.norm(a * f + b, a * 0.7)),
        (StudentT("known", 0.7, 3.5), lambda f, a, b: stats.t(3.5, a * f + b, a * 0.7)),
    ],
    ids=["gaussian", "student_t"],
)
def test_real_targets_are_scored_in_their_own_units_by_their_own_likelihood(likelihood: Any, law: Any) -> None:
    """Three outputs, three draws: the NLL of the mixture of scipy's laws, summed over outputs, and its error."""
    generator = torch.Generator().manual_seed(4)
    f, y = torch.randn(3, 40, 3, generator=generator).double(), torch.randn(40, 3, generator=generator).double()
    shift, scale = torch.tensor([7.0, -2.0, 0.5]).double(), torch.tensor([2.5, 0.4, 7.0]).double()
    found = scored(f, y, likelihood, Scaling(target_shift=shift, target_scale=scale))
    raw, a, b = (y * scale + shift).numpy(), scale.numpy(), shift.numpy()
    laws = law(f.numpy(), a, b)
    losses = math.log(3) - special.logsumexp(laws.logpdf(raw).sum(2), axis=0)
    assert found.draws == 3
    assert found["nll"].value == pytest.approx(losses.mean(), rel=1e-6)
    assert found["nll"].error == pytest.approx(losses.std(ddof=1) / math.sqrt(40), rel=1e-6)
    assert found["expected_nll"].value == pytest.approx(-laws.logpdf(raw).sum(2).mean(), rel=1e-6)
    squares = ((raw - laws.mean().mean(0)) ** 2).mean(1)
    assert found["rmse"].value == pytest.approx(math.sqrt(squares.mean()), rel=1e-6)
    by_delta = squares.std(ddof=1) / math.sqrt(40) / (2 * math.sqrt(squares.mean()))
    assert found["rmse"].error == pytest.approx(by_delta, rel=1e-5)
    pit = laws.cdf(raw).mean(0)
    assert found["coverage_50"].value == pytest.approx(float((abs(pit - 0.5) <= 0.25).mean()))
    assert found["r2"].value == pytest.approx(r2_score(raw, laws.mean().mean(0)))


def test_counts_are_scored_as_counts() -> None:
    """The Gaussian with the moments of the prediction would give another NLL, which is what was reported before."""
    generator = torch.Generator().manual_seed(2)
    f = torch.randn(3, 50, 1, generator=generator).double()
    y = torch.poisson(f[0].exp(), generator=generator)
    found = scored(f, y, Poisson(), Scaling())
    laws = stats.poisson(f.exp().numpy())
    losses = math.log(3) - special.logsumexp(laws.logpmf(y.numpy())[:, :, 0], axis=0)
    assert found["nll"].value == pytest.approx(losses.mean())
    at, below = laws.cdf(y.numpy()).mean(0), laws.cdf(y.numpy() - 1).mean(0)
    for level in (50, 90, 95):
        side = (100 - level) / 200
        inside = (at >= side) & (below < 1 - side)
        assert found[f"coverage_{level}"].value == pytest.approx(float(inside.mean()))
    assert float((at < 0.75).mean()) < float((below < 0.75).mean())
    assert "calibration_error" not in found
    mean = laws.mean().mean(0)
    gaussian = -stats.norm(mean, np.sqrt(mean + laws.mean().var(0))).logpdf(y.numpy()).mean()
    assert abs(gaussian - found["nll"]) > 0.05


def _classes(probabilities: torch.Tensor) -> ClassPrediction:
    entropy = torch.special.entr(probabilities).sum(-1)
    return ClassPrediction(probabilities, entropy, entropy, torch.zeros_like(entropy), draws=1)


def test_classes_are_scored_by_hand() -> None:
    rows = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]], dtype=torch.float64)
    labels = torch.tensor([0, 2, 2, 1])
    found = as_json(scored(rows.log()[None], labels, Categorical(), Scaling()))
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
