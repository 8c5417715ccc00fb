"""The learning curves of the trials of a sweep, as a band."""

from __future__ import annotations

from typing import Any

import numpy as np

from .canvas import Axes, is_steep, literal, marks_if_few, open_panel
from .reading import Fields, Numbers, finite, lenient, number_text
from .theme import ThemeName

_NEEDS = ("score", "epochs", "lower", "median", "upper", "trials")
_OWNER = "plot_trial_bands"
_STEEP = 30.0


def plot_trial_bands(record: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Median and quartiles over the trials of a sweep, epoch by epoch.

    A quartile among trials that failed is beyond every number: the band then reaches to the edge.
    """
    read, epochs, (lower, median, upper) = _read(record)
    score = literal(read.text("score", "score"))
    panel = open_panel(ax, theme, "Trials of the sweep", "epoch", score)
    axes, chosen = panel
    if not panel.has_data(lower, median, upper):
        return axes
    marks = marks_if_few(int(np.isfinite(median).sum()), 12)
    line = axes.plot(epochs, median, color=chosen.colour(0), linewidth=1.8, **marks)[0]
    for edge in (lower, upper):
        axes.plot(epochs, edge, color=chosen.colour(0), linewidth=0.6, alpha=0.6)
    panel.whole_ticks()
    if "accuracy" not in score and is_steep(np.concatenate([finite(lower), finite(upper)]), _STEEP):
        panel.logarithmic()
    bottom, top = axes.get_ylim()
    higher = read.text("direction", "minimize") == "maximize"
    ends = np.where(np.isnan(lower) & higher, bottom, lower), np.where(np.isnan(upper) & (not higher), top, upper)
    band = axes.fill_between(epochs, *ends, color=chosen.colour(0), alpha=0.25, linewidth=0)
    axes.set_ylim(bottom, top)
    panel.legend([(line, "median"), (band, "quartiles")])
    return axes


def describe_trial_bands(record: Any) -> str:
    """First and last median with quartiles, and how many trials failed."""
    read, epochs, columns = _read(record)
    if not any(len(finite(column)) for column in columns):
        return "Learning curves of trials without data."
    lower, median, upper = columns

    def at(place: int) -> str:
        middle, low, high = ("failed" if np.isnan(c[place]) else number_text(c[place]) for c in (median, lower, upper))
        return f"{middle} (quartiles {low} and {high}) at epoch {number_text(epochs[place])}"

    counted, failed = finite(read.numbers("trials")), read.number("failed") or 0
    return (
        f"{literal(read.text('score', 'score'))} over {int(counted.max()) if len(counted) else 0} trials, of which "
        f"{int(failed)} failed: median {at(0)}, {at(-1)}."
    )


def _read(record: Any) -> tuple[Fields, Numbers, tuple[Numbers, Numbers, Numbers]]:
    read = lenient(_OWNER, record, _NEEDS, of="the record")
    epochs = read.increasing("epochs")
    lower, median, upper = (read.numbers(name, like="epochs") for name in ("lower", "median", "upper"))
    read.numbers("trials", like="epochs")
    return read, epochs, (lower, median, upper)
