"""What the posterior's stds look like: heat maps, singular values, their way through training, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError, nearest, require_count
from .canvas import WIDTH, AnyFigure, Axes, is_steep, literal, marks_if_few, open_panel, open_sheet, size_for
from .reading import Fields, Numbers, as_list, as_numbers, column, finite, listed, number_text
from .theme import ThemeName

_MOST_CELLS = 96
"""Rows and columns of a heat map that are shown: more are not told apart, and make the file large."""

_MOST_PANELS = 6
_MOST_VALUES = 15
_BEFORE = "stds before training"
_SERIES: tuple[tuple[str, str, int, Any, str], ...] = (
    ("stds", "stds", 0, "-", "o"),
    (_BEFORE, "stds", 4, (0, (1, 1.5)), "x"),
    ("means", "means", 1, "-", "s"),
    ("stds less their mean", "centred_stds", 2, (0, (5, 2)), "^"),
)
"""Of a spectrum: label, field, colour, style and mark."""


def heat_map_record(layer: str, stds: Any, ranks: Sequence[int] = (1, 2)) -> dict[str, Any]:
    """The record of ``plot_std_heat_maps``: a matrix of stds and its best approximations of some ranks (by SVD)."""
    matrix = as_numbers("heat_map_record", "stds", stds, 2)
    if not matrix.size or not np.isfinite(matrix).all():
        raise DataError(f"heat_map_record: the stds of '{layer}' must be finite numbers, at least one")
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    found = {}
    for rank in ranks:
        require_count("heat_map_record", "rank", rank)
        found[str(rank)] = ((left[:, :rank] * values[:rank]) @ right[:rank]).tolist()
    return {"layer": layer, "stds": matrix.tolist(), "approximations": found}


def plot_std_heat_maps(record: Any, *, figure: AnyFigure | None = None, theme: ThemeName = "light") -> tuple[Axes, ...]:
    """A matrix of stds and its low-rank approximations on one colour scale (k-tied, figure 4)."""
    layer, stds, cut = _heat(record)
    sheet = open_sheet(figure, theme, (WIDTH, 0.4 + 1.9 * (1 + len(cut))))
    found = sheet.panels(1 + len(cut), 1, 1 + len(cut))
    every = [panel.axes for panel in found]
    rows, columns = (-(-size // _MOST_CELLS) for size in stds.shape)
    known, image = finite(stds), None
    if not len(known):
        for panel in found:
            panel.has_data()
        return tuple(every)
    across = "input" if columns == 1 else f"input (every {_nth(columns)})"
    down = "output unit" if rows == 1 else f"output unit (every {_nth(rows)})"
    titled = [(f"{layer}: stds", stds), *((f"rank {k}", m) for k, m in cut)]
    for panel, (title, matrix) in zip(found, titled, strict=True):
        panel.axes.grid(visible=False)
        image = panel.axes.imshow(
            matrix[::rows, ::columns], cmap=sheet.theme.heat, vmin=float(known.min()), vmax=float(known.max()),
            aspect="auto", interpolation="none", extent=(0.5, stds.shape[1] + 0.5, stds.shape[0] + 0.5, 0.5),
        )  # fmt: skip
        panel.title(literal(title))
        panel.labels(across if panel is found[-1] else "", down)
        panel.whole_ticks(5, both=True)
    found[-1].colour_bar(image, "posterior std", over=every)
    return tuple(every)


def describe_std_heat_maps(record: Any) -> str:
    """Range of the stds, and how far each approximation is away."""
    layer, stds, cut = _heat(record)
    known = finite(stds)
    if not len(known):
        return f"Heat map of the stds of {layer} without data."
    away = [
        f"rank {rank} is {number_text(float(np.sqrt(np.nansum((m - stds) ** 2) / np.nansum(stds**2))))} away"
        for rank, m in cut
    ]
    return (
        f"Heat maps of the {stds.shape[0]} x {stds.shape[1]} stds of {layer}, {number_text(known.min())} to "
        f"{number_text(known.max())}{', relative to which ' if away else ''}{' and '.join(away)}."
    )


def plot_spectra(
    taken: Sequence[Any],
    *,
    layers: Sequence[str] | None = None,
    figure: AnyFigure | None = None,
    theme: ThemeName = "light",
) -> tuple[Axes, ...]:
    """Explained variance of each singular value of stds and means, and of stds before training; a panel a layer."""
    before, after = _spectra(taken, layers)
    count = max(1, len(after))
    columns = min(2, count)
    sheet = open_sheet(figure, theme, (WIDTH, 0.8 + (2.6 if count == 1 else 2.2) * -(-count // columns)))
    found = sheet.panels(-(-count // columns), columns, count, sharey=True)
    every = tuple(panel.axes for panel in found)
    if not after:
        found[0].has_data()
        return every
    entries: dict[str, Any] = {}
    for index, (panel, (name, spectrum)) in enumerate(zip(found, after.items(), strict=True)):
        for label, field, colour, style, marker in _SERIES:
            read = before.get(name) if label == _BEFORE else spectrum
            values = read.numbers(field)[:_MOST_VALUES] if read is not None and read.has(field) else np.empty(0)
            if len(values):
                entries[label] = panel.axes.plot(
                    np.arange(1, len(values) + 1), values, color=sheet.theme.colour(colour), linestyle=style,
                    marker=marker, markersize=4, linewidth=1.3,
                )[0]  # fmt: skip
        panel.axes.set_ylim(1e-4, 1.5)
        panel.logarithmic()
        panel.whole_ticks(5)
        panel.title(literal(name, 26 if columns == 1 else 20))
        panel.labels("singular value", "explained variance" if index % columns == 0 else "")
    sheet.legend(entries)
    return every


def describe_spectra(taken: Sequence[Any]) -> str:
    """The share of the first singular value of each layer."""
    before, after = _spectra(taken, None)
    clauses = []
    for name, read in after.items():
        parts = []
        for label, source, field in (
            ("stds", read, "stds"),
            ("means", read, "means"),
            (_BEFORE, before.get(name), "stds"),
        ):
            values = source.numbers(field) if source is not None and source.has(field) else np.empty(0)
            if len(values):
                parts.append(f"{label} {number_text(values[0])}")
        clauses.append(f"{name}: {', '.join(parts) or 'no data'}")
    head = "Variance explained by the first singular value"
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."


def plot_std_paths(path: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Posterior std / prior std of each layer before training and after each epoch (``diagnostics.StdPath``)."""
    layers = _path(path)
    labels = ("epochs trained", "posterior std / prior std")
    panel = open_panel(ax, theme, "Stds through training", *labels, size_for(layers))
    axes, chosen = panel
    entries = []
    for index, (name, values) in enumerate(layers.items()):
        look = {**chosen.line(index), **marks_if_few(len(values), 12)}
        entries.append((axes.plot(np.arange(len(values)), values, **look)[0], name))
    if not panel.has_data(*layers.values()):
        return axes
    panel.whole_ticks()
    if is_steep(np.concatenate(list(layers.values()))):
        panel.logarithmic()
    panel.legend(entries, longest=30)
    return axes


