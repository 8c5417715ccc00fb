"""What each example adds to a score has the score for its mean, and the score's own standard error."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from bayeswell.datasets import load_data, load_inputs
from bayeswell.experiments.inspection import by_example
from bayeswell.experiments.inspection.by_example import (
    CORRUPTED,
    class_influences,
    detection_influences,
    kept,
    quantile_influences,
    real_influences,
    shifted_records,
)
from bayeswell.experiments.inspection.predictions import Seen, _gap
from bayeswell.likelihoods import Gaussian
from bayeswell.metrics import accuracy, auroc, brier, calibration_error, ece, interval_coverage, nll, rmse
from bayeswell.predictive import ClassPrediction, RealPrediction, TargetLaw


def error_of(values: torch.Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values))


def test_of_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = (2 * torch.randn(300, 5, generator=generator)).softmax(-1)
    labels = torch.randint(5, (300,), generator=generator)
    found = class_influences(probabilities, labels)
    for name, score in (("accuracy", accuracy), ("nll", nll), ("brier", brier), ("ece", ece)):
        known = score(probabilities, labels)
        assert float(found[name].mean()) == pytest.approx(float(known), rel=1e-5)
        assert error_of(found[name]) == pytest.approx(known.error, rel=1e-5)


def test_of_an_auroc() -> None:
    generator = torch.Generator().manual_seed(1)
    inside, outside = torch.randn(90, generator=generator), 0.7 + torch.randn(70, generator=generator)
    outside[:9] = inside[:9]  # equal scores count half
    found = detection_influences(inside, outside)
    known = auroc(inside, outside)
    sides = found["ood_auroc_entropy"], found["ood_auroc_entropy.outside"]
    assert [float(side.mean()) for side in sides] == pytest.approx([float(known)] * 2)
    assert math.hypot(*map(error_of, sides)) == pytest.approx(known.error)


def test_of_quantiles() -> None:
    """Predictions that are too wide and too low, three targets an example: the metrics average those first, too."""
    generator = torch.Generator().manual_seed(4)
    pit = (0.2 + 0.7 * torch.rand(80, 3, generator=generator)).double()
    found = quantile_influences(pit)
    for name, known in (("calibration_error", calibration_error(pit)), ("coverage_90", interval_coverage(pit, 0.9))):
        assert float(found[name].mean()) == pytest.approx(float(known))
        assert error_of(found[name]) == pytest.approx(known.error)


def test_of_real_targets() -> None:
    generator = torch.Generator().manual_seed(2)
    mean, truth = torch.randn(40, 2, generator=generator), torch.randn(40, 2, generator=generator)
    losses, crps = torch.rand(40, generator=generator), torch.rand(40, generator=generator)
    squares = (mean - truth).double().square().mean(1)
    found = real_influences({"squared_error": squares, "nll": losses, "crps": crps})
    known = rmse(mean, truth)
    assert float(found["rmse"].mean()) == pytest.approx(float(known), rel=1e-6)
    assert error_of(found["rmse"]) == pytest.approx(known.error, rel=1e-6)
    assert found["nll"] is losses
    assert found["crps"] is crps


class OneSure:
    """Gives class 3 probability p whatever it sees, and remembers what it saw."""

    def __init__(self, p: float) -> None:
        self.p, self.seen = p, list[torch.Tensor]()

    def predict(self, inputs: torch.Tensor, **options: Any) -> ClassPrediction:
        self.seen.append(inputs)
        row = torch.full((10,), (1 - self.p) / 9)
        row[3] = self.p
        probabilities = row.expand(len(inputs), 10)
        zero = torch.zeros(len(inputs))
        return ClassPrediction(
            probabilities=probabilities, entropy=zero, expected_entropy=zero, mutual_information=zero, draws=1
        )  # fmt: skip


def test_corrupted_images_are_the_test_images_and_their_scores_are_means() -> None:
    data = load_data("digits")
    sure = OneSure(0.6)
    found = shifted_records(sure, data, 1)  # type: ignore[arg-type]
    assert len(sure.seen) == len(CORRUPTED)
    for inputs, name in zip(sure.seen, CORRUPTED, strict=True):
        assert torch.equal(inputs, load_inputs({"name": "corrupted", "corruption": name}, data))
    labels = data.test[1]
    share = float((labels == 3).double().mean())
    assert found["metrics"]["shifted_accuracy"] == pytest.approx(share)
    known = -share * math.log(0.6) - (1 - share) * math.log(0.4 / 9)
    assert found["metrics"]["shifted_nll"] == pytest.approx(known, rel=1e-5)
    assert found["metrics"]["shifted_ece"] == pytest.approx(0.6 - share, rel=1e-5)
    errors = (labels == 3).double().std() / math.sqrt(len(labels))
    assert found["metrics"]["shifted_accuracy_error"] == pytest.approx(float(errors))
    assert len(found["by_example"]["shifted_nll"]) == len(labels)


def test_very_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_example, "MOST", 3)
    assert kept({"a": torch.arange(3.0), "b": torch.arange(4.0)}) == {"a": [0, 1, 2]}


def real(epistemic: torch.Tensor) -> RealPrediction:
    """Two draws, of means +- the epistemic std; noise of std 0.5."""
    law = TargetLaw(torch.stack([epistemic, -epistemic]), Gaussian("known", 0.5))
    noise = torch.full_like(epistemic, 0.25)
    return RealPrediction(torch.zeros_like(epistemic), epistemic.square(), noise, draws=2, law=law)


def test_the_gap_is_found_and_measured() -> None:
    """Mean 0 with std 0.5 and epistemic std that is 0.4 in the gap, 0.1 elsewhere: the shares are counted by hand."""
    data = load_data("gap")
    left, right = (data.scaling.inputs(torch.tensor([[end]])).item() for end in (-1.0, 1.0))

    def predicted(inputs: torch.Tensor) -> RealPrediction:
        within = (inputs > left) & (inputs < right)
        return real(torch.where(within, 0.4, 0.1))

    line = torch.linspace(-2, 2, 161).unsqueeze(1)
    seen = Seen(None, None, data, None, predicted(data.test[0]), None, 1.0)  # type: ignore[arg-type]
    gap = _gap(seen, line[:, 0], predicted(line))["gap"]
    scale = float(data.scaling.target_scale)  # type: ignore[arg-type]
    # The gap that is seen lies between two training inputs: it is (-1, 1) and a little more.
    assert -1.2 < gap["ends"][0] <= -1
    assert 1 <= gap["ends"][1] < 1.2
    assert gap["epistemic"][0] == pytest.approx(0.4 * scale, rel=0.1)
    assert gap["epistemic"][1] == pytest.approx(0.1 * scale, rel=1e-5)
    inputs, targets = data.test
    raw = data.scaling.raw_inputs(inputs.double())
    within = ((raw > gap["ends"][0]) & (raw < gap["ends"][1])).flatten()
    epistemic = predicted(inputs).epistemic_std
    pit = 0.5 * sum(torch.special.ndtr((targets + sign * epistemic) / 0.5) for sign in (-1, 1))
    held = ((pit - 0.5).abs() <= 0.45).double().flatten()
    train = data.scaling.raw_inputs(data.train[0].double())
    among = ~within & (raw.flatten() >= train.min()) & (raw.flatten() <= train.max())
    assert gap["covered"] == pytest.approx([float(held[within].mean()), float(held[among].mean())], abs=0.01)


def test_inputs_without_a_wide_gap_have_none() -> None:
    data = load_data("gap")
    whole = replace(data, train=data.test)  # 300 inputs all over the range
    seen = Seen(None, None, whole, None, real(torch.full_like(data.test[0], 0.1)), None, 1.0)  # type: ignore[arg-type]
    assert _gap(seen, torch.linspace(-2, 2, 161), real(torch.full((161, 1), 0.1))) == {}
