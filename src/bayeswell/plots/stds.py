"""What the posterior's stds look like: heat maps, singular values, their way through training, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, nearest, require_count
from .canvas import (
    Size,
    colour_bar,
    literal,
    marks_if_few,
    open_axes,
    open_figure,
    panels,
    say_no_data,
    size_for,
    whole_ticks,
    write_labels,
    write_legend,
    write_text,
    write_ticks,
    write_title,
)
from .reading import Fields, Numbers, as_list, as_numbers, finite, listed, number_text
from .theme import ThemeName

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_MOST_CELLS = 96
"""Rows and columns of a heat map that are shown: more are not told apart, and make the file large."""

_MOST_PANELS = 6
_MOST_VALUES = 15


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


def plot_std_heat_maps(
    record: Any, *, figure: Figure | SubFigure | None = None, theme: ThemeName = "light"
) -> tuple[Axes, ...]:
    """A matrix of stds and its low-rank approximations on one colour scale (k-tied, figure 4)."""
    layer, stds, cut = _heat(record)
    drawn, chosen = open_figure(figure, theme, std_heat_maps_size(record))
    found = panels(drawn, chosen, 1, 1 + len(cut), 1 + len(cut))
    rows, columns = (-(-size // _MOST_CELLS) for size in stds.shape)
    known = finite(stds)
    if not len(known):
        for axes in found:
            say_no_data(axes, chosen)
        return tuple(found)
    image: Any = None
    for axes, (title, matrix) in zip(found, [("stds", stds), *((f"rank {k}", m) for k, m in cut)], strict=True):
        axes.grid(visible=False)
        image = axes.imshow(
            matrix[::rows, ::columns], cmap=chosen.heat, vmin=float(known.min()), vmax=float(known.max()),
            aspect="auto", interpolation="none", extent=(0.5, stds.shape[1] + 0.5, stds.shape[0] + 0.5, 0.5),
        )  # fmt: skip
        write_title(axes, literal(f"{layer}: {title}" if title == "stds" else title))
        write_labels(axes, "input" if columns == 1 else f"input (every {_nth(columns)})", "")
        whole_ticks(axes.xaxis, 5)
        whole_ticks(axes.yaxis, 5)
    write_labels(
        found[0], str(found[0].get_xlabel()), "output unit" if rows == 1 else f"output unit (every {_nth(rows)})"
    )
    colour_bar(found[-1], image, chosen, "posterior std", over=found)
    return tuple(found)


def std_heat_maps_size(record: Any) -> Size:
    """One panel beside the other."""
    return 2.4 * (1 + len(_heat(record)[2])) + 0.8, 3.0


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
    figure: Figure | SubFigure | None = None,
    theme: ThemeName = "light",
) -> tuple[Axes, ...]:
    """Explained variance of each singular value of stds and means, and of stds before training; a panel a layer."""
    before, after = _spectra(taken, layers)
    drawn, chosen = open_figure(figure, theme, spectra_size(taken, layers=layers))
    count = max(1, len(after))
    columns = min(3, count)
    found = panels(drawn, chosen, -(-count // columns), columns, count, sharey=True)
    if not after:
        say_no_data(found[0], chosen)
        return tuple(found)
    entries: dict[str, Any] = {}
    for index, (axes, (name, spectrum)) in enumerate(zip(found, after.items(), strict=True)):
        series: list[tuple[str, Fields, str, Any, str]] = [
            ("stds", spectrum, "stds", "-", "o"),
            ("means", spectrum, "means", "-", "s"),
        ]
        series.append(("stds less their mean", spectrum, "centred_stds", (0, (5, 2)), "^"))
        if name in before:
            series.insert(1, ("stds before training", before[name], "stds", (0, (1, 1.5)), "x"))
        colours = {"stds": 0, "means": 1, "stds less their mean": 2, "stds before training": 4}
        for label, read, field, style, marker in series:
            values = read.numbers(field)[:_MOST_VALUES] if read.has(field) else np.empty(0)
            if not len(values):
                continue
            entries[label] = axes.plot(
                np.arange(1, len(values) + 1), values, color=chosen.colour(colours[label]), linestyle=style,
                marker=marker, markersize=4, linewidth=1.3,
            )[0]  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylim(1e-4, 1.5)
        whole_ticks(axes.xaxis)
        write_title(axes, literal(name, 26))
        write_labels(axes, "singular value", "explained variance" if index % columns == 0 else "")
    ncols = 4 if count > 2 else 2
    write_legend(drawn, [(h, label) for label, h in entries.items()], chosen, loc="outside lower center", ncols=ncols)
    return tuple(found)


def spectra_size(taken: Sequence[Any], *, layers: Sequence[str] | None = None) -> Size:
    """Three panels a row."""
    count = max(1, len(_spectra(taken, layers)[1]))
    return (5.0, 3.7) if count == 1 else (0.6 + 2.6 * min(3, count), 0.7 + 2.4 * -(-count // 3))


def describe_spectra(taken: Sequence[Any]) -> str:
    """The share of the first singular value of each layer."""
    before, after = _spectra(taken, None)
    clauses = []
    for name, read in after.items():
        parts = []
        for shown, source, field in (
            ("stds", read, "stds"),
            ("means", read, "means"),
            ("before", before.get(name), "stds"),
        ):
            values = source.numbers(field) if source is not None and source.has(field) else np.empty(0)
            if len(values):
                parts.append(f"{'stds before training' if shown == 'before' else shown} {number_text(values[0])}")
        clauses.append(f"{name}: {', '.join(parts) or 'no data'}")
    head = "Variance explained by the first singular value"
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."


def plot_std_paths(path: Any, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Posterior std / prior std of each layer before training and after each epoch (``diagnostics.StdPath``)."""
    layers = _path(path)
    axes, chosen = open_axes(ax, theme, std_paths_size(path))
    entries = []
    for index, (name, values) in enumerate(layers.items()):
        look = {**chosen.line(index), **marks_if_few(len(values), 12)}
        entries.append((axes.plot(np.arange(len(values)), values, **look)[0], name))
    write_title(axes, "Stds through training")
    write_labels(axes, "epochs trained", "posterior std / prior std")
    known = finite(np.concatenate(list(layers.values()))) if layers else np.empty(0)
    if not len(known):
        say_no_data(axes, chosen)
        return axes
    whole_ticks(axes.xaxis)
    if known.min() > 0 and known.max() > 10 * known.min():
        axes.set_yscale("log")
    write_legend(axes, entries, chosen, longest=30)
    return axes


