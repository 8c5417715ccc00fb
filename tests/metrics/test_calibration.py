"""Calibration errors by bins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayeswell.core.errors import SettingError
from bayeswell.metrics import calibration_bins, ece

from .inputs import BOOTSTRAP_TOLERANCE, bootstrap_se, random_labels, random_probabilities

P, Y = random_probabilities(400, 3), random_labels(400, classes=3)


def _brute_force(bins: np.ndarray, confidence: np.ndarray, hits: np.ndarray) -> float:
    return sum(abs((hits[bins == b] - confidence[bins == b]).sum()) for b in np.unique(bins)) / len(bins)


@pytest.mark.parametrize("bins", [1, 10, 15, 20])
def test_ece_matches_brute_force(bins: int) -> None:
    confidence, hits = P.max(-1).values.numpy(), (P.argmax(-1) == Y).double().numpy()
    by_width = np.minimum(np.floor(confidence * bins), bins - 1)
    assert ece(P, Y, bins=bins).value == pytest.approx(_brute_force(by_width, confidence, hits))
    ranks = np.array([(confidence < c).sum() for c in confidence])
    by_quantile = ranks * bins // len(confidence)
    assert ece(P, Y, bins=bins, binning="quantile").value == pytest.approx(_brute_force(by_quantile, confidence, hits))


def test_ece_of_extremes() -> None:
    sure = torch.eye(2)[torch.zeros(10, dtype=torch.long)]
    labels = torch.tensor([0] * 7 + [1] * 3)
    assert ece(sure, labels).value == pytest.approx(0.3)
    assert ece(sure, torch.zeros(10, dtype=torch.long)).value == 0
    assert ece(torch.full((4, 4), 0.25), torch.arange(4)).value == pytest.approx(0)


def test_edges_belong_to_the_bin_above() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.6, 0.4], [1.0, 0.0]])
    assert calibration_bins(probabilities, torch.zeros(3, dtype=torch.long), bins=10).low.tolist() == [0.6, 0.7, 0.9]


def test_quantile_bins_do_not_depend_on_the_order() -> None:
    ties = torch.tensor([[0.4, 0.6], [0.3, 0.7], [0.6, 0.4]]).repeat(20, 1)
    labels = random_labels(60, classes=2)
    order = torch.randperm(60)
    first, second = (ece(p, y, binning="quantile") for p, y in ((ties, labels), (ties[order], labels[order])))
    assert first.value == pytest.approx(second.value)


def test_bins_add_up_to_the_ece() -> None:
    for binning in ("width", "quantile"):
        found = calibration_bins(P, Y, binning=binning)  # type: ignore[arg-type]
        gaps = (found.accuracy - found.confidence).abs()
        assert float((found.count * gaps).sum() / 400) == pytest.approx(ece(P, Y, binning=binning).value)  # type: ignore[arg-type]
        assert bool((found.low <= found.confidence + 1e-12).all() & (found.confidence <= found.high + 1e-12).all())
        assert int(found.count.sum()) == 400


def test_standard_error_matches_the_bootstrap_for_clear_gaps() -> None:
    found = ece(P, Y, bins=4)
    assert found.se == pytest.approx(bootstrap_se(lambda p, y: ece(p, y, bins=4), (P, Y)), rel=BOOTSTRAP_TOLERANCE)


def test_wrong_bins_are_refused() -> None:
    with pytest.raises(SettingError, match="bins"):
        ece(P, Y, bins=0)
    with pytest.raises(SettingError, match="binning"):
        ece(P, Y, binning="equal")  # type: ignore[arg-type]
