from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import DataError
from bayeswell.lab.measure import RunRecord
from bayeswell.lab.plots import plot_reliability, plot_risk_coverage
from bayeswell.lab.plots.classes import risk_curve
from bayeswell.metrics import Estimate, calibration_bins, ece, risk_coverage
from bayeswell.prediction import ClassPrediction


def prediction(examples: int = 400, seed: int = 0) -> tuple[ClassPrediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    samples = (2 * torch.randn(5, examples, 3, generator=generator)).softmax(-1)
    probabilities = samples.mean(0)
    entropy, own = torch.special.entr(probabilities).sum(-1), torch.special.entr(samples).sum(-1).mean(0)
    labels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    return ClassPrediction(probabilities, samples.std(0), entropy, own, 5), labels


def test_reliability_shows_the_bins_and_their_ece():
    found, labels = prediction()
    figure = plot_reliability({"map": found}, labels, bins=8)
    bins = calibration_bins(found.probabilities, labels, bins=8)
    shown = bins.count >= 5
    line = figure.axes[0].lines[1]
    assert list(line.get_xdata()) == pytest.approx(bins.confidence[shown].tolist())
    assert list(line.get_ydata()) == pytest.approx(bins.accuracy[shown].tolist())
    label = figure.axes[0].get_legend().get_texts()[0].get_text()
    assert label == f"map ECE {ece(found.probabilities, labels, bins=8).value:.3f}"


def test_risk_curve_matches_the_metric_from_five_percent_coverage():
    found, labels = prediction()
    losses = (found.labels != labels).double()
    curve, full = risk_curve(losses, found.entropy.double()), risk_coverage(losses, found.entropy)
    assert float(curve.coverage[0]) == pytest.approx(0.05)
    assert float(curve.coverage[-1]) == 1
    places = (curve.coverage * 400).round().long() - 1
    torch.testing.assert_close(curve.risk, full.risk[places])
    assert float(curve.risk[-1]) == pytest.approx(curve.random) == pytest.approx(float(losses.mean()))


def test_oracle_answers_all_right_examples_first():
    losses = torch.zeros(200, dtype=torch.float64)
    losses[:50] = 1
    curve = risk_curve(losses, torch.rand(200, generator=torch.Generator().manual_seed(1)).double())
    expected = ((curve.coverage - 0.75) / curve.coverage).clamp_min(0)
    torch.testing.assert_close(curve.oracle, expected)


def test_standard_errors_match_the_spread_over_data_sets():
    """Spread over 400 data sets: its own relative error is 3.5 %, so 20 % fail once in about 10^8."""
    generator = torch.Generator().manual_seed(2)
    risks, errors = [], []
    for _ in range(400):
        scores = torch.rand(300, generator=generator).double()
        losses = (torch.rand(300, generator=generator) < 0.1 + 0.4 * scores).double()
        curve = risk_curve(losses, scores)
        risks.append(curve.risk[[60, -1]])
        errors.append(curve.se[[60, -1]])
    spread = torch.stack(risks).std(0)
    torch.testing.assert_close(torch.stack(errors).mean(0), spread, rtol=0.2, atol=0)


def test_risk_coverage_draws_curve_band_and_both_baselines():
    found, labels = prediction()
    figure = plot_risk_coverage({"a": found, "b": found}, labels)
    axes = figure.axes[0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "oracle (a)", "random (a)"]
    curve = risk_curve((found.labels != labels).double(), found.entropy.double())
    torch.testing.assert_close(torch.tensor(axes.lines[0].get_ydata()), curve.risk)
    assert len(axes.collections) == 2
    assert set(axes.lines[2].get_ydata()) == {curve.random}


def test_runs_bring_their_own_labels():
    found, labels = prediction()
    kept = {"probabilities": found.probabilities, "target": labels, "entropy": found.entropy}
    record = RunRecord({}, "toy", "classes", "bbb", 0, {"nll": Estimate(1.0)}, {}, per_example=kept)
    lines = [plot_risk_coverage(source, labels).axes[0].lines[0].get_ydata() for source in (found, record)]
    assert list(lines[0]) == pytest.approx(list(lines[1]))
    assert plot_reliability(record).axes[0].get_legend().get_texts()[0].get_text().startswith("bbb ECE")


def test_confidence_and_epistemic_uncertainty_order_the_examples():
    found, labels = prediction()
    losses = (found.labels != labels).double()
    for score, values in (("confidence", 1 - found.confidence), ("epistemic", found.epistemic)):
        drawn = plot_risk_coverage(found, labels, score=score).axes[0].lines[0].get_ydata()
        assert list(drawn) == pytest.approx(risk_curve(losses, values.double()).risk.tolist())


def test_missing_targets_are_refused():
    found, labels = prediction()
    with pytest.raises(DataError, match="give `targets`"):
        plot_reliability(found)
    with pytest.raises(DataError, match="399"):
        plot_reliability(found, labels[1:])
