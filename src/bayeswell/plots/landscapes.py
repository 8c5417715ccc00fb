"""The loss around a network: lines, planes and sharpness (``diagnostics``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .canvas import WIDTH, Axes, Size, handle, is_steep, marks_if_few, on_dark_and_light, open_panel, size_for
from .reading import Fields, Numbers, as_runs, column, finite, lenient, listed, number_text
from .theme import TICK_SIZE, ThemeName

_PLANE_SIZE: Size = (WIDTH, 3.9)
_STEEP = 30.0


def plot_loss_line(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The loss along a random direction of each run, with one std of the posterior on either side."""
    labels = ("distance (1: as long as the weights)", "NLL (nats per example)")
    panel = open_panel(ax, theme, "Loss along a random direction", *labels, size_for(runs))
    axes, chosen = panel
    entries: list[tuple[Any, str]] = []
    read = [(label, _line(record, label)) for label, record in as_runs("plot_loss_line", runs)]
    seen: list[Numbers] = []
    for index, (label, line) in enumerate(read):
        distances, losses = line.numbers("distances"), line.numbers("losses", like="distances")
        seen.append(losses)
        look = {**chosen.line(index), **marks_if_few(len(distances), 12)}
        entries.append((axes.plot(distances, losses, **look)[0], label))
        std = line.number("posterior_std")
        if std is None:
            continue
        if len(read) == 1:
            span = axes.axvspan(-std, std, color=chosen.colour(index), alpha=0.2, linewidth=0)
            entries.append((span, f"± one posterior std ({number_text(std)})"))
        else:
            for side in (-std, std):
                axes.axvline(side, color=chosen.colour(index), linestyle=(0, (1, 2)), linewidth=1)
    if len(read) > 1 and any(line.has("posterior_std") for _, line in read):
        entries.append((handle(color=chosen.muted, linestyle=(0, (1, 2))), "± one posterior std"))
    if not panel.has_data(*seen):
        return axes
    if is_steep(np.concatenate(seen), _STEEP):
        panel.logarithmic()
    panel.legend(entries)
    return axes


def describe_loss_line(runs: Mapping[str, Any]) -> str:
    """Lowest loss and losses at the ends."""
    clauses = []
    for label, record in as_runs("plot_loss_line", runs):
        line = _line(record, label)
        distances, losses = line.numbers("distances"), line.numbers("losses", like="distances")
        if not len(finite(losses)):
            clauses.append(f"{label}: no data")
            continue
        best = int(np.nanargmin(losses))
        # The middle of an even grid may be a rounding error away from 0.
        distances = np.where(np.abs(distances) < 1e-9 * np.nanmax(np.abs(distances)), 0.0, distances)
        clauses.append(
            f"{label}: {number_text(losses[0])} at {number_text(distances[0])}, lowest {number_text(losses[best])} at "
            f"{number_text(distances[best])}, {number_text(losses[-1])} at {number_text(distances[-1])}"
        )
    head = "Loss along a random direction in nats per example"
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."


