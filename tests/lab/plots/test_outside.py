from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError, SettingError
from bayeswell.lab.measure import RunRecord
from bayeswell.lab.plots import plot_epistemic_map, plot_ood, plot_shift
from bayeswell.metrics import Estimate, auroc
from bayeswell.prediction import ClassPrediction


def prediction(scale: float, seed: int = 0, examples: int = 200) -> ClassPrediction:
    samples = (scale * torch.randn(4, examples, 3, generator=torch.Generator().manual_seed(seed))).softmax(-1)
    mean = samples.mean(0)
    own = torch.special.entr(samples).sum(-1).mean(0)
    return ClassPrediction(mean, samples.std(0), torch.special.entr(mean).sum(-1), own, 4)


@pytest.mark.parametrize("score", ["entropy", "epistemic", "confidence"])
def test_ood_legend_has_the_auroc(score: str):
    inside, outside = prediction(4.0), prediction(1.0, 1)
    values = [1 - getattr(one, score) if score == "confidence" else getattr(one, score) for one in (inside, outside)]
    figure = plot_ood(inside, {"noise": outside}, score=score)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["test inputs", f"noise, AUROC {auroc(*values).value:.3f}"]


def test_ood_of_a_run_is_that_of_its_predictions():
    inside, outside = prediction(4.0), prediction(1.0, 1)
    kept = {"entropy": inside.entropy, "ood.noise.entropy": outside.entropy, "ood.noise.epistemic": outside.epistemic}
    record = RunRecord({}, "toy", "classes", "a", 0, {"nll": Estimate(0.0)}, {}, per_example=kept)
    texts = [
        plot_ood(*sources).axes[0].get_legend().get_texts()[1].get_text()
        for sources in ((record,), (inside, {"noise": outside}))
    ]
    assert texts[0] == texts[1]


def test_ood_needs_ood_inputs():
    with pytest.raises(DataError, match="got none"):
        plot_ood(prediction(1.0))


class Quadratic:
    """A predictor whose mutual information is |x|^2."""

    def predict(self, inputs: Tensor, draws: int) -> ClassPrediction:
        own = torch.zeros(len(inputs))
        return ClassPrediction(torch.full((len(inputs), 2), 0.5), own[:, None], inputs.square().sum(1), own, draws)


def test_epistemic_map_shows_the_prediction_at_each_point_of_the_grid():
    inputs = torch.tensor([[-1.0, 0.0], [1.0, 3.0]])
    figure = plot_epistemic_map(Quadratic(), inputs, torch.tensor([0, 1]), resolution=5)  # type: ignore[arg-type]
    heat = figure.axes[0].collections[0].get_array().reshape(5, 5)
    across, up = np.linspace(-2, 2, 5), np.linspace(-1.5, 4.5, 5)
    np.testing.assert_allclose(heat, across[None, :] ** 2 + up[:, None] ** 2, rtol=1e-5)
    points = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    assert points == [[[-1.0, 0.0]], [[1.0, 3.0]]]


def test_epistemic_map_needs_two_columns():
    with pytest.raises(DataError, match=r"needs \(S, 2\)"):
        plot_epistemic_map(Quadratic(), torch.zeros(4, 3))  # type: ignore[arg-type]


def test_shift_shows_each_severity_with_its_error():
    by_severity = {2: {"ece": Estimate(0.3, 0.02)}, 0: {"ece": Estimate(0.1, 0.01)}}
    axes = plot_shift({"map": by_severity}, "ece").axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[0, 0.1], [2, 0.3]]
    ends = axes.collections[0].get_segments()
    np.testing.assert_allclose(np.array(ends)[:, :, 1], [[0.09, 0.11], [0.28, 0.32]])
    assert axes.get_ylabel() == "ECE ↓"


def test_shift_refuses_unknown_scores():
    with pytest.raises(SettingError, match="unknown score"):
        plot_shift({"map": {0: {"nll": Estimate(1.0)}}}, "nl")
    with pytest.raises(DataError, match="has no score 'ece'"):
        plot_shift({"map": {0: {"nll": Estimate(1.0)}}}, "ece")
