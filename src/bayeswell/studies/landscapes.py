"""A score over two settings: a coloured point for each pair that was run, of a grid or of random draws.

[[plots]]
title = "Accuracy over rate and momentum"
score = "accuracy"
landscape = ["method.stepper.lr", "method.stepper.momentum"]
cells = ["sgd"]
log = true                 # the first setting on a log scale
clip = 0.1                 # colours end at the 10 % and 90 % quantiles: few extremes do not hide the rest
curvature = 1.5            # the lower edge of SGD's robust region, rate = (1 - sqrt(momentum))^2 / curvature
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SettingError
from ..optimizers.robust_region import robust_region
from ..plots import THEMES, figure_to_svg
from .cells import last_name
from .findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (4.2, 3.6)
_TITLE = 40
_CURVE = 200
_MOST_MOMENTUM = 0.9999


def landscape(plot: Mapping[str, Any], found: Findings, title: str) -> str | None:
    """The picture as SVG; None without results."""
    from matplotlib.figure import Figure

    paths = plot["landscape"]
    if not isinstance(paths, list) or len(paths) != 2:
        raise SettingError(f"{found.study.path}: plots: landscape = {paths!r:.80}; two settings by their paths")
    clip = plot.get("clip", 0.0)
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 <= clip < 0.5:
        raise SettingError(f"{found.study.path}: plots: clip = {clip!r}; a share of at least 0 and below 0.5")
    points = landscape_points(plot, found)
    if not points:
        return None
    theme = THEMES["light"]
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    first, second, scores = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    low, high = np.quantile(scores, [clip, 1 - clip])
    seen = axes.scatter(first, second, c=scores, vmin=low, vmax=high, cmap="viridis", s=40, linewidths=0.4,
                        edgecolors=theme.ink)  # fmt: skip
    if plot.get("log"):
        axes.set_xscale("log")
    if "curvature" in plot:
        _robust_edge(axes, float(plot["curvature"]), second, theme.ink)
    axes.set_xlabel(last_name(paths[0]))
    axes.set_ylabel(last_name(paths[1]))
    figure.colorbar(seen, ax=axes, label=str(plot["score"]))
    theme.dress(axes)
    axes.set_title(textwrap.fill(title, _TITLE), color=theme.ink, fontsize=11)
    name = f"study-{found.study.name}-landscape".replace("_", "-").replace(".", "-")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + figure_to_svg(figure, name=name, alt=title)


def landscape_points(plot: Mapping[str, Any], found: Findings) -> list[tuple[float, float, float]]:
    """Both settings and the mean score over seeds, of every pair that has one."""
    wanted, (one, other) = plot.get("cells"), plot["landscape"]
    points = []
    for cell in found.scale.cells:
        mean = found.score(cell, plot["score"]) if wanted is None or cell.label in wanted else None
        if mean is not None and one in cell.at and other in cell.at:
            points.append((float(cell.at[one]), float(cell.at[other]), mean.value))
    return points


def _robust_edge(axes: Axes, curvature: float, momenta: Any, colour: str) -> None:
    """The least rate that is robust at each momentum (``optimizers.robust_region``)."""
    left, right = axes.get_xlim()
    momentum = np.linspace(max(0.0, float(momenta.min())), min(_MOST_MOMENTUM, float(momenta.max())), _CURVE)
    rates = [robust_region(float(one), curvature, curvature).lowest for one in momentum]
    axes.plot(rates, momentum, color=colour, linewidth=1.2, linestyle="--")
    axes.set_xlim(left, right)
