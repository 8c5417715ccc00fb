from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.core.errors import DataError
from bayeswell.core.protocols import Likelihood
from bayeswell.metrics import SCORES, auroc
from bayeswell.nn import bayesian
from bayeswell.posteriors import scale_std
from bayeswell.prediction import evaluate, expected_nll, predict, predictive_nll
from bayeswell.tables import Preparation

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, :1] + X[:, 1:2] > 0).long().squeeze(1) + (X[:, 2] > 1).long()


def spread_model(outputs: int = 3) -> Any:
    model = bayesian(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs)))
    scale_std(model.posterior, 20.0)
    return model


def test_scores_of_classes_equal_direct_ones() -> None:
    model = spread_model()
    found = evaluate(model, X, LABELS, "categorical", draws=12, seed=3, batch_size=7)
    prediction = predict(model, X, "categorical", 12, seed=3)
    p = prediction.probabilities.double()
    hits = (p.argmax(1) == LABELS).double()
    losses = -p[torch.arange(40), LABELS].log()
    assert found["accuracy"].value == pytest.approx(float(hits.mean()))
    assert found["accuracy"].se == pytest.approx(float(hits.std()) / math.sqrt(40))
    assert found["nll"].value == pytest.approx(float(losses.mean()), rel=1e-5)
    assert found["nll"].se == pytest.approx(float(losses.std()) / math.sqrt(40), rel=1e-5)
    assert found["nll"].value == pytest.approx(
        float(predictive_nll(model, X, LABELS, "categorical", 12, seed=3).mean()), rel=1e-5
    )
    assert found["expected_nll"].value == pytest.approx(
        expected_nll(model, X, LABELS, "categorical", 12, seed=3), rel=1e-5
    )
    assert found["brier"].value == pytest.approx(
        float((p - nn.functional.one_hot(LABELS, 3)).square().sum(1).mean()), rel=1e-5
    )
    torch.testing.assert_close(found.per_example["nll"], losses, rtol=1e-4, atol=1e-6)
    assert set(found) <= set(SCORES)
    assert (found.draws, found.examples) == (12, 40)


def test_ood_inputs_are_detected_by_their_uncertainty() -> None:
    model = spread_model()
    found = evaluate(model, X, LABELS, "categorical", draws=12, seed=3, ood=X + 9)
    inside, outside = (predict(model, x, "categorical", 12, seed=3) for x in (X, X + 9))
    assert found["ood_auroc_entropy"].value == pytest.approx(auroc(inside.entropy, outside.entropy).value)
    key = "ood_auroc_mutual_information"
    assert found[key].value == pytest.approx(auroc(inside.epistemic, outside.epistemic).value)


def test_scores_of_real_targets_equal_direct_ones() -> None:
    model, y = spread_model(2), torch.randn(40, 2)
    likelihood = {"name": "gaussian", "noise": "known", "std": 0.8}
    found = evaluate(model, X, y, likelihood, draws=12, seed=3)
    prediction = predict(model, X, likelihood, 12, seed=3)
    assert found["rmse"].value == pytest.approx(float((prediction.mean - y).square().mean().sqrt()), rel=1e-5)
    inside = prediction.interval(0.9).contains(y).double()
    assert found["coverage_90"].value == pytest.approx(float(inside.mean()))
    width = prediction.interval(0.9)
    assert found["width_90"].value == pytest.approx(float((width.upper - width.lower).mean()), rel=1e-5)
    nll = predictive_nll(model, X, y, likelihood, 12, seed=3)
    assert found["nll"].value == pytest.approx(float(nll.mean()), rel=1e-6)
    torch.testing.assert_close(found.per_example["nll"], nll)


def test_crps_matches_quadrature() -> None:
    model, y = spread_model(1), torch.randn(8, 1)
    likelihood = {"name": "gaussian", "noise": "known", "std": 0.8}
    found = evaluate(model, X[:8], y, likelihood, draws=12, seed=3)
    mixture = predict(model, X[:8], likelihood, 12, seed=3).mixture
    grid = np.linspace(-30, 30, 6001)
    centers = mixture.outputs.squeeze(2).double().numpy()
    cdf = stats.norm.cdf(grid[:, None, None], centers, 0.8).mean(1)
    exact = np.trapezoid((cdf - (grid[:, None] >= y.numpy().T)) ** 2, grid, axis=0).mean()
    # 1,000 drawn targets for each of 8 examples, with stds of about 2.
    assert found["crps"].value == pytest.approx(exact, abs=5 * 2 / math.sqrt(8000))


