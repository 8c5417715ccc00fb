"""Plots of predictions, runs and comparisons; each is a function that returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .classes import plot_reliability, plot_risk_coverage
from .comparing import plot_cost_quality, plot_forest
from .outside import plot_epistemic_map, plot_ood, plot_shift
from .reals import plot_coverage, plot_pit, plot_regression_band
from .theme import THEMES, to_svg
from .training import plot_posterior, plot_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS: dict[str, Callable[..., Figure]] = {
    "regression_band": plot_regression_band,
    "reliability": plot_reliability,
    "risk_coverage": plot_risk_coverage,
    "pit": plot_pit,
    "coverage": plot_coverage,
    "ood": plot_ood,
    "epistemic_map": plot_epistemic_map,
    "shift": plot_shift,
    "forest": plot_forest,
    "cost_quality": plot_cost_quality,
    "training": plot_training,
    "posterior": plot_posterior,
}
"""All plots by name."""

__all__ = [
    "PLOTS",
    "THEMES",
    "plot_cost_quality",
    "plot_coverage",
    "plot_epistemic_map",
    "plot_forest",
    "plot_ood",
    "plot_pit",
    "plot_posterior",
    "plot_regression_band",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_shift",
    "plot_training",
    "to_svg",
]
