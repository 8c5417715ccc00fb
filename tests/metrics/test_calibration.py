"""ECE in all its forms and MCE against slow loops, known answers and the bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bayeswell import metrics
from bayeswell.errors import SettingError
from bayeswell.metrics.calibration import Binning
from bayeswell.random import make_generator
from metrics.inputs import BOOTSTRAP_TOLERANCE, awkward, bootstrap, labels_from, random_labels, random_probabilities

CASES = awkward()


def slow_bin(value: float, everything: Sequence[float], bins: int, binning: str) -> int:
    if binning == "quantile":
        return math.floor(sum(other < value for other in everything) * bins / len(everything))
    return next(b for b in range(bins) if value * bins < b + 1 or b == bins - 1)


def slow_gaps(confidence: Sequence[float], hits: Sequence[float], bins: int, binning: str) -> list[tuple[int, float]]:
    """(count, |accuracy - confidence|) of each bin that holds examples."""
    members: dict[int, list[int]] = {}
    for i, value in enumerate(confidence):
        members.setdefault(slow_bin(value, confidence, bins, binning), []).append(i)
    return [(len(m), abs(sum(hits[i] for i in m) - sum(confidence[i] for i in m)) / len(m)) for m in members.values()]


def top(p: Tensor, y: Tensor) -> tuple[list[float], list[float]]:
    rows = p.tolist()
    return [max(row) for row in rows], [float(row.index(max(row)) == label) for row, label in zip(rows, y, strict=True)]


@pytest.mark.parametrize("binning", ["width", "quantile"])
@pytest.mark.parametrize("bins", [1, 7, 15, 20])
@pytest.mark.parametrize("case", CASES)
def test_against_slow_loops(case: str, bins: int, binning: Binning) -> None:
    p, y = CASES[case]
    gaps = slow_gaps(*top(p, y), bins, binning)
    expected = sum(count * gap for count, gap in gaps) / len(y)
    assert metrics.ece(p, y, bins=bins, binning=binning) == pytest.approx(expected, rel=1e-10, abs=1e-14)
    worst = max(gap for _, gap in gaps)
    assert metrics.mce(p, y, bins=bins, binning=binning) == pytest.approx(worst, rel=1e-10, abs=1e-14)
    by_class = [
        sum(c * g for c, g in slow_gaps(p[:, k].tolist(), (y == k).double().tolist(), bins, binning)) / len(y)
        for k in range(p.shape[1])
    ]
    expected = sum(by_class) / len(by_class)
    assert metrics.classwise_ece(p, y, bins=bins, binning=binning) == pytest.approx(expected, rel=1e-10, abs=1e-14)


@given(
    st.integers(1, 40),
    st.integers(2, 5),
    st.integers(1, 25),
    st.sampled_from(["width", "quantile"]),
    st.integers(0, 99),
)
def test_ece_is_never_above_mce(examples: int, classes: int, bins: int, binning: Binning, seed: int) -> None:
    # Rounded, so that ties and edges of bins occur.
    p = (random_probabilities(examples, classes, seed=seed) * 8).ceil()
    p, y = p / p.sum(-1, keepdim=True), random_labels(examples, classes=classes, seed=seed)
    low, high = (metric(p, y, bins=bins, binning=binning) for metric in (metrics.ece, metrics.mce))
    assert 0 <= low <= high + 1e-14 <= 1 + 2e-14


@pytest.mark.parametrize("binning", ["width", "quantile"])
def test_of_a_constant_prediction(binning: Binning) -> None:
    p, y = torch.full((20, 4), 0.25, dtype=torch.float64), random_labels(20, classes=4)
    gap = abs(metrics.accuracy(p, y) - 0.25)
    assert gap > 0.01
    for metric in (metrics.ece, metrics.mce):
        assert metric(p, y, binning=binning) == pytest.approx(gap)


def test_quantile_bins_do_not_depend_on_the_order() -> None:
    p = random_probabilities(100, 3).mul(10).ceil()  # many ties
    p, y = p / p.sum(-1, keepdim=True), random_labels(100, classes=3)
    order = torch.randperm(100)
    assert metrics.ece(p, y, binning="quantile") == pytest.approx(metrics.ece(p[order], y[order], binning="quantile"))
    bins = metrics.calibration_bins(random_probabilities(100, 3), y, bins=20, binning="quantile")
    assert bins.count.tolist() == [5] * 20


@pytest.mark.parametrize("binning", ["width", "quantile"])
def test_bins_of_a_diagram_tell_the_same(binning: Binning) -> None:
    p, y = CASES["random"]
    bins = metrics.calibration_bins(p, y, bins=20, binning=binning)
    assert bins.count.sum() == len(y)
    assert float((bins.count * bins.gap.abs()).sum()) / len(y) == pytest.approx(
        metrics.ece(p, y, bins=20, binning=binning)
    )
    assert bool((bins.low <= bins.confidence).all() & (bins.confidence <= bins.high).all())
    assert bool((bins.high[:-1] <= bins.low[1:]).all())
    assert float((bins.count * bins.accuracy).sum()) / len(y) == pytest.approx(metrics.accuracy(p, y))


def test_what_probabilities_are_calibrated_in_all_classes() -> None:
    # Of 20,000 examples in 15 bins, noise alone gives about 15 sqrt(2/pi) sqrt(p (1-p) / (15 n)): some 0.01.
    p = random_probabilities(20_000, 3)
    y = labels_from(p)
    assert metrics.ece(p, y) < 0.015
    assert metrics.classwise_ece(p, y) < 0.015
    # Sharpened, the same labels find it too sure.
    sharp = metrics.scale_by_temperature(p, 0.4)
    assert metrics.ece(sharp, y) > 0.08
    assert metrics.classwise_ece(sharp, y) > 0.06


def sums_and_counts(confidence: Tensor, hits: Tensor, bins: int, binning: str) -> tuple[Tensor, Tensor]:
    """(resamples, examples) -> (resamples, bins): of accuracy less confidence, and of examples."""
    place = (confidence.double() * bins).long().clamp(max=bins - 1)
    if binning == "quantile":
        place = torch.searchsorted(confidence.sort(-1).values, confidence) * bins // confidence.shape[-1]
    nothing = torch.zeros(len(confidence), bins, dtype=torch.float64)
    gaps = hits.double() - confidence.double()
    return nothing.scatter_add(-1, place, gaps), nothing.scatter_add(-1, place, torch.ones_like(gaps))


def plain_ece(p: Tensor, y: Tensor, bins: int, binning: str) -> Tensor:
    confidence, guess = p.max(-1)
    return sums_and_counts(confidence, guess == y, bins, binning)[0].abs().sum(-1) / y.shape[-1]


def plain_classwise_ece(p: Tensor, y: Tensor, bins: int, binning: str) -> Tensor:
    by_class = [sums_and_counts(p[..., k].contiguous(), y == k, bins, binning)[0] for k in range(p.shape[-1])]
    return torch.stack(by_class).abs().sum(-1).mean(0) / y.shape[-1]


def plain_mce(p: Tensor, y: Tensor, bins: int, binning: str) -> Tensor:
    confidence, guess = p.max(-1)
    sums, counts = sums_and_counts(confidence, guess == y, bins, binning)
    return (sums.abs() / counts.clamp(min=1)).amax(-1)


PLAIN = {"ece": plain_ece, "classwise_ece": plain_classwise_ece}


@pytest.mark.parametrize("binning", ["width", "quantile"])
@pytest.mark.parametrize("name", PLAIN)
def test_standard_errors_against_the_bootstrap(name: str, binning: Binning) -> None:
    # Too sure everywhere, so that no gap is near 0, where neither the delta method nor the bootstrap is right.
    p = random_probabilities(2000, 3, scale=1.0)
    y = labels_from(p)
    p = metrics.scale_by_temperature(p, 0.3)
    estimate = getattr(metrics, name)(p, y, bins=5, binning=binning)
    direct = bootstrap(lambda a, b: PLAIN[name](a, b, 5, binning), estimate.value, (p, y))
    assert estimate.value == getattr(metrics, name)(p, y, bins=5, binning=binning)
    assert estimate.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)


@pytest.mark.parametrize(("bins", "binning"), [(2, "quantile"), (5, "width")])
def test_standard_error_of_the_worst_bin_against_the_bootstrap(bins: int, binning: Binning) -> None:
    # Half of the examples near 0.7 and right as often, half near 0.9 and right in one of two: one bin stays the worst.
    generator = make_generator(7)
    sure = torch.arange(1000) % 2
    confidence = 0.61 + 0.2 * sure + 0.18 * torch.rand(1000, generator=generator)
    right = torch.rand(1000, generator=generator) < torch.where(sure == 1, 0.5, 0.7)
    p, y = torch.stack([confidence, 1 - confidence], -1), (~right).long()
    found = metrics.mce(p, y, bins=bins, binning=binning)
    assert found.value == pytest.approx(0.4, abs=0.1)
    direct = bootstrap(lambda a, b: plain_mce(a, b, bins, binning), found.value, (p, y))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)
    # As places of 250 examples that are alike in fours, less is known.
    fours = metrics.mce(p[:250, None].expand(250, 4, 2), y[:250, None].expand(250, 4), bins=bins, binning=binning)
    assert fours.error == pytest.approx(metrics.mce(p[:250], y[:250], bins=bins, binning=binning).error)


def test_errors_that_cannot_be_known() -> None:
    p, y = CASES["one example"]
    assert metrics.ece(p, y).error is None
    # The worst bin has one example alone: 0.95 and wrong.
    p = torch.tensor([[0.95, 0.05], [0.6, 0.4], [0.6, 0.4]], dtype=torch.float64)
    found = metrics.mce(p, torch.tensor([1, 0, 1]), bins=10)
    assert found.value == pytest.approx(0.95)
    assert found.error is None


def test_bad_settings_are_one_line() -> None:
    p, y = CASES["random"]
    for metric in (metrics.ece, metrics.mce, metrics.classwise_ece, metrics.calibration_bins):
        with pytest.raises(SettingError, match=r"binning = 'quantiles'; did you mean 'quantile'\?"):
            metric(p, y, binning="quantiles")  # type: ignore[operator]
        with pytest.raises(SettingError, match=r"bins = 1\.5; it must be a whole number"):
            metric(p, y, bins=1.5)  # type: ignore[operator]