def std_paths_size(path: Any) -> Size:
    """A line a layer."""
    return size_for(_path(path))


def describe_std_paths(path: Any) -> str:
    """Where each layer began and ended."""
    clauses = []
    for name, values in _path(path).items():
        known = finite(values)
        clauses.append(
            f"{name} {number_text(known[0])} to {number_text(known[-1])}" if len(known) else f"{name}: no data"
        )
    return f"Posterior std / prior std by layer: {listed(clauses)}." if clauses else "Stds by layer without data."


def plot_layers(
    report: Any, *, figure: Figure | SubFigure | None = None, theme: ThemeName = "light"
) -> tuple[Axes, Axes]:
    """Median std / prior std of each layer, from its lowest to its highest, and KL a weight (``LayerReport``)."""
    rows = _layers(report)
    drawn, chosen = open_figure(figure, theme, layers_size(report))
    left, right = panels(drawn, chosen, 1, 2, 2, sharey=True)
    write_title(left, "Width of the posterior")
    write_title(right, "KL to the prior; of a point -log prior")
    write_labels(left, "posterior std / prior std (median, range)", "")
    write_labels(right, "nats per weight", "")
    if not rows:
        say_no_data(left, chosen)
        return left, right
    places = np.arange(len(rows))
    median, low, high = (_of_rows(rows, f"std_ratio_{name}") for name in ("median", "min", "max"))
    left.hlines(places, low, high, color=chosen.colour(0), linewidth=1.2, alpha=0.7)
    left.plot(median, places, color=chosen.colour(0), marker="o", markersize=6, linestyle="none")
    divergences = _of_rows(rows, "kl_per_weight")
    right.barh(places, divergences, color=chosen.colour(1), height=0.6)
    if not len(finite(divergences)):  # a bank of draws has no density
        write_text(right, 0.5, 0.5, "KL unknown", chosen, ha="center", va="center", transform=right.transAxes)
        right.set_xticks([])
    known = finite(np.concatenate([median, low, high]))
    if len(known) and known.min() > 0 and known.max() > 10 * known.min():
        left.set_xscale("log")
    write_ticks(left.yaxis, list(places), [row.text("layer", "") for row in rows])
    left.set_ylim(len(rows) - 0.4, -0.6)
    return left, right


def layers_size(report: Any) -> Size:
    """A line a layer."""
    return 8.0, 1.1 + 0.3 * max(3, len(_layers(report)))


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


def _of_rows(rows: Sequence[Fields], name: str) -> Numbers:
    return np.array([np.nan if (value := row.number(name)) is None else value for row in rows])


def _nth(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
