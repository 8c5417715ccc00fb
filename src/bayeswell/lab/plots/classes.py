"""Plots of class probabilities against labels: reliability and risk-coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.errors import check_choice
from ...metrics import calibration_bins, ece, risk_coverage
from .sources import Sources, by_label, class_arrays, uncertainty
from .theme import open_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_COVERAGE = 0.05
"""Below this share of answers a mean loss is that of a handful of examples."""
POINTS = 200
LEAST_IN_BIN = 5
SCORES = ("entropy", "epistemic", "confidence")


def plot_reliability(
    predictions: Sources, targets: Any = None, *, bins: int = 15, ax: Axes | None = None, theme: str = "light"
) -> Figure:
    """Plot accuracy against confidence in bins of equal width, with standard errors.

    A calibrated prediction lies on the diagonal, an overconfident one below it. The legend has the ECE of all bins;
    those with fewer than 5 examples are not drawn.

    Args:
        predictions: a ``ClassPrediction`` or ``RunRecord``, or several by label.
        targets: labels of the examples; a ``RunRecord`` has its own.
        bins: bins from 0 to 1.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    panel = open_panel(ax, theme, "Reliability", "confidence", "accuracy", (4.8, 4.2))
    panel.axes.plot([0, 1], [0, 1], color=panel.theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    entries = []
    for index, (label, source) in enumerate(by_label(predictions).items()):
        probabilities, labels = class_arrays(source, targets)
        found = calibration_bins(probabilities, labels, bins=bins)
        drawn_bins = found.count >= LEAST_IN_BIN
        error = share_se(found.accuracy, found.count)
        places, heights, errors = (values[drawn_bins].tolist() for values in (found.confidence, found.accuracy, error))
        look = panel.theme.line(index) | {"marker": "o", "markersize": 4, "capsize": 2, "elinewidth": 1}
        drawn = panel.axes.errorbar(places, heights, errors, **look)
        entries.append((drawn, f"{label} ECE {ece(probabilities, labels, bins=bins).value:.3f}".strip()))
    panel.axes.set(xlim=(0, 1.02), ylim=(0, 1.04))
    panel.legend(entries)
    return panel.finished()


def share_se(share: Tensor, count: Tensor) -> Tensor:
    """Return sqrt(p (1 - p) / n) with p = (successes + 1) / (n + 2), which is above 0 without a success too."""
    shifted = (share * count + 1) / (count + 2)
    return (shifted * (1 - shifted) / count).sqrt()


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Error rate among the surest ``coverage`` share, with its standard error, beside two baselines.

    Args:
        oracle: of the order that answers every right example first.
        random: of a random order: the error rate of all examples.
    """

    coverage: Tensor
    risk: Tensor
    se: Tensor
    oracle: Tensor
    random: float


def risk_curve(losses: Tensor, scores: Tensor) -> RiskCurve:
    """Return the curve of (S,) losses, answered in the order of growing scores.

    Losses are 0 or 1; the standard error of the k surest is that of a share of k examples.
    """
    full, best = risk_coverage(losses, scores), risk_coverage(losses, losses)
    count = len(full.coverage)
    first = max(1, min(count, round(LEAST_COVERAGE * count)))
    places = torch.linspace(first - 1, count - 1, min(POINTS, count - first + 1)).round().long().unique()
    error = share_se(full.risk[places], places.double() + 1)
    return RiskCurve(full.coverage[places], full.risk[places], error, best.risk[places], float(losses.double().mean()))


def plot_risk_coverage(
    predictions: Sources,
    targets: Any = None,
    *,
    score: str = "entropy",
    ax: Axes | None = None,
    theme: str = "light",
) -> Figure:
    """Plot the error rate when only the surest predictions are answered, with bands of one standard error.

    The oracle and the random order of the first prediction are baselines. Coverage starts at 5 %.

    Args:
        predictions: a ``ClassPrediction`` or ``RunRecord``, or several by label.
        targets: labels of the examples; a ``RunRecord`` has its own.
        score: uncertainty that orders the examples: "entropy", "epistemic" or "confidence".
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    check_choice("plot_risk_coverage", "score", score, SCORES)
    panel = open_panel(ax, theme, f"Risk and coverage by {score}", "share of examples answered", "error rate")
    entries: list[tuple[Any, str]] = []
    baselines: list[tuple[Any, str]] = []
    top = 0.0
    for index, (label, source) in enumerate(by_label(predictions).items()):
        probabilities, labels = class_arrays(source, targets)
        losses = (probabilities.argmax(-1) != labels).double()
        curve = risk_curve(losses, uncertainty(source, score))
        places, top = curve.coverage.tolist(), max(top, curve.random, float(curve.risk.max()))
        low, high = (curve.risk - curve.se).clamp_min(0).tolist(), (curve.risk + curve.se).tolist()
        look = panel.theme.line(index)
        panel.axes.fill_between(places, low, high, color=look["color"], alpha=0.18, linewidth=0)
        entries.append((panel.axes.plot(places, curve.risk.tolist(), **look)[0], label or "prediction"))
        if not baselines:
            thin: dict[str, Any] = {"color": panel.theme.muted, "linewidth": 1.1}
            oracle = panel.axes.plot(places, curve.oracle.tolist(), linestyle=(0, (1, 1.5)), **thin)[0]
            random = panel.axes.plot(places, [curve.random] * len(places), linestyle=(0, (5, 2)), **thin)[0]
            of = f" ({label})" if len(by_label(predictions)) > 1 and label else ""
            baselines = [(oracle, f"oracle{of}"), (random, f"random{of}")]
    panel.axes.set(xlim=(0, 1.01), ylim=(0, 1.35 * top or 1.0))
    panel.legend([*entries, *baselines])
    return panel.finished()
