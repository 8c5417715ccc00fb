"""Accuracy over two settings of an optimizer: where training works, and where theory says that it should."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError
from ..optimizers.robust_region import robust_region
from .canvas import WIDTH, Axes, Panel, Size, on_dark_and_light, open_panel
from .reading import Fields, Numbers, finite, number_text
from .theme import ThemeName

_SIZE: Size = (WIDTH, 4.0)
_MOST_TICKS = 6


def plot_momentum_landscape(record: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Accuracy over learning rate and momentum, with the borders of the robust region (Book 2020, figures 5.4, 5.5).

    Robust for curvatures h are rates from (1 - sqrt(momentum))^2 / h_min to (1 + sqrt(momentum))^2 / h_max.
    """
    read = Fields("plot_momentum_landscape", record, ("rates", "momenta", "accuracies"))
    rates, momenta, accuracies = _grid(read, "rates", "momenta")
    if (finite(rates) <= 0).any() or ((finite(momenta) < 0) | (finite(momenta) >= 1)).any():
        raise DataError("plot_momentum_landscape: 'rates' must be above 0 and 'momenta' in [0, 1)")
    panel = open_panel(ax, theme, "Accuracy by learning rate and momentum", "learning rate", "momentum", _SIZE)
    axes = panel.axes
    log = len(rates) > 1 and rates.max() > 20 * rates.min()
    x, y = _edges(rates, log=log), _edges(momenta, log=False)
    if not _draw_cells(panel, x, y, accuracies):
        return axes
    axes.set_xlim(float(x.min()), float(x.max()))
    if log:
        panel.logarithmic(across=True)
    axes.set_ylim(float(y.min()), float(y.max()))
    entries = _draw_borders(axes, read, max(0.0, float(y.min())), min(0.9999, float(y.max())))
    panel.legend_below(entries)
    return axes


def plot_beta_landscape(record: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Accuracy over beta1 and beta2 of Adam and its kin (Book 2020, figures 5.6, 5.7); cells of equal size."""
    read = Fields("plot_beta_landscape", record, ("beta1", "beta2", "accuracies"))
    across, up, accuracies = _grid(read, "beta2", "beta1")
    labels = ("beta2 (second moment)", "beta1 (first moment)")
    panel = open_panel(ax, theme, "Accuracy by beta1 and beta2", *labels, _SIZE)
    x, y = np.arange(len(across) + 1.0) - 0.5, np.arange(len(up) + 1.0) - 0.5
    if _draw_cells(panel, x, y, accuracies):
        for horizontal, values in ((True, across), (False, up)):
            stride = -(-len(values) // _MOST_TICKS)
            panel.ticks(horizontal, range(0, len(values), stride), [f"{value:.5g}" for value in values[::stride]])
    return panel.axes


def describe_momentum_landscape(record: Any) -> str:
    """The best cell and how many failed."""
    read = Fields("plot_momentum_landscape", record, ("rates", "momenta", "accuracies"))
    return _describe(*_grid(read, "rates", "momenta"), "learning rate", "momentum")


def describe_beta_landscape(record: Any) -> str:
    """The best cell and how many failed."""
    read = Fields("plot_beta_landscape", record, ("beta1", "beta2", "accuracies"))
    return _describe(*_grid(read, "beta2", "beta1"), "beta2", "beta1")


def _grid(read: Fields, across: str, up: str) -> tuple[Numbers, Numbers, Numbers]:
    x, y = read.increasing(across), read.increasing(up)
    return x, y, read.matrix("accuracies", (len(y), len(x)))


def _draw_cells(panel: Panel, x: Numbers, y: Numbers, accuracies: Numbers) -> bool:
    if not panel.has_data(accuracies):
        return False
    axes, theme = panel
    axes.grid(visible=False)
    axes.patch.set(hatch="xx", edgecolor=theme.muted)
    shown = np.ma.masked_invalid(accuracies)
    mesh = axes.pcolormesh(x, y, shown, cmap=theme.heat, vmin=0, rasterized=True)
    failed = int((~np.isfinite(accuracies)).sum())
    panel.colour_bar(mesh, "accuracy" + (" (hatched: failed)" if failed else ""))
    return True


def _draw_borders(axes: Axes, read: Fields, low: float, high: float) -> list[tuple[Any, str]]:
    entries: list[tuple[Any, str]] = []
    momenta = np.linspace(low, high, 100)
    styles: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
    for index, row in enumerate(read.parts("robust") if read.has("robust") else []):
        fields = Fields(read.owner, row, ("curvature_min", "curvature_max"), of="'robust'")
        least, most = fields.number("curvature_min"), fields.number("curvature_max")
        regions = [robust_region(float(m), least or 0.0, most or 0.0) for m in momenta]
        look: dict[str, Any] = {"color": "#FFFFFF", "linewidth": 1.7, "linestyle": styles[index % len(styles)]}
        line = axes.plot([region.lowest for region in regions], momenta, **look)[0]
        on_dark_and_light(line, axes.plot([region.highest for region in regions], momenta, **look)[0])
        curvatures = number_text(least) if least == most else f"{number_text(least)} to {number_text(most)}"
        entries.append((line, fields.text("label", f"robust for curvature {curvatures}")))
    stable = read.number("stability")
    if stable is not None:
        line = axes.plot(stable * (1 - momenta), momenta, color="#E69F00", linewidth=1.7, linestyle=(0, (4, 2)))[0]
        on_dark_and_light(line)
        entries.append((line, f"rate = {number_text(stable)} (1 - momentum)"))
    return entries


def _edges(values: Numbers, *, log: bool) -> Numbers:
    """Borders of cells halfway between their centres."""
    centres = np.log(values) if log else values
    if len(centres) < 2:
        spread = 0.5 if log else 0.5 * max(abs(float(centres.sum())), 0.1)
        edges = np.array([centres.sum() - spread, centres.sum() + spread])
    else:
        middles = (centres[1:] + centres[:-1]) / 2
        edges = np.concatenate([[2 * centres[0] - middles[0]], middles, [2 * centres[-1] - middles[-1]]])
    found: Numbers = np.exp(edges) if log else edges
    return found


def _describe(x: Numbers, y: Numbers, accuracies: Numbers, across: str, up: str) -> str:
    head = f"Accuracy on a grid of {len(x)} values of {across} and {len(y)} of {up}"
    if not len(finite(accuracies)):
        return f"{head}, without data."
    row, column = np.unravel_index(int(np.nanargmax(accuracies)), accuracies.shape)
    failed = int((~np.isfinite(accuracies)).sum())
    return (
        f"{head}: best {number_text(accuracies[row, column])} at {across} {number_text(x[column])} and {up} "
        f"{number_text(y[row])}, lowest {number_text(finite(accuracies).min())}, {failed} failed."
    )