def test_standardized_targets_are_scored_in_the_units_of_the_user() -> None:
    model, raw = spread_model(1), 50 + 7 * torch.randn(40, 1)
    preparation = Preparation.fit(X, raw, standardize=True, kind="real")
    likelihood = {"name": "gaussian", "noise": "known", "std": 0.5}
    found = evaluate(model, X, raw, likelihood, draws=12, seed=3, preparation=preparation)
    own = evaluate(model, preparation.inputs(X), preparation.targets(raw), likelihood, draws=12, seed=3)
    scale = float(raw.double().std(correction=0))
    for key, factor in (("rmse", scale), ("mae", scale), ("crps", scale), ("width_90", scale), ("r2", 1.0)):
        assert found[key].value == pytest.approx(own[key].value * factor, rel=1e-4)
    assert found["nll"].value == pytest.approx(own["nll"].value + math.log(scale), rel=1e-5)
    assert found["coverage_90"].value == own["coverage_90"].value


def test_counts_have_intervals_with_at_least_their_level() -> None:
    model = spread_model(1)
    y = predict(model, X, "poisson", 30, seed=3).sample_targets(1, seed=1)[0]
    found = evaluate(model, X, y, "poisson", draws=30, seed=3)
    assert found["coverage_90"].value >= 0.9 - 4 * math.sqrt(0.09 / 40)
    assert "calibration_error" not in found


def test_ignored_labels_are_left_out() -> None:
    model, labels = spread_model(), LABELS.clone()
    labels[10:] = -100
    likelihood = {"name": "categorical", "ignore_index": -100}
    found = evaluate(model, X, labels, likelihood, draws=5, seed=0)
    own = evaluate(model, X[:10], LABELS[:10], "categorical", draws=5, seed=0)
    assert found["accuracy"].value == own["accuracy"].value
    assert found["nll"].value == pytest.approx(own["nll"].value, rel=1e-6)


def test_a_likelihood_without_predictions_has_nlls() -> None:
    class Laplacian(Likelihood):
        def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (outputs - targets).abs().sum(1) + 3 * math.log(2)

    model, y = spread_model(), torch.randn(40, 3)
    found = evaluate(model, X, y, Laplacian(), draws=5, seed=0)
    assert set(found) == {"nll", "expected_nll"}
    assert found.predicted is None
    assert found["nll"].value <= found["expected_nll"].value


def test_bernoulli_labels_are_classes() -> None:
    model, y = spread_model(2), torch.randint(0, 2, (40, 2)).float()
    found = evaluate(model, X, y, "bernoulli", draws=5, seed=0)
    p = predict(model, X, "bernoulli", 5, seed=0).probabilities
    assert found["accuracy"].value == pytest.approx(float((p.argmax(-1) == y).double().mean()))


def test_loaders_bring_their_targets() -> None:
    model = spread_model()
    loader = DataLoader(TensorDataset(X, LABELS), batch_size=16)
    found, own = (evaluate(model, *data, "categorical", draws=5, seed=0) for data in ((loader, None), (X, LABELS)))
    assert found["nll"].value == pytest.approx(own["nll"].value)
    with pytest.raises(DataError, match="targets are missing"):
        evaluate(model, X, None, "categorical")


def test_evaluations_are_written_and_shown() -> None:
    found = evaluate(spread_model(), X, LABELS, "categorical", draws=5, seed=0)
    record = found.to_json()
    assert record["nll"] == found["nll"].value
    assert record["nll_se"] == found["nll"].se
    assert "accuracy" in repr(found)


@pytest.mark.parametrize("settings", [{"ignore_index": -100}, {"class_weights": (0.1, 3.0, 0.5)}])
def test_expected_nll_is_that_of_the_labels_that_count(settings: dict[str, Any]) -> None:
    """As the NLL: the mean over labels that are not ignored, without class weights, so Jensen's inequality holds."""
    model, labels = spread_model(), LABELS.clone()
    if "ignore_index" in settings:
        labels[10:] = -100
    found = evaluate(model, X, labels, {"name": "categorical", **settings}, draws=12, seed=0)
    p = predict(model, X, "categorical", 12, seed=0, keep_samples=True).samples.double()
    kept = labels >= 0
    exact = -p[:, torch.arange(40)[kept], labels[kept]].log().mean()
    assert found["expected_nll"].value == pytest.approx(float(exact), rel=1e-5)
    assert found["expected_nll"].value >= found["nll"].value


def test_evaluation_keeps_outputs_but_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bayeswell.prediction.predict"], "MOST_KEPT", 10)
    found = evaluate(spread_model(1), X, torch.randn(40, 1), "gaussian", draws=5, seed=0)
    assert "crps" in found
    assert found.predicted.samples is None


def test_unknown_scores_name_the_nearest() -> None:
    found = evaluate(spread_model(), X, LABELS, "categorical", draws=2)
    assert found.get("nnl") is None
    with pytest.raises(KeyError, match="there is no score 'nnl'; did you mean 'nll'"):
        found["nnl"]
