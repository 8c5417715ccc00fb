"""Plots of a training run: loss by epoch, and the posterior of each layer at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import DataError
from ...nn import BayesianModule
from ...training import Result
from ..diagnostics import layer_summary
from ..measure import RunRecord
from .sources import by_label
from .theme import WIDTH, open_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Epochs = list[Mapping[str, float]]


def plot_training(runs: Any, quantity: str = "nll", *, ax: Axes | None = None, theme: str = "light") -> Figure:
    """Plot a number of each epoch: solid on the training data, dashed on the validation data.

    Args:
        runs: a ``Result`` or ``RunRecord``, or several by label; each member of an ensemble has its own line.
        quantity: "nll", "total", "kl", "std_ratio", "temperature", "lr.means", or a validation score.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    panel = open_panel(ax, theme, "Training", "epoch", quantity)
    entries: list[tuple[Any, str]] = []
    for index, (label, run) in enumerate(by_label(runs, (Result, RunRecord)).items()):
        members = epochs_of(run)
        look = panel.theme.line(index) | {"alpha": 1.0 if len(members) == 1 else 0.45}
        for name, style, suffix in ((quantity, "-", "training"), (f"validation.{quantity}", (0, (4, 2)), "validation")):
            drawn = None
            for epochs in members:
                points = [(epoch["epoch"] + 1, epoch[name]) for epoch in epochs if epoch.get(name) is not None]
                if points:
                    marker = "o" if len(points) == 1 else None
                    drawn = panel.axes.plot(*zip(*points, strict=True), **look | {"linestyle": style}, marker=marker)[0]
            if drawn is not None:
                entries.append((drawn, f"{label}, {suffix}" if label else suffix))
    if not entries:
        raise DataError(f"plot_training: no epoch has the number {quantity!r}")
    panel.axes.locator_params(axis="x", integer=True)
    panel.legend(entries)
    return panel.finished()


def epochs_of(run: Result | RunRecord) -> list[Epochs]:
    """Return the numbers of all epochs, for each member."""
    if isinstance(run, Result):
        return [[record.values() for record in history.epochs] for history in run.histories]
    members = sorted({int(epoch.get("member", 0)) for epoch in run.history})
    return [[epoch for epoch in run.history if epoch.get("member", 0) == member] for member in members]


def plot_posterior(
    model: Any, *, title: str = "Posterior of the weights", ax: Axes | None = None, theme: str = "light"
) -> Figure:
    """Plot how wide the posterior of each parameter is: std / prior std and |mean| / std, means over its weights.

    A std ratio of 1 is the prior: the data say nothing about these weights. A high |mean| / std marks weights that
    cannot be pruned.

    Args:
        model: a ``BayesianModule``, ``Result`` or ``RunRecord``.
        title: of the plot.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    rows = list(_ratios(model))
    if not rows:
        raise DataError("plot_posterior: the posterior has no stds")
    panel = open_panel(ax, theme, title, "ratio", "", (WIDTH, 1.3 + 0.26 * len(rows)))
    panel.reference(x=1)
    entries = []
    for index, label in enumerate(("std / prior std", "|mean| / std")):
        values = [ratios[index] for _, ratios in rows]
        look: dict[str, Any] = {"color": panel.theme.color(index), "marker": "os"[index], "markersize": 6}
        entries.append((panel.axes.plot(values, range(len(rows)), linestyle="none", **look)[0], label))
    panel.rows([name for name, _ in rows])
    panel.log_scale(x=True)
    panel.legend(entries)
    return panel.finished()


def _ratios(model: Any) -> Iterable[tuple[str, tuple[float, float]]]:
    if isinstance(model, RunRecord):
        for layer in model.posterior.get("layers", ()):
            std = float(layer["std"])
            yield layer["name"], (std / layer["prior_std"], layer["mean_abs"] / std if std else float("nan"))
        return
    module = model if isinstance(model, BayesianModule) else model.model
    for row in layer_summary(module).layers:
        yield row.name, (row.std_ratio, row.signal_to_noise)