def describe_std_paths(path: Any) -> str:
    """Where each layer began and ended."""
    clauses = []
    for name, values in _path(path).items():
        known = finite(values)
        clauses.append(
            f"{name} {number_text(known[0])} to {number_text(known[-1])}" if len(known) else f"{name}: no data"
        )
    return f"Posterior std / prior std by layer: {listed(clauses)}." if clauses else "Stds by layer without data."


def plot_layers(report: Any, *, figure: AnyFigure | None = None, theme: ThemeName = "light") -> tuple[Axes, ...]:
    """Median std / prior std of each layer, from its lowest to its highest, and KL a weight (``LayerReport``).

    A bank of draws has no density, and so no second panel.
    """
    rows = _layers(report)
    divergences = column(rows, "kl_per_weight")
    count = 2 if len(finite(divergences)) else 1
    sheet = open_sheet(figure, theme, (WIDTH, 0.3 + count * (0.7 + 0.23 * max(3, len(rows)))))
    found = sheet.panels(count, 1, count)
    every, chosen, widths, left = tuple(panel.axes for panel in found), sheet.theme, found[0], found[0].axes
    widths.title("Width of the posterior")
    widths.labels("posterior std / prior std (median, range)", "")
    if not rows:
        widths.has_data()
        return every
    places = np.arange(len(rows))
    median, low, high = (column(rows, f"std_ratio_{name}") for name in ("median", "min", "max"))
    left.hlines(places, low, high, color=chosen.colour(0), linewidth=1.2, alpha=0.7)
    left.plot(median, places, color=chosen.colour(0), marker="o", markersize=6, linestyle="none")
    if is_steep(np.concatenate([median, low, high])):
        widths.logarithmic(across=True)
    for costs in found[1:]:
        costs.title("KL to the prior")
        costs.labels("nats per weight", "")
        costs.axes.barh(places, divergences, color=chosen.colour(1), height=0.6)
    for panel in found:
        panel.name_rows([literal(row.text("layer", ""), 20) for row in rows])
    return every


