"""Reliability diagrams, from ``metrics.calibration_bins``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .canvas import AnyFigure, Axes, Size, open_panel, open_sheet, with_legend
from .reading import Fields, as_runs, finite, listed, number_text
from .theme import ThemeName

_NEEDS = ("low", "high", "count", "confidence", "accuracy")
_RELIABILITY_SIZE: Size = (4.8, 5.2)
_NARROWEST = 0.006
"""A quantile bin may be of one confidence alone; this much of it is still seen."""


def plot_reliability(bins: Any, *, figure: AnyFigure | None = None, theme: ThemeName = "light") -> tuple[Axes, Axes]:
    """Accuracy of each bin of confidence with its gap, and below it how many examples have that confidence."""
    read = _read("plot_reliability", bins)
    sheet = open_sheet(figure, theme, _RELIABILITY_SIZE)
    above, below = sheet.panels(2, 1, 2, sharex=True, height_ratios=(3, 1))
    chosen, top, bottom = sheet.theme, above.axes, below.axes
    low, high, count, confidence, accuracy = (read.numbers(name) for name in _NEEDS)
    above.title("Reliability")
    above.labels("", "accuracy")
    below.labels("confidence (largest probability)", "share of\nexamples")
    if not len(low):
        above.has_data()
        return top, bottom
    width = np.maximum(high - low, _NARROWEST)
    bars = top.bar(
        low, accuracy, width, align="edge", color=chosen.colour(0), edgecolor=chosen.background, linewidth=0.8
    )
    gaps = top.bar(
        low, confidence - accuracy, width, bottom=accuracy, align="edge", color="none", edgecolor=chosen.colour(1),
        hatch="////", linewidth=0.8,
    )  # fmt: skip
    ideal = top.plot([0, 1], [0, 1], color=chosen.ink, linestyle=(0, (4, 3)), linewidth=1)[0]
    total = float(np.nansum(count))
    bottom.bar(low, count / total if total else count, width, align="edge", color=chosen.muted)
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    sheet.legend({"accuracy": bars, "gap to confidence": gaps, "calibrated": ideal}, columnspacing=1.2)
    ece = read.number("ece")
    if ece is not None:
        note = {"ha": "right", "va": "bottom", "transform": top.transAxes, "zorder": 5}
        backing = {"facecolor": chosen.background, "edgecolor": "none", "alpha": 0.8, "pad": 2}
        above.text(0.97, 0.04, f"ECE {number_text(ece)}", **note, bbox=backing)
    return top, bottom


def plot_calibration(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Accuracy less confidence against confidence of each run: 0 is calibrated, below it predictions are too sure."""
    read_runs = as_runs("plot_calibration", runs)
    panel = open_panel(
        ax, theme, "Calibration", "confidence (mean of each bin)", "accuracy less confidence",
        with_legend((5.6, 4.2), len(read_runs)),
    )  # fmt: skip
    axes, chosen = panel
    entries = []
    for index, (label, bins) in enumerate(read_runs):
        read = _read("plot_calibration", bins, label)
        confidence, accuracy = read.numbers("confidence"), read.numbers("accuracy")
        look = {**chosen.line(index), "marker": "o", "markersize": 4}
        line = axes.plot(confidence, accuracy - confidence, **look)[0]
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
    return (
        f"{'' if ece is None else f'ECE {number_text(ece)}, '}accuracy {number_text(np.nansum(share * accuracy))} at "
        f"mean confidence {number_text(np.nansum(share * confidence))}, largest gap {number_text(gap[worst])} at "
        "confidences "
        f"{number_text(low[worst])} to {number_text(high[worst])}"
    )
