"""Whether predictions of real numbers keep what they promise: intervals, quantiles, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from .calibration import share_interval
from .canvas import SINGLE, Axes, Panel, literal, open_panel, with_legend
from .reading import Fields, Numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_NEEDS = ("levels", "observed")
_FEW = 3
_BEYOND = 1.959964
"""Standardised residuals further than this from 0 are one in twenty where the prediction is a Gaussian and right."""


def plot_interval_coverage(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The share of targets in central intervals against their level, with 95 % bands; below the line is too narrow."""
    labels = ("level of the interval", "share of targets in it")
    panel = _shares("plot_interval_coverage", runs, ax, theme, ("Coverage of intervals", *labels), less_level=False)
    return panel.axes


def plot_quantile_calibration(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The share of targets at or below a predicted quantile, less its level, with 95 % bands; 0 is calibrated."""
    labels = ("level of the quantile", "share of targets below,\nless the level")
    title = "Calibration of quantiles"
    panel = _shares("plot_quantile_calibration", runs, ax, theme, (title, *labels), less_level=True)
    return panel.axes


def plot_residuals(record: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """(target - mean) / std of each example against the predicted mean; one in twenty should be beyond the lines."""
    predicted, residuals = _residuals(record)
    across = literal(Fields("plot_residuals", record, ()).text("x_label", "predicted mean"))
    panel = open_panel(ax, theme, "Residuals in predicted stds", across, "(target - mean) / std")
    axes, chosen = panel
    if not panel.has_data(residuals):
        return axes
    axes.axhspan(-_BEYOND, _BEYOND, color=chosen.colour(0), alpha=0.1, linewidth=0)
    axes.axhline(0, color=chosen.ink, linewidth=1)
    axes.plot(
        predicted, residuals, color=chosen.colour(1), marker="o", markersize=3.5, markeredgewidth=0, linestyle="none",
        alpha=0.6, rasterized=len(residuals) > 300,
    )  # fmt: skip
    widest = float(np.nanmax(np.abs(residuals)))
    axes.set_ylim(-1.1 * max(widest, 2.6), 1.25 * max(widest, 2.6))
    note = f"{100 * _share_beyond(residuals):.0f} % beyond ±1.96 (5 % expected)"
    panel.text(0.02, 0.98, note, ha="left", va="top", transform=axes.transAxes)
    return axes


def describe_interval_coverage(runs: Mapping[str, Any]) -> str:
    """How many targets the 50 % and 90 % intervals hold."""
    return _described("plot_interval_coverage", runs, "Share of targets in central intervals", (0.5, 0.9))


def describe_quantile_calibration(runs: Mapping[str, Any]) -> str:
    """How many targets are below the lower, middle and upper quantiles."""
    return _described("plot_quantile_calibration", runs, "Share of targets below predicted quantiles", (0.1, 0.5, 0.9))


def describe_residuals(record: Any) -> str:
    """Their mean, their std, and how many are large."""
    known = finite(_residuals(record)[1])
    if not len(known):
        return "Residuals without data."
    return (
        f"{len(known)} residuals in predicted stds: mean {number_text(float(known.mean()))}, std "
        f"{number_text(float(known.std()))} (1 is calibrated), {100 * _share_beyond(known):.0f} % beyond 1.96 either "
        "way (5 % expected)."
    )


def _share_beyond(residuals: Numbers) -> float:
    return float((np.abs(finite(residuals)) > _BEYOND).mean())


def _residuals(record: Any) -> tuple[Numbers, Numbers]:
    read = Fields("plot_residuals", record, ("predicted", "residual", "std"))
    predicted, residual, std = (read.numbers(name) for name in ("predicted", "residual", "std"))
    if not len(predicted) == len(residual) == len(std):
        raise DataError("plot_residuals: 'predicted', 'residual' and 'std' must have equally many numbers")
    if (finite(std) <= 0).any():
        raise DataError("plot_residuals: 'std' has numbers that are not above 0; it holds stds")
    return predicted, residual / std


def _shares(
    owner: str, runs: Any, ax: Axes | None, theme: ThemeName, texts: tuple[str, str, str], *, less_level: bool
) -> Panel:
    read = _read(owner, runs)
    panel = open_panel(ax, theme, *texts, with_legend(SINGLE, [label for label, _ in read], always=True))
    axes, chosen = panel
    if not panel.has_data(*(fields.numbers("observed") for _, fields in read)):
        return panel
    entries: list[tuple[Any, str]] = []
    for index, (label, fields) in enumerate(read):
        levels, observed = fields.numbers("levels"), fields.numbers("observed")
        taken = levels if less_level else np.zeros_like(levels)
        entries.append((axes.plot(levels, observed - taken, **chosen.line(index))[0], label))
        count = fields.number("count")
        if count:
            low, high = share_interval(observed, np.full_like(observed, count))
            alpha = 0.2 if len(read) <= _FEW else 0.09
            axes.fill_between(levels, low - taken, high - taken, color=chosen.colour(index), alpha=alpha, linewidth=0)
    look: dict[str, Any] = {"color": chosen.ink, "linestyle": (0, (4, 3)), "linewidth": 1}
    axes.plot([0, 1], [0, 0] if less_level else [0, 1], **look)
    axes.set_xlim(0, 1)
    if not less_level:
        axes.set_ylim(0, 1)
    panel.legend(entries)
    return panel


def _read(owner: str, runs: Any) -> list[tuple[str, Fields]]:
    found = []
    for label, record in as_runs(owner, runs):
        fields = Fields(owner, record, _NEEDS, of=f"the record of '{label}'")
        observed = fields.numbers("observed", like="levels")
        if ((finite(observed) < 0) | (finite(observed) > 1)).any():
            raise DataError(f"{owner}: 'observed' of '{label}' has numbers outside [0, 1]; it holds shares")
        found.append((label, fields))
    return found


def _described(owner: str, runs: Any, head: str, wanted: Sequence[float]) -> str:
    clauses = []
    for label, fields in _read(owner, runs):
        levels, observed = fields.numbers("levels"), fields.numbers("observed")
        places = [int(np.nanargmin(np.abs(levels - level))) for level in wanted] if len(finite(levels)) else []
        parts = [f"{number_text(observed[at])} at {number_text(levels[at])}" for at in dict.fromkeys(places)]
        clauses.append(f"{label}: {', '.join(parts) or 'no data'}")
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."