def describe_layers(report: Any) -> str:
    """Std ratio and KL of each layer."""
    clauses = []
    for row in _layers(report):
        divergence = row.number("kl_per_weight")
        known = "unknown" if divergence is None else f"{number_text(divergence)} nats per weight"
        clauses.append(f"{row.text('layer', '')}: std ratio {number_text(row.number('std_ratio_median'))}, KL {known}")
    return f"Layers; {listed(clauses)}." if clauses else "Layers without data."


def _heat(record: Any) -> tuple[str, Numbers, list[tuple[str, Numbers]]]:
    read = Fields("plot_std_heat_maps", record, ("layer", "stds", "approximations"))
    stds, cut = read.matrix("stds"), read.get("approximations")
    if not isinstance(cut, Mapping):
        raise DataError("plot_std_heat_maps: 'approximations' must map ranks to matrices, such as {'1': [[...]]}")
    found = Fields("plot_std_heat_maps", {str(k): m for k, m in cut.items()}, [str(k) for k in cut])
    return read.text("layer", ""), stds, [(str(k), found.matrix(str(k), (stds.shape[0], stds.shape[1]))) for k in cut]


def _spectra(taken: Any, layers: Sequence[str] | None) -> tuple[dict[str, Fields], dict[str, Fields]]:
    """By layer: the first that were taken (if there are two), and the last."""
    read = [Fields("plot_spectra", one, ("layers",)) for one in as_list("plot_spectra", "the record", taken)]
    members = [one.number("member") or 0.0 for one in read]
    read = [one for one, member in zip(read, members, strict=True) if member == members[0]]
    if not read:
        return {}, {}
    parts = [
        {row.text("layer", ""): row for row in (Fields("plot_spectra", row, ("layer",)) for row in one.parts("layers"))}
        for one in (read[0], read[-1])
    ]
    if layers is not None:
        for name in layers:
            if name not in parts[1]:
                raise DataError(f"plot_spectra: there is no layer '{name}'; {nearest(name, parts[1])}")
        parts[1] = {name: parts[1][name] for name in layers}
    return (parts[0] if len(read) > 1 else {}), dict(list(parts[1].items())[:_MOST_PANELS])


def _path(path: Any) -> dict[str, Numbers]:
    layers = Fields("plot_std_paths", path, ("layers",)).get("layers")
    if not isinstance(layers, Mapping):
        raise DataError("plot_std_paths: 'layers' must map names of layers to lists of numbers")
    return {str(name): as_numbers("plot_std_paths", str(name), values, 1) for name, values in layers.items()}


def _layers(report: Any) -> list[Fields]:
    rows = Fields("plot_layers", report, ("layers",)).parts("layers")
    return [Fields("plot_layers", row, ("layer",), of="a layer") for row in rows]


def _nth(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