def plot_loss_plane(plane: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The loss in the plane of two random directions; the ellipse is one std of the posterior."""
    read, distances, losses = _plane(plane)
    labels = ("distance along the second direction", "along the first")
    panel = open_panel(ax, theme, "Loss in a random plane", *labels, _PLANE_SIZE)
    axes, chosen = panel
    if not panel.has_data(losses):
        return axes
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Ellipse

    known = finite(losses)
    low, high, steep = float(known.min()), float(known.max()), is_steep(losses, _STEEP)
    norm = LogNorm(low, high) if steep else Normalize(low, high)
    shown = np.ma.masked_invalid(losses)
    axes.grid(visible=False)
    mesh = axes.pcolormesh(distances, distances, shown, cmap=chosen.heat, norm=norm, shading="nearest", rasterized=True)
    if len(distances) > 1 and high > low:
        levels = (np.geomspace if steep else np.linspace)(low, high, 9)[1:-1]
        # The heat map is dark where the loss is low, bright where it is high.
        colours = ["#FFFFFF" if float(norm(level)) < 0.6 else "#000000" for level in levels]
        lines = axes.contour(distances, distances, shown, levels=levels, colors=colours, linewidths=0.9)
        axes.clabel(lines, fmt=lambda value: number_text(float(value)), fontsize=TICK_SIZE)
    stds = read.numbers("posterior_stds") if read.has("posterior_stds") else np.empty(0)
    if len(stds) == 2 and np.isfinite(stds).all():
        # The first direction is drawn upwards.
        ring = Ellipse((0, 0), 2 * stds[1], 2 * stds[0], fill=False, edgecolor="#FFFFFF", linewidth=1.6)
        axes.add_patch(ring)
        on_dark_and_light(ring)
        shown_as = handle(color="#FFFFFF", marker="o", markersize=8, fillstyle="none", linestyle="none")
        on_dark_and_light(shown_as)
        panel.legend([(shown_as, "one posterior std")], loc="upper right")
    panel.colour_bar(mesh, "NLL (nats per example)")
    return axes


def describe_loss_plane(plane: Any) -> str:
    """Lowest, central and highest loss."""
    _, distances, losses = _plane(plane)
    known = finite(losses)
    if not len(known):
        return "Loss in a plane of two random directions, without data."
    middle = int(np.argmin(np.abs(distances)))
    return (
        f"Loss in a plane of two random directions in nats per example: {number_text(losses[middle, middle])} in "
        f"the middle, {number_text(known.min())} to {number_text(known.max())} within "
        f"{number_text(np.abs(distances).max())} of it."
    )


def plot_sharpness(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """How much worse the loss gets near drawn networks: after one step and after ascent, with standard errors."""
    read = _sharpness(runs)
    rhos = sorted({f"{number_text(report.number('rho'))}{_kind(report)}" for _, report in read if report.has("rho")})
    within = f"\nwithin a radius of {', '.join(rhos)}" if rhos else ""
    size = (WIDTH, 1.3 + 0.42 * max(2, len(read)))
    panel = open_panel(ax, theme, "Sharpness", f"rise of the loss (nats per example){within}", "", size)
    axes, chosen = panel
    if not read:
        panel.has_data()
        return axes
    places = np.arange(len(read), dtype=np.float64)
    entries = []
    for index, (name, shown) in enumerate((("one_step", "one step"), ("ascent", "ascent"))):
        values, errors = (column([report for _, report in read], field) for field in (name, f"{name}_error"))
        bars = axes.barh(places + 0.38 * (index - 0.5), values, height=0.36, color=chosen.colour(index))
        known = np.isfinite(errors) & np.isfinite(values)
        if known.any():
            rows = places[known] + 0.38 * (index - 0.5)
            axes.errorbar(values[known], rows, xerr=errors[known], fmt="none", ecolor=chosen.ink, capsize=2)
        entries.append((bars, shown))
    panel.name_rows([label for label, _ in read])
    axes.grid(visible=False, axis="y")
    beside = (1.0, 1.0)  # at the right of the title
    panel.legend(entries, loc="lower right", bbox_to_anchor=beside, ncols=2, borderaxespad=0.2, columnspacing=1.0)
    return axes


def describe_sharpness(runs: Mapping[str, Any]) -> str:
    """Both numbers of each run."""
    clauses = [
        f"{label}: one step {number_text(report.number('one_step'))}, ascent {number_text(report.number('ascent'))}"
        for label, report in _sharpness(runs)
    ]
    head = "Sharpness, the rise of the loss in nats per example"
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."


def _line(record: Any, label: str) -> Fields:
    return Fields("plot_loss_line", record, ("distances", "losses"), of=f"the record of '{label}'")


def _plane(plane: Any) -> tuple[Fields, Numbers, Numbers]:
    read = Fields("plot_loss_plane", plane, ("distances", "losses"))
    distances = read.increasing("distances")
    return read, distances, read.matrix("losses", (len(distances), len(distances)))


def _sharpness(runs: Any) -> list[tuple[str, Fields]]:
    return [
        (label, lenient("plot_sharpness", record, ("one_step", "ascent"), of=f"the record of '{label}'"))
        for label, record in as_runs("plot_sharpness", runs)
    ]


def _kind(report: Fields) -> str:
    return " (adaptive)" if report.has("adaptive") and report.get("adaptive") else ""
