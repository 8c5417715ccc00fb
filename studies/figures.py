"""Figures of the papers, each by one function, and the pictures of the studies' pages.

Figures from runs take ``Findings`` of a study; those of a single trained network take the numbers of ``measures``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from bayeswell.lab.plots import plot_reliability
from bayeswell.lab.plots.theme import HEAT, Panel, open_panel, to_svg

from .measures import robust_region
from .results import Line, steps_of
from .verdicts import Findings, NoVerdict, half_width, mean

Figure = Any


def draw_plots(found: Findings) -> list[tuple[str, Path]]:
    """Write the pictures that a study asks for as SVG, and return their titles and paths."""
    made = []
    for number, plot in enumerate(found.study.plots, 1):
        figure = study_figure(found, plot)
        if figure is not None:
            path = found.study.folder / "pictures" / f"{found.study.name}-{number}.svg"
            path.parent.mkdir(exist_ok=True)
            path.write_text(to_svg(figure, f"{found.study.name}-{number}", plot["title"]), encoding="utf-8")
            made.append((plot["title"], path))
    return made


def study_figure(found: Findings, plot: Mapping[str, Any]) -> Figure | None:
    """Return a figure of ``[[plots]]``: a score against a setting or over two, or a curve along training."""
    if "landscape" in plot:
        return landscape_figure(found, plot)
    if "against" in plot:
        return score_figure(found, plot["score"], plot["against"], title=plot["title"], log=plot.get("log", False))
    return curve_figure(found, plot["curve"], plot.get("cells"), plot.get("at"), title=plot["title"],
                        log=plot.get("log", False))  # fmt: skip


def score_figure(found: Findings, score: str, against: str, *, title: str = "", log: bool = False) -> Figure | None:
    """Return a score with 95 % intervals over a setting: VL Figures 1 and 2, thesis Figures 5.9, 5.10 and A.1."""
    panel, drawn = open_panel(None, "light", title or score, against.rpartition(".")[2], score), 0
    for label in found.study.labels:
        points = {dict(point).get(against): found.at(label, point, score) for point in found.points(label)}
        points = {value: values for value, values in points.items() if values}
        if not points:
            continue
        style, means = panel.theme.line(drawn), [mean(values) for values in points.values()]
        if None in points:
            panel.axes.axhline(means[0], label=label, **style)
        else:
            halves = [half if math.isfinite(half := half_width(values)) else 0.0 for values in points.values()]
            values = [value if isinstance(value, int | float) else str(value) for value in points]
            panel.axes.errorbar(values, means, yerr=halves, label=label, marker="o", markersize=4, capsize=3, **style)
            if log and all(isinstance(value, int | float) and value > 0 for value in values):
                panel.axes.set_xscale("log")
        drawn += 1
    return _finished(panel) if drawn else None


def curve_figure(
    found: Findings,
    curves: Sequence[str],
    cells: Sequence[str] | None = None,
    at: Mapping[str, Any] | None = None,
    *,
    title: str = "",
    log: bool = False,
) -> Figure | None:
    """Return curves along training: HWA Figure 1, thesis Figures 1.2, 5.1, 5.2, 5.8, 5.11, k-tied Figures 6 and 7.

    Means over seeds. Of several curves each cell shows the first one that it has.
    """
    places_name = steps_of(curves[0]).rpartition(".")[2]
    panel, drawn = open_panel(None, "light", title or curves[0], places_name, curves[0].partition(".")[2]), 0
    for label in cells or found.study.labels:
        lines = _lines(found, label, at)
        curve = next((one for one in curves if any(one in line.curves for line in lines)), None)
        if curve is None:
            continue
        own = [line for line in lines if curve in line.curves]
        length = min(len(line.curves[curve]) for line in own)
        values = np.mean([line.curves[curve][:length] for line in own], axis=0)
        places = own[0].curves.get(steps_of(curve), range(1, length + 1))[:length]
        panel.axes.plot(places, values, label=label, marker="o" if length < 3 else None, **panel.theme.line(drawn))
        drawn += 1
    if log:
        panel.axes.set_yscale("log")
    return _finished(panel) if drawn else None


def _lines(found: Findings, label: str, at: Mapping[str, Any] | None) -> list[Line]:
    try:
        point = found.point(label, at)
    except NoVerdict:
        points = found.points(label)
        if not points or at:
            return []
        point = points[0]
    return [line for line in found.runs if line.cell == label and line.point == point]


def _finished(panel: Panel) -> Figure:
    panel.axes.legend(fontsize=8, frameon=False, labelcolor=panel.theme.ink)
    return panel.figure


def landscape_figure(found: Findings, plot: Mapping[str, Any]) -> Figure | None:
    """Return a score over two settings, a point for each pair: thesis Figures 5.3 to 5.7 and 5.9.

    ``curvature`` adds the lower edge of the robust region of SGD.
    """
    one, other = plot["landscape"]
    points = [
        (dict(point)[one], dict(point)[other], mean(found.at(label, point, plot["score"])))
        for label in plot.get("cells", found.study.labels)
        for point in found.points(label)
        if {one, other} <= dict(point).keys() and found.at(label, point, plot["score"])
    ]
    if not points:
        return None
    panel = open_panel(None, "light", plot["title"], one.rpartition(".")[2], other.rpartition(".")[2])
    first, second, scores = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    seen = panel.axes.scatter(first, second, c=scores, cmap=HEAT, s=36, linewidths=0.4, edgecolors=panel.theme.ink)
    if plot.get("log"):
        panel.axes.set_xscale("log")
    if "curvature" in plot:
        momenta = np.linspace(0, min(0.999, second.max()), 200)
        edge = [robust_region(float(value), plot["curvature"], plot["curvature"])[0] for value in momenta]
        limits = panel.axes.get_xlim()
        panel.axes.plot(edge, momenta, color=panel.theme.ink, linestyle="--", linewidth=1.2)
        panel.axes.set_xlim(limits)
    panel.figure.colorbar(seen, ax=panel.axes, label=plot["score"])
    return panel.figure


def region_figure(curvatures: Sequence[float] = (0.5, 1.0, 2.0)) -> Figure:
    """Return the robust regions of rate and momentum for several curvatures: thesis Figure 3.1."""
    panel = open_panel(None, "light", "Robust regions of SGD", "learning rate", "momentum")
    momenta = np.linspace(0, 0.999, 200)
    for index, curvature in enumerate(curvatures):
        low, high = np.array([robust_region(float(value), curvature, curvature) for value in momenta]).T
        color = panel.theme.color(index)
        panel.axes.fill_betweenx(momenta, low, high, alpha=0.25, color=color, label=f"curvature {curvature:g}")
    return _finished(panel)


def schedule_figure(schedules: Mapping[str, Any], steps: int = 1000) -> Figure:
    """Return the factor of each schedule along a run: thesis Figure 3.2."""
    from bayeswell.core.protocols import Progress
    from bayeswell.optim import SCHEDULES

    panel = open_panel(None, "light", "Schedules", "step", "factor")
    for index, (label, choice) in enumerate(schedules.items()):
        part = SCHEDULES.resolve(choice)
        values = [part.factor(Progress(step, steps, step % 100, 100)) for step in range(steps)]
        panel.axes.plot(range(steps), values, label=label, **panel.theme.line(index))
    return _finished(panel)


def spectrum_figure(spectra: Mapping[str, Mapping[str, Tensor]], most: int = 10) -> Figure:
    """Return the explained variance of stds and means of each matrix: k-tied Figures 3 and 5."""
    panel = open_panel(None, "light", "Explained variance", "singular value", "share")
    for index, (layer, tables) in enumerate(spectra.items()):
        for name, style in (("stds", "-"), ("means", "--")):
            values = tables[name][:most].tolist()
            panel.axes.plot(range(1, len(values) + 1), values, style, marker="o", markersize=3,
                            color=panel.theme.color(index), label=f"{layer}, {name}")  # fmt: skip
    return _finished(panel)


def heat_map_figure(maps: Mapping[str, Tensor]) -> Figure:
    """Return matrices of stds, whole and cut to low rank: k-tied Figure 4; input of ``measures.heat_maps``."""
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(2.4 * len(maps), 2.6), layout="constrained")
    low, high = min(float(one.min()) for one in maps.values()), max(float(one.max()) for one in maps.values())
    images = [
        figure.add_subplot(1, len(maps), place, title=title, xticks=[], yticks=[]).imshow(
            matrix.numpy(), vmin=low, vmax=high, cmap=HEAT, aspect="auto"
        )
        for place, (title, matrix) in enumerate(maps.items(), 1)
    ]
    figure.colorbar(images[-1], ax=figure.axes)
    return figure


def snr_figure(found: Findings, cells: Sequence[str] | None = None, statistic: str = "snr") -> Figure | None:
    """Return the signal-to-noise ratio of the stds' gradients by step: k-tied Figure 6, right.

    ``statistic`` is "snr" (mean over weights, bounded by the ramp of the KL) or "snr_median".
    """
    return curve_figure(found, [f"{statistic}.stds"], cells, title="Signal-to-noise of std gradients", log=True)


def plane_figure(places: Tensor, losses: Mapping[str, Tensor]) -> Figure:
    """Return the loss of several posteriors in a plane: flat Figure 1; input of ``measures.loss_plane``."""
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(3.2 * len(losses), 2.8), layout="constrained")
    every = np.stack([values.numpy() for values in losses.values()])
    levels = np.linspace(every.min(), every.max(), 20)
    filled = [
        figure.add_subplot(1, len(losses), index, title=title).contourf(
            places.numpy(), places.numpy(), values.numpy(), levels, cmap=HEAT
        )
        for index, (title, values) in enumerate(losses.items(), 1)
    ]
    figure.colorbar(filled[-1], ax=figure.axes, label="loss")
    return figure


def line_figure(curves: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Return the loss along a line through several networks; input of ``measures.loss_line``."""
    panel = open_panel(None, "light", "Loss along a random direction", "distance", "loss")
    for index, (label, (places, losses)) in enumerate(curves.items()):
        panel.axes.plot(places.numpy(), losses.numpy(), label=label, **panel.theme.line(index))
    return _finished(panel)


