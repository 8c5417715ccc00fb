"""Reliability diagrams, from ``metrics.calibration_bins``; each bin with the accuracies that its examples allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .canvas import SINGLE, WIDTH, AnyFigure, Axes, Size, open_panel, open_sheet, with_legend
from .reading import Fields, Numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_NEEDS = ("low", "high", "count", "confidence", "accuracy")
_RELIABILITY_SIZE: Size = (WIDTH, 4.4)
_NARROWEST = 0.006
"""A quantile bin may be of one confidence alone; this much of it is still seen."""
_Z = 1.959964
"""Standard errors on either side of a 95 % interval."""
_BANDS = 3
"""Of more runs than this the bands would hide one another: they are drawn fainter."""


def share_interval(share: Numbers, count: Numbers) -> tuple[Numbers, Numbers]:
    """The 95 % interval of a share among so many examples (Wilson 1927), which stays within [0, 1].

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), z = 1.96.
    """
    count = np.where(count > 0, count, np.nan)
    square = _Z**2 / count
    spread = _Z * np.sqrt(np.maximum(share * (1 - share), 0) / count + square / (4 * count))
    low, high = ((share + square / 2 + sign * spread) / (1 + square) for sign in (-1, 1))
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def plot_reliability(bins: Any, *, figure: AnyFigure | None = None, theme: ThemeName = "light") -> tuple[Axes, Axes]:
    """Accuracy of each bin against its mean confidence, with its 95 % interval, and below how the examples spread.

    A bin whose interval holds the diagonal may be calibrated.
    """
    read = _read("plot_reliability", bins)
    sheet = open_sheet(figure, theme, _RELIABILITY_SIZE)
    above, below = sheet.panels(2, 1, 2, sharex=True, height_ratios=(3, 1))
    chosen, top, bottom = sheet.theme, above.axes, below.axes
    low, high, count, confidence, accuracy = (read.numbers(name) for name in _NEEDS)
    above.title("Reliability")
    above.labels("", "accuracy")
    below.labels("confidence (largest probability)", "examples\nper 0.01")
    if not above.has_data(confidence):
        below.has_data()
        return top, bottom
    ends = np.vstack(share_interval(accuracy, count))
    away = np.vstack([accuracy - ends[0], ends[1] - accuracy]).clip(0)
    bars = top.errorbar(
        confidence, accuracy, yerr=away, fmt="o", color=chosen.colour(0), markersize=4.5, elinewidth=1.4, capsize=2.5
    )
    left = max(0.0, min(float(np.nanmin(low)), float(np.nanmin(confidence))) - 0.03)
    ideal = top.plot([left, 1], [left, 1], color=chosen.ink, linestyle=(0, (4, 3)), linewidth=1)[0]
    width = np.maximum(high - low, _NARROWEST)
    bottom.bar(low, count / (100 * width), width, align="edge", color=chosen.muted, linewidth=0)
    bottom.locator_params(axis="y", nbins=3)
    top.set_xlim(left, 1.01)
    top.set_ylim(max(0.0, float(np.nanmin([ends[0], confidence])) - 0.05), 1.02)
    sheet.legend({"accuracy, 95 % interval": bars, "calibrated": ideal})
    ece = read.number("ece")
    if ece is not None:
        note = {"ha": "left", "va": "top", "transform": top.transAxes, "zorder": 5}
        above.text(0.03, 0.97, f"ECE {number_text(ece)}", **note)
    return top, bottom


def plot_calibration(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Accuracy less confidence of each run's bins, with its 95 % band: 0 is calibrated, below it is too sure.

    The bins stand side by side by the share of examples in them, the least sure at the left: bins of equally many
    examples are equally wide, however close to 1 their confidences are.
    """
    read_runs = as_runs("plot_calibration", runs)
    labels = [f"{label} (ECE 0.0123)" for label, _ in read_runs]
    panel = open_panel(
        ax, theme, "Calibration", "share of examples, least sure first", "accuracy less confidence",
        with_legend(SINGLE, labels, always=True),
    )  # fmt: skip
    axes, chosen = panel
    entries = []
    for index, (label, bins) in enumerate(read_runs):
        read = _read("plot_calibration", bins, label)
        count, confidence, accuracy = (read.numbers(name) for name in _NEEDS[2:])
        share = np.nan_to_num(count) / max(1.0, float(np.nansum(count)))
        place = np.cumsum(share) - share / 2
        look = {**chosen.line(index), "marker": "o", "markersize": 3.5}
        line = axes.plot(place, accuracy - confidence, **look)[0]
        low, high = share_interval(accuracy, count)
        alpha = 0.2 if len(read_runs) <= _BANDS else 0.09
        axes.fill_between(
            place, low - confidence, high - confidence, color=chosen.colour(index), alpha=alpha, linewidth=0
        )
        ece = read.number("ece")
        entries.append((line, label if ece is None else f"{label} (ECE {number_text(ece)})"))
    axes.axhline(0, color=chosen.ink, linestyle=(0, (4, 3)), linewidth=1)
    axes.set_xlim(0, 1)
    if not entries:
        panel.has_data()
    panel.legend(entries)
    return axes


def describe_reliability(bins: Any) -> str:
    """Overall accuracy and confidence, and the largest gap."""
    return f"Reliability diagram: {_clause(_read('plot_reliability', bins))}."


def describe_calibration(runs: Mapping[str, Any]) -> str:
    """The same of each run."""
    clauses = [
        f"{label}: {_clause(_read('plot_calibration', bins, label))}"
        for label, bins in as_runs("plot_calibration", runs)
    ]
    return f"Accuracy less confidence by confidence; {listed(clauses)}." if clauses else "Calibration without data."


def _read(owner: str, bins: Any, label: str | None = None) -> Fields:
    read = Fields(owner, bins, _NEEDS, of="the record" if label is None else f"the record of '{label}'")
    for name in _NEEDS[1:]:
        read.numbers(name, like="low")
    return read


def _clause(read: Fields) -> str:
    low, high, count, confidence, accuracy = (read.numbers(name) for name in _NEEDS)
    gap = accuracy - confidence
    if not len(finite(gap)) or not np.nansum(count):
        return "no data"
    worst = int(np.nanargmax(np.abs(gap)))
    share = count / np.nansum(count)
    ece = read.number("ece")
    ends = share_interval(accuracy, count)
    off = int(np.nansum((confidence < ends[0]) | (confidence > ends[1])))
    bins = int(np.isfinite(gap).sum())
    return (
        f"{'' if ece is None else f'ECE {number_text(ece)}, '}accuracy {number_text(np.nansum(share * accuracy))} at "
        f"mean confidence {number_text(np.nansum(share * confidence))}, largest gap {number_text(gap[worst])} at "
        f"confidences {number_text(low[worst])} to {number_text(high[worst])}; {off} of {bins} bins are off by more "
        "than their 95 % interval"
    )
