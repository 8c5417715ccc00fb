"""The learning-rate range test as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from .canvas import Axes, marks_if_few, open_panel
from .reading import Fields, finite, number_text
from .theme import ThemeName

_NEEDS = ("rates", "objectives")


def plot_rate_range(found: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The smoothed objective against the learning rate, with the suggested rate marked (``training.RateRange``)."""
    read = Fields("plot_rate_range", found, _NEEDS)
    rates, objectives = read.numbers("rates"), read.numbers("objectives", like="rates")
    panel = open_panel(
        ax, theme, "Learning-rate range test", "learning rate of the means", "objective (nats per example)"
    )
    axes, chosen = panel
    if not panel.has_data(objectives):
        return axes
    line = axes.plot(rates, objectives, **chosen.line(0), **marks_if_few(len(rates)))[0]
    entries: list[tuple[Any, str]] = [(line, "objective, smoothed")]
    suggestion, broke_at = read.number("suggestion"), read.number("broke_at")
    if suggestion is not None:
        line = axes.axvline(suggestion, color=chosen.colour(1), linestyle="--")
        entries.append((line, f"suggested: {number_text(suggestion)}"))
    if broke_at is not None:
        line = axes.axvline(broke_at, color=chosen.muted, linestyle=":")
        entries.append((line, f"broke at {number_text(broke_at)}"))
    panel.logarithmic(across=True)
    panel.legend(entries)
    return axes


def describe_rate_range(found: Any) -> str:
    """What is suggested, and where the objective was lowest."""
    read = Fields("plot_rate_range", found, _NEEDS)
    rates, objectives = read.numbers("rates"), read.numbers("objectives", like="rates")
    if not len(finite(objectives)):
        return "Learning-rate range test without data."
    best = int(np.nanargmin(objectives))
    suggestion, broke_at = read.number("suggestion"), read.number("broke_at")
    return (
        f"Learning-rate range test from {number_text(rates[0])} to {number_text(rates[-1])}: lowest objective "
        f"{number_text(objectives[best])} at {number_text(rates[best])}"
        f"{'' if suggestion is None else f', suggested rate {number_text(suggestion)}'}"
        f"{'' if broke_at is None else f', broke at {number_text(broke_at)}'}."
    )
