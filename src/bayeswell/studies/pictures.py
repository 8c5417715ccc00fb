"""Pictures of a study: a score against a setting, or along training, with standard errors over seeds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SettingError
from ..extras import needs_extra
from ..metrics.estimates import Estimate, estimate_over_seeds
from ..persistence import write_whole
from ..plots import THEMES, figure_to_svg
from .cells import last_name
from .findings import Findings
from .landscapes import landscape
from .results import STEPS, lines_of, places_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (4.2, 3.6)
_TITLE, _COLUMNS = 40, 3
_KEYS = ("score", "against", "curve", "landscape", "log", "clip", "curvature", "title",
         "cells")  # fmt: skip


def draw(folder: Path, found: Findings) -> list[tuple[str, Path]]:
    """The pictures that the study asks for, written as SVG: title and path of each."""
    made = []
    for number, plot in enumerate(found.study.plots, 1):
        for key in plot:
            if key not in _KEYS:
                raise SettingError(f"{found.study.path}: plots: unknown key '{key}'; allowed: {', '.join(_KEYS)}")
        title = str(plot.get("title") or plot.get("score") or plot.get("curve"))
        text = _picture(plot, found, title)
        if text is not None:
            path = folder / f"{found.study.name}-{number}.svg"
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
            made.append((title, path))
    return made


def _picture(plot: Mapping[str, Any], found: Findings, title: str) -> str | None:
    with needs_extra("lab", "a plot"):
        from matplotlib.figure import Figure
    if "landscape" in plot:
        return landscape(plot, found, title)
    theme = THEMES["light"]
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    fill = _against if "against" in plot else _along
    if not fill(axes, plot, found, theme.line):
        return None
    theme.dress(axes)
    axes.set_title(textwrap.fill(title, _TITLE), color=theme.ink, fontsize=11)
    axes.grid(True, color=theme.grid, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=_COLUMNS, fontsize=9, frameon=False, labelcolor=theme.ink)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + figure_to_svg(
        figure, name=f"study-{found.study.name}".replace("_", "-").replace(".", "-"), alt=title
    )


def _labels(plot: Mapping[str, Any], found: Findings) -> list[str]:
    wanted = plot.get("cells")
    labels = dict.fromkeys(cell.label for cell in found.scale.cells)
    return [label for label in labels if wanted is None or label in wanted]


def _against(axes: Axes, plot: Mapping[str, Any], found: Findings, style: Callable[[int], dict[str, Any]]) -> int:
    """A line a cell over the values of a setting; a cell outside the grid is a level line."""
    along, score, drawn = plot["against"], plot["score"], 0
    for label in _labels(plot, found):
        cells = [cell for cell in found.scale.cells if cell.label == label]
        points = [(cell.at.get(along), found.score(cell, score)) for cell in cells]
        known = [(value, mean) for value, mean in points if mean is not None]
        if not known:
            continue
        if all(value is None for value, _ in known):
            axes.axhline(known[0][1].value, label=label, **style(drawn))
        else:
            places = [value for value, _ in known]
            _errors(axes, places, [mean for _, mean in known], label, style(drawn))
            if plot.get("log") and all(isinstance(value, int | float) and value > 0 for value in places):
                axes.set_xscale("log")
        drawn += 1
    axes.set_xlabel(last_name(along))
    axes.set_ylabel(score)
    return drawn


def _errors(axes: Axes, places: list[Any], means: list[Estimate], label: str, style: dict[str, Any]) -> None:
    shown = [place if isinstance(place, int | float) else str(place) for place in places]
    errors = [mean.error or 0.0 for mean in means]
    axes.errorbar(shown, [mean.value for mean in means], yerr=errors, label=label, marker="o", markersize=4, capsize=3,
                  **style)  # fmt: skip


def _along(axes: Axes, plot: Mapping[str, Any], found: Findings, style: Callable[[int], dict[str, Any]]) -> int:
    """A line a cell over the epochs: mean over seeds, the band one standard error.

    Of several curves a cell shows the first that it has: ``["average.nll", "validation.nll"]``.
    """
    wanted = [plot["curve"]] if isinstance(plot["curve"], str) else list(plot["curve"])
    drawn = 0
    for label in _labels(plot, found):
        cell = found.cell(label, {}) if found.study.choose else found.cell(label, _first_point(found, label))
        lines = {} if cell is None else lines_of(found.lines, found.scale.name, cell)
        curve = next((name for name in wanted if any(line.curves.get(name) for line in lines.values())), wanted[0])
        kept = [line.curves for line in lines.values() if line.curves.get(curve)]
        if not kept:
            continue
        runs = [one[curve] for one in kept]
        length = min(map(len, runs))
        means = [estimate_over_seeds([run[place] for run in runs]) for place in range(length)]
        places = kept[0][places_of(curve)][:length]
        dots: dict[str, Any] = {"marker": "o", "markersize": 4} if length == 1 else {}
        axes.plot(places, [mean.value for mean in means], label=label, **style(drawn), **dots)
        low, high = ([mean.value + sign * (mean.error or 0.0) for mean in means] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=style(drawn)["color"], alpha=0.2, linewidth=0)
        drawn += 1
    if plot.get("log") and drawn and all(math.isfinite(value) for value in axes.get_ylim()):
        axes.set_yscale("log")
    axes.set_xlabel("step" if places_of(wanted[0]) in STEPS.values() else "epoch")
    axes.set_ylabel(wanted[0] if len(wanted) == 1 else last_name(wanted[0]))
    return drawn


def _first_point(found: Findings, label: str) -> Mapping[str, Any]:
    return next((cell.at for cell in found.scale.cells if cell.label == label), {})