def sharpness_figure(found: Findings, methods: Sequence[str]) -> Figure:
    """Return bars of the sharpness of draws, base and flat-seeking: flat, supplement."""
    panel = open_panel(None, "light", "Sharpness of draws", "", "max loss increase")
    for side, before in enumerate(("", "f-")):
        values = [mean(found.values(before + method, None, "sharpness.ascent")) for method in methods]
        places = [index + 0.4 * side for index in range(len(methods))]
        panel.axes.bar(
            places, values, 0.4, color=panel.theme.color(side), label=before + "method" if before else "method"
        )
    panel.axes.set_xticks([index + 0.2 for index in range(len(methods))], methods, rotation=30)
    return _finished(panel)


def reliability_figure(predictions: Any, targets: Any) -> Figure:
    """Return reliability diagrams: flat Figure 2."""
    return plot_reliability(predictions, targets)


def noise_figure(image: Tensor, probabilities: Mapping[str, Tensor]) -> Figure:
    """Return the class probabilities (draws, classes) of several networks for an image of noise: thesis Figure 1.1."""
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(2.6 * (1 + len(probabilities)), 2.6), layout="constrained")
    figure.add_subplot(1, 1 + len(probabilities), 1, xticks=[], yticks=[]).imshow(image.squeeze().numpy(), cmap="gray")
    for place, (title, values) in enumerate(probabilities.items(), 2):
        axes = figure.add_subplot(1, 1 + len(probabilities), place, title=title, ylim=(0, 1))
        axes.boxplot(values.numpy(), tick_labels=[str(place) for place in range(values.shape[1])])
    return figure


