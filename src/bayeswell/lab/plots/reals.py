"""Plots of real-valued predictions: regression band, PIT and coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.errors import DataError
from ...metrics.regression import CALIBRATION_LEVELS
from ...prediction import RealPrediction
from ..measure import RunRecord
from .sources import Source, Sources, as_column, by_label, pit_values
from .theme import Panel, open_panel, open_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STDS = 2.0


def plot_regression_band(
    predictions: Sources,
    x: Any = None,
    *,
    train: tuple[Any, Any] | None = None,
    truth: Any = None,
    ax: Axes | Sequence[Axes] | None = None,
    theme: str = "light",
) -> Figure:
    """Plot the mean, ± 2 epistemic stds, and ± 2 stds in all, along a line of inputs.

    Several predictions stand beside each other with a common y axis.

    Args:
        predictions: a ``RealPrediction`` or ``RunRecord``, or several by label.
        x: (S,) or (S, 1) inputs of the predictions; a ``RunRecord`` with one input column has its own.
        train: inputs and targets of the training data, drawn as points.
        truth: (S,) noise-free values.
        ax: axes to draw in, one for each prediction; None: a new figure.
        theme: "light" or "dark".
    """
    sources = by_label(predictions)
    titles = [label or "Prediction" for label in sources]
    panels = open_row(ax, theme, titles, "x", "y")
    entries: list[tuple[Any, str]] = []
    for panel, source in zip(panels, sources.values(), strict=True):
        entries = _band(panel, source, x, truth)
        points = _training(source) if train is None else (as_column(train[0], "train"), as_column(train[1], "train"))
        if points is not None:
            look: dict[str, Any] = {"color": panel.theme.color(1), "markersize": 3, "alpha": 0.7}
            drawn = panel.axes.plot(points[0].tolist(), points[1].tolist(), "o", rasterized=True, **look)[0]
            entries.append((drawn, "training data"))
    panels[0].legend(entries)
    return panels[0].finished()


def _band(panel: Panel, source: Source, x: Any, truth: Any) -> list[tuple[Any, str]]:
    places, mean, epistemic, std = _line(source, x)
    order = places.argsort()
    places, mean = places[order], mean[order]
    color = panel.theme.color(0)
    entries: list[tuple[Any, str]] = []
    for label, spread, alpha in (("± 2 stds", std[order], 0.18), ("± 2 epistemic stds", epistemic[order], 0.35)):
        low, high = (mean - STDS * spread).tolist(), (mean + STDS * spread).tolist()
        drawn = panel.axes.fill_between(places.tolist(), low, high, color=color, alpha=alpha, linewidth=0)
        entries.append((drawn, label))
    entries.insert(0, (panel.axes.plot(places.tolist(), mean.tolist(), color=color, linewidth=1.8)[0], "mean"))
    if truth is not None:
        values = as_column(truth, "truth")[order].tolist()
        look: dict[str, Any] = {"color": panel.theme.ink, "linewidth": 1.2, "linestyle": (0, (4, 3))}
        entries.append((panel.axes.plot(places.tolist(), values, **look)[0], "truth"))
    return entries


def _line(source: Source, x: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Places, mean, epistemic std and std.
    if isinstance(source, RunRecord):
        kept = source.per_example
        if "inputs" not in kept or kept["inputs"].shape[1] != 1:
            raise DataError(f"the run on {source.problem!r} has kept no inputs of one column")
        parts = [kept["inputs"], kept["mean"], kept["epistemic_std"], kept["std"]]
    elif isinstance(source, RealPrediction):
        if x is None:
            raise DataError("a prediction does not know its inputs; give `x`")
        parts = [x, source.mean, source.epistemic_std, source.std]
    else:
        raise DataError(f"this plot needs real-valued predictions, got {type(source).__name__}")
    places, mean, epistemic, std = (as_column(part, "a prediction along a line") for part in parts)
    if len(places) != len(mean):
        raise DataError(f"x has {len(places)} inputs, the prediction {len(mean)}")
    return places, mean, epistemic, std


def _training(source: Source) -> tuple[Tensor, Tensor] | None:
    kept: Mapping[str, Tensor] = source.per_example if isinstance(source, RunRecord) else {}
    if "train.inputs" not in kept:
        return None
    return as_column(kept["train.inputs"], "train"), as_column(kept["train.target"], "train")


def plot_pit(
    predictions: Sources, targets: Any = None, *, bins: int = 10, ax: Axes | None = None, theme: str = "light"
) -> Figure:
    """Plot the histogram of P(Y <= y), the probability integral transform (Dawid 1984).

    Calibrated predictions give a flat histogram: 95 % of bins lie inside the shaded band. A hump means stds that are
    too large, a valley stds that are too small, a slope a bias.

    Args:
        predictions: a ``RealPrediction`` or ``RunRecord``, or several by label.
        targets: of the examples; a ``RunRecord`` has its own.
        bins: bins of equal width.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    panel = open_panel(ax, theme, "PIT histogram", "P(Y ≤ y)", "density")
    entries, count = [], 0
    for index, (label, source) in enumerate(by_label(predictions).items()):
        values = pit_values(source, targets)
        count = len(values)
        heights = torch.histc(values, bins, 0, 1) * bins / count
        edges = [place / bins for place in range(bins + 1)]
        drawn = panel.axes.stairs(heights.tolist(), edges, color=panel.theme.color(index), linewidth=1.8)
        entries.append((drawn, label))
    spread = 1.96 * math.sqrt((bins - 1) / count)
    panel.axes.axhspan(max(0, 1 - spread), 1 + spread, color=panel.theme.muted, alpha=0.2, linewidth=0, zorder=0)
    panel.reference(y=1)
    panel.axes.set(xlim=(0, 1), ylim=(0, None))
    if any(label for _, label in entries):
        panel.legend(entries)
    return panel.finished()


def plot_coverage(predictions: Sources, targets: Any = None, *, ax: Axes | None = None, theme: str = "light") -> Figure:
    """Plot the share of targets inside central intervals against the level of the intervals, with standard errors.

    Below the diagonal intervals are too narrow.

    Args:
        predictions: a ``RealPrediction`` or ``RunRecord``, or several by label.
        targets: of the examples; a ``RunRecord`` has its own.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    panel = open_panel(ax, theme, "Coverage of intervals", "level of the interval", "share of targets inside")
    panel.axes.plot([0, 1], [0, 1], color=panel.theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    entries = []
    for index, (label, source) in enumerate(by_label(predictions).items()):
        away = (2 * pit_values(source, targets) - 1).abs()
        shares = torch.stack([(away <= level).double().mean() for level in CALIBRATION_LEVELS])
        error = (shares * (1 - shares) / len(away)).sqrt()
        look = panel.theme.line(index)
        low, high = (shares - error).tolist(), (shares + error).tolist()
        panel.axes.fill_between(CALIBRATION_LEVELS, low, high, color=look["color"], alpha=0.18, linewidth=0)
        entries.append((panel.axes.plot(CALIBRATION_LEVELS, shares.tolist(), **look)[0], label))
    panel.axes.set(xlim=(0, 1), ylim=(0, 1))
    if any(label for _, label in entries):
        panel.legend(entries)
    return panel.finished()
