"""How much of the gradients is signal, over the steps of training (``diagnostics.SNRWindow``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError, SettingError, nearest
from .canvas import SINGLE, Axes, handle, is_steep, literal, open_panel, with_legend
from .reading import Fields, Numbers, as_list, as_runs, listed, number_text
from .theme import ThemeName

_MEASURES: Mapping[str, str] = {
    "second_moment_mean": "E[g²] / Var[g],\nmean over parameters",
    "second_moment_median": "E[g²] / Var[g],\nmedian over parameters",
    "mean_square_mean": "E[g]² / Var[g],\nmean over parameters",
    "mean_square_median": "E[g]² / Var[g],\nmedian over parameters",
}
_STYLES: tuple[Any, ...] = ("-", (0, (1, 1.5)), (0, (5, 2)), (0, (5, 2, 1, 2)))
Paths = dict[str, tuple[Numbers, Numbers]]


def plot_snr(
    runs: Mapping[str, Sequence[Any]],
    *,
    layer: str = "all",
    measure: str = "second_moment_mean",
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Signal to noise of each group of parameters in one layer (or all) over steps; of several members the first's."""
    from_runs = _read(runs, layer, measure)
    title = "Signal to noise of gradients" + ("" if layer == "all" else f" in {literal(layer)}")
    panel = open_panel(
        ax,
        theme,
        title,
        "step",
        _MEASURES[measure],
        with_legend(SINGLE, [*map(str, runs), "gradients of means", "gradients of stds"]),
    )
    axes, chosen = panel
    groups = list(dict.fromkeys(group for _, paths in from_runs for group in paths))
    entries: list[tuple[Any, str]] = []
    seen: list[Numbers] = []
    for index, (label, paths) in enumerate(from_runs):
        for group, (steps, values) in paths.items():
            look = {**chosen.line(index), "linestyle": _STYLES[groups.index(group) % len(_STYLES)]}
            axes.plot(steps, values, **look, marker="o", markersize=3)
            seen.append(values)
        entries.append((handle(**chosen.line(index)), label))
    if not panel.has_data(*seen):
        return axes
    if is_steep(np.concatenate(seen)):
        panel.logarithmic()
    for place, group in enumerate(groups):
        style = _STYLES[place % len(_STYLES)]
        entries.append((handle(color=chosen.muted, linestyle=style), f"gradients of {group}"))
    panel.legend(entries)
    return axes


def describe_snr(runs: Mapping[str, Sequence[Any]]) -> str:
    """First and last values of each group."""
    clauses = []
    for label, paths in _read(runs, "all", "second_moment_mean"):
        parts = []
        for group, (steps, values) in paths.items():
            known = np.isfinite(values)
            if known.any():
                first, last = values[known][0], values[known][-1]
                parts.append(
                    f"{group} {number_text(first)} at step {steps[known][0]:.0f} to {number_text(last)} at step "
                    f"{steps[known][-1]:.0f}"
                )
        clauses.append(f"{label}: {', '.join(parts) or 'no data'}")
    head = "Signal to noise of gradients, E[g²] / Var[g]"
    return f"{head}; {listed(clauses)}." if clauses else f"{head}, without data."


def _read(runs: Any, layer: str, measure: str) -> list[tuple[str, Paths]]:
    if measure not in _MEASURES:
        raise SettingError(f"plot_snr: measure = {measure!r}; {nearest(str(measure), _MEASURES)}")
    found = []
    layers: set[str] = set()
    for label, windows in as_runs("plot_snr", runs):
        whose = f"the record of '{label}'"
        read = [Fields("plot_snr", one, ("step", "rows"), of=whose) for one in as_list("plot_snr", whose, windows)]
        first = read[0].number("member") if read else None
        points: dict[str, list[tuple[float, float]]] = {}
        for window in read:
            if window.number("member") != first:
                continue
            for row in window.parts("rows"):
                fields = Fields("plot_snr", row, ("group", "layer"), of="a row")
                layers.add(fields.text("layer", ""))
                if fields.text("layer", "") == layer:
                    value, step = fields.number(measure), window.number("step")
                    point = (np.nan if step is None else step, np.nan if value is None else value)
                    points.setdefault(fields.text("group", ""), []).append(point)
        columns = {group: np.array(pairs).T for group, pairs in points.items()}
        found.append((label, {group: (column[0], column[1]) for group, column in columns.items()}))
    if layers and layer not in layers:
        raise DataError(f"plot_snr: there is no layer '{layer}'; {nearest(layer, layers)}")
    return found
