"""Real-valued predictions along a line, with what is uncertain in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError
from .canvas import SINGLE, Axes, literal, marks_if_few, open_panel, with_legend
from .reading import Fields, Numbers, finite, number_text
from .theme import ThemeName

_STDS = 2.0
_INNER, _OUTER = "± 2 stds epistemic", "± 2 stds, all"


def plot_regression_band(record: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Mean, ± 2 epistemic stds, and ± 2 stds of both kinds together: sqrt(epistemic^2 + aleatoric^2).

    ``gap`` ({"ends": [low, high]}) is shaded; ``y_limits`` makes several pictures comparable.
    """
    read, x, mean, epistemic, aleatoric = _read(record)
    across, up = (literal(read.text(f"{name}_label", name)) for name in ("x", "y"))
    panel = open_panel(ax, theme, "Prediction and its uncertainty", across, up, with_legend(SINGLE, [_INNER] * 5))
    axes, chosen = panel
    if not panel.has_data(mean):
        return axes
    order = np.argsort(x)
    places, middle = x[order], mean[order]
    line = axes.plot(places, middle, color=chosen.colour(0), linewidth=1.8, **marks_if_few(len(places)))[0]
    entries: list[tuple[Any, str]] = [(line, "mean")]
    bands = [(_INNER, epistemic, 0.4)]
    if aleatoric is not None:
        bands.append((_OUTER, np.hypot(epistemic, aleatoric), 0.18))
    for label, std, alpha in reversed(bands):  # the wider one lies below
        away = _STDS * std[order]
        look: dict[str, Any] = {"color": chosen.colour(0), "alpha": alpha, "linewidth": 0}
        entries.insert(1, (axes.fill_between(places, middle - away, middle + away, **look), label))
    if read.has("gap"):
        ends = Fields("plot_regression_band", read.get("gap"), ("ends",), of="'gap'").numbers("ends")
        if len(ends) != 2:
            raise DataError(f"plot_regression_band: 'gap' has {len(ends)} ends; it must have two")
        shade = axes.axvspan(*ends, color=chosen.ink, alpha=0.07, linewidth=0, zorder=0)
        entries.append((shade, "no training inputs"))
    if read.has("y_limits"):
        limits = read.numbers("y_limits")
        if len(limits) != 2 or not limits[0] < limits[1]:
            raise DataError(f"plot_regression_band: y_limits = {limits.tolist()}; two numbers, the lower first")
        axes.set_ylim(*limits)
    if read.has("truth"):
        truth = read.numbers("truth", like="x")[order]
        line = axes.plot(places, truth, color=chosen.ink, linestyle=(0, (4, 3)), linewidth=1.2)[0]
        entries.append((line, "truth"))
    if read.has("train_x"):
        train_x, train_y = read.numbers("train_x"), read.numbers("train_y", like="train_x")
        dots = axes.plot(
            train_x, train_y, color=chosen.colour(1), marker="o", markersize=3.5, linestyle="none", alpha=0.8,
            rasterized=len(train_x) > 300,
        )[0]  # fmt: skip
        entries.append((dots, "training data"))
    panel.legend_below(entries)
    return axes


def describe_regression_band(record: Any) -> str:
    """Range of the places and of both stds."""
    read, x, mean, epistemic, aleatoric = _read(record)
    if not len(finite(mean)):
        return "Regression curve without data."
    noise = "" if aleatoric is None else f", aleatoric std {_range(aleatoric)}"
    gap = ""
    if read.has("gap"):
        ends = Fields("plot_regression_band", read.get("gap"), ("ends",), of="'gap'").numbers("ends")
        within = (x > ends[0]) & (x < ends[-1])
        between = " to ".join(map(number_text, ends))
        gap = f" No training inputs from {between}; epistemic std there {_range(epistemic[within])}."
    return (
        f"Predicted mean {_range(mean)} for x {_range(x)}, epistemic std {_range(epistemic)}{noise}; bands are two "
        f"stds on either side.{gap}"
    )


def _read(record: Any) -> tuple[Fields, Numbers, Numbers, Numbers, Numbers | None]:
    read = Fields("plot_regression_band", record, ("x", "mean", "epistemic_std"))
    x, mean, epistemic = read.numbers("x"), read.numbers("mean", like="x"), read.numbers("epistemic_std", like="x")
    aleatoric = None
    if read.has("aleatoric_std"):
        given = read.get("aleatoric_std")
        single = isinstance(given, int | float) or getattr(given, "shape", None) == ()
        aleatoric = (
            np.full_like(x, read.number("aleatoric_std") or np.nan)
            if single
            else read.numbers("aleatoric_std", like="x")
        )
    for name, std in (("epistemic_std", epistemic), ("aleatoric_std", aleatoric)):
        if std is not None and (finite(std) < 0).any():
            raise DataError(f"plot_regression_band: '{name}' has numbers below 0; it holds stds")
    return read, x, mean, epistemic, aleatoric


def _range(values: Numbers) -> str:
    known = finite(values)
    if not len(known):
        return "unknown"
    low, high = number_text(known.min()), number_text(known.max())
    return low if low == high else f"{low} to {high}"