FIGURES: dict[str, str] = {
    "HWA 1": "curve_figure", "thesis 1.1": "noise_figure", "thesis 1.2": "curve_figure", "thesis 2.2": "curve_figure",
    "thesis 3.1": "region_figure", "thesis 3.2": "schedule_figure", "thesis 5.1": "curve_figure",
    "thesis 5.2": "curve_figure", "thesis 5.3": "landscape_figure", "thesis 5.4": "landscape_figure",
    "thesis 5.5": "landscape_figure", "thesis 5.6": "landscape_figure", "thesis 5.7": "landscape_figure",
    "thesis 5.8": "curve_figure", "thesis 5.9": "landscape_figure", "thesis 5.10": "score_figure",
    "thesis 5.11": "curve_figure", "thesis A.1": "score_figure", "thesis A.2": "curve_figure", "VL 1": "score_figure",
    "VL 2": "score_figure", "k-tied 3": "spectrum_figure", "k-tied 4": "heat_map_figure", "k-tied 5": "spectrum_figure",
    "k-tied 6": "snr_figure", "k-tied 7": "curve_figure", "flat 1": "plane_figure", "flat 2": "reliability_figure",
    "flat supplement": "sharpness_figure",
}  # fmt: skip
"""The function that makes each figure with data of the papers (Figures 1 and 2 of k-tied are diagrams)."""
