"""Plots of uncertainty away from the training data: OOD histograms, maps of two inputs, scores under shift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...core.errors import DataError, check_choice
from ...metrics import SCORES, auroc, find_score
from ...prediction import ClassPrediction, Predictor, RealPrediction
from ..measure import RunRecord
from .sources import ood_uncertainty, uncertainty
from .theme import HEAT, LABEL, TICK, open_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = {"entropy": "entropy (nats)", "epistemic": "epistemic uncertainty (nats)", "confidence": "1 - confidence"}
BINS = 30
MARGIN = 0.5
"""Width of the map beyond the data, as a share of their range."""


def plot_ood(
    inside: ClassPrediction | RunRecord,
    outside: Mapping[str, ClassPrediction] | ClassPrediction | None = None,
    *,
    score: str = "entropy",
    title: str = "Out-of-distribution inputs",
    ax: Axes | None = None,
    theme: str = "light",
) -> Figure:
    """Plot histograms of the uncertainty of test inputs and of out-of-distribution inputs, with the AUROC.

    Args:
        inside: prediction on test inputs, or a run, which has both.
        outside: prediction on OOD inputs, or several by name.
        score: "entropy", "epistemic" or "confidence" (drawn as 1 - confidence).
        title: of the plot.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    check_choice("plot_ood", "score", score, UNITS)
    if isinstance(inside, RunRecord) and outside is None:
        found = ood_uncertainty(inside, score)
    else:
        named = outside if isinstance(outside, Mapping) else {"OOD": outside}
        found = {name: uncertainty(source, score) for name, source in named.items() if source is not None}
    if not found:
        raise DataError("plot_ood needs predictions on OOD inputs, got none")
    panel = open_panel(ax, theme, title, UNITS[score], "density")
    here = uncertainty(inside, score)
    top = max(float(values.max()) for values in (here, *found.values()))
    edges = np.linspace(0, top or 1.0, BINS + 1).tolist()
    look: dict[str, Any] = {"bins": edges, "density": True, "histtype": "stepfilled", "alpha": 0.35}
    entries = []
    for index, (name, values) in enumerate({"": here, **found}.items()):
        label = f"{name}, AUROC {auroc(here, values).value:.3f}" if index else "test inputs"
        color = panel.theme.color(index)
        panel.axes.hist(values.tolist(), edgecolor=color, color=color, **look)
        entries.append((panel.axes.patches[-1], label))
    panel.axes.set(xlim=(0, edges[-1]))
    panel.legend(entries)
    return panel.finished()


def plot_epistemic_map(
    predictor: Predictor,
    inputs: Any,
    targets: Any = None,
    *,
    resolution: int = 60,
    draws: int = 30,
    ax: Axes | None = None,
    theme: str = "light",
) -> Figure:
    """Plot the epistemic uncertainty over two inputs, around the data.

    Nats of mutual information for classes; the epistemic std for real targets.

    Args:
        predictor: a ``Result`` or ``Predictor`` of a network with two inputs.
        inputs: (S, 2) data, drawn as points.
        targets: (S,) classes, which choose the color of the points; None: one color.
        resolution: points of the grid along each side.
        draws: networks of the prediction.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    points = torch.as_tensor(inputs).detach().cpu().float()
    if points.dim() != 2 or points.shape[1] != 2:
        raise DataError(f"inputs: shape {tuple(points.shape)}; a map needs (S, 2)")
    low, high = points.amin(0), points.amax(0)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    axes = [torch.linspace(float(low[side]), float(high[side]), resolution) for side in range(2)]
    grid = torch.cartesian_prod(*axes)
    found = predictor.predict(grid, draws=draws)
    real = isinstance(found, RealPrediction)
    values = (found.epistemic_std if isinstance(found, RealPrediction) else found.epistemic).cpu()
    panel = open_panel(ax, theme, "Epistemic uncertainty", "first input", "second input", (4.8, 3.9))
    panel.axes.grid(visible=False)
    heat = values.reshape(resolution, resolution, -1)[..., 0].T.tolist()
    drawn = panel.axes.pcolormesh(
        axes[0].tolist(), axes[1].tolist(), heat, cmap=HEAT, shading="nearest", rasterized=True
    )
    labels = None if targets is None or real else torch.as_tensor(targets).cpu().long().reshape(-1)
    for index in range(1 if labels is None else int(labels.max()) + 1):
        own = points if labels is None else points[labels == index]
        color = panel.theme.color(index + 1)
        panel.axes.plot(own[:, 0].tolist(), own[:, 1].tolist(), "o", color=color, markersize=3.5, mec="white", mew=0.5)
    bar = panel.figure.colorbar(drawn, ax=panel.axes, pad=0.02)
    bar.set_label("epistemic std" if real else "nats", fontsize=LABEL, color=panel.theme.ink)
    bar.ax.tick_params(color=panel.theme.muted, labelcolor=panel.theme.ink, labelsize=TICK)
    bar.outline.set_visible(False)
    return panel.finished()


def plot_shift(
    evaluations: Mapping[str, Mapping[float, Any]], score: str = "nll", *, ax: Axes | None = None, theme: str = "light"
) -> Figure:
    """Plot a score against the severity of a shift of the inputs, with standard errors.

    Args:
        evaluations: for each method, by severity (0: no shift), an ``Evaluation`` or a mapping with the score.
        score: a key of ``metrics.SCORES``.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    shown = find_score(score)
    panel = open_panel(ax, theme, f"{shown.heading} under shift", "severity", heading(score))
    entries = []
    for index, (label, by_severity) in enumerate(evaluations.items()):
        if any(score not in found for found in by_severity.values()):
            raise DataError(f"plot_shift: {label!r} has no score {score!r} at some severity")
        places = sorted(by_severity)
        found = [by_severity[place][score] for place in places]
        look = panel.theme.line(index) | {"marker": "o", "markersize": 4, "capsize": 2, "elinewidth": 1}
        drawn = panel.axes.errorbar(places, [one.value for one in found], [one.se or 0 for one in found], **look)
        entries.append((drawn, label))
    panel.legend(entries)
    return panel.finished()


def heading(score: str) -> str:
    """Return the heading of a score with its unit and an arrow in the direction of better values."""
    shown = SCORES[score]
    unit = f" ({shown.unit})" if shown.unit and shown.unit != "y" else ""
    return f"{shown.heading}{unit} {({'lower': '↓', 'higher': '↑'}).get(shown.direction, '')}".strip()
