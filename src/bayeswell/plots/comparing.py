"""Methods side by side: scores with standard errors, and what a step costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError, nearest
from .canvas import WIDTH, AnyFigure, Axes, Panel, literal, open_panel, open_sheet
from .reading import Fields, Numbers, as_runs, column, finite, lenient, listed, number_text
from .theme import ThemeName

HIGHER_IS_BETTER = ("accuracy", "auroc", "aupr")
"""Scores of which more is better, by the beginning of their names."""
LOWER_IS_BETTER = (
    *("nll", "expected_nll", "ece", "mce", "brier", "tfp_brier"),
    *("aurc", "rmse", "crps", "calibration_error", "fpr95"),
)
"""First words of names: ``ece_20`` and ``ood_auroc_entropy`` are told by ``ece`` and ``auroc``."""

_USUAL = ("accuracy", "nll", "ece", "brier", "rmse", "crps", "calibration_error", "auroc", "ood_auroc_entropy")
_SHOWN = {"nll": "NLL (nats)", "ece": "ECE", "mce": "MCE", "brier": "Brier score", "rmse": "RMSE", "crps": "CRPS"}
_SHOWN |= {"auroc": "OOD AUROC", "ood_auroc_entropy": "OOD AUROC", "aurc": "AURC"}
_MOST_PANELS = 6
_BEST = "best"
_OWNER = "plot_comparison"


def better(metric: str) -> int:
    """1 if higher is better, -1 if lower is, 0 if it is not known."""
    name = metric.removeprefix("mixture_").removeprefix("ood_")
    for names, sign in ((HIGHER_IS_BETTER, 1), (LOWER_IS_BETTER, -1)):
        if any(name == known or name.startswith(f"{known}_") for known in names):
            return sign
    return 0


def plot_comparison(
    record: Any,
    *,
    metrics: Sequence[str] | None = None,
    figure: AnyFigure | None = None,
    theme: ThemeName = "light",
) -> tuple[Axes, ...]:
    """A panel for each metric, a dot with its standard error for each method; the best is a star."""
    rows, chosen_metrics = _rows(record), _metrics(record, metrics)
    count = max(1, len(chosen_metrics))
    columns = min(2, count)
    height = 0.95 + 0.22 * max(3, len(rows))
    sheet = open_sheet(figure, theme, (WIDTH, 0.4 + height * -(-count // columns)))
    found = sheet.panels(-(-count // columns), columns, count, sharey=True)
    if chosen_metrics:
        entries: dict[str, Any] = {}
        for panel, metric in zip(found, chosen_metrics, strict=True):
            entries |= {label: handle for handle, label in _draw_dots(panel, rows, metric)}
        found[0].name_rows([literal(row.text("method", ""), 18) for row in rows])
        sheet.legend(dict(sorted(entries.items(), key=lambda entry: entry[0].startswith(_BEST))))
    else:
        found[0].has_data()
    return tuple(panel.axes for panel in found)


def plot_comparison_of(record: Any, metric: str, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """One metric of all methods: dots with standard errors; the best is a star."""
    rows, (metric,) = _rows(record), _metrics(record, [metric])
    panel = open_panel(ax, theme, size=(WIDTH, 1.7 + 0.25 * max(3, len(rows))))
    entries = _draw_dots(panel, rows, metric)
    panel.name_rows([row.text("method", "") for row in rows])
    panel.legend_below(entries)
    return panel.axes


def describe_comparison(record: Any) -> str:
    """The best method of each metric."""
    rows = _rows(record)
    clauses = []
    for metric in _metrics(record, None):
        means, errors, _ = _columns(rows, metric)
        best = _best(rows, means, metric)
        if best:
            first = _highest(means, metric)[0]
            spread = f" ± {errors[first]:.2g}" if np.isfinite(errors[first]) else ""
            level = [rows[index].text("method", "") for index in best if index != first]
            beside = f" (level with it: {', '.join(level)})" if level else ""
            leader = rows[first].text("method", "")
            clauses.append(f"{metric}: best {leader} with {number_text(means[first])}{spread}{beside}")
    return f"{len(rows)} methods compared; {listed(clauses) or 'no scores'}."


def plot_step_times(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The time of one training step of each run in milliseconds, with its standard error where it is known."""
    labels, rows = _times(runs)
    panel = open_panel(
        ax, theme, "Time of a training step", "milliseconds", "", (WIDTH, 1.1 + 0.27 * max(2, len(rows)))
    )
    axes, chosen = panel
    times = column(rows, "seconds") * 1e3
    if not panel.has_data(times):
        return axes
    errors = np.nan_to_num(column(rows, "error")) * 1e3
    places = np.arange(len(rows))
    axes.barh(places, times, color=chosen.colour(0), height=0.6)
    drawn = errors > 0
    if drawn.any():
        axes.errorbar(times[drawn], places[drawn], xerr=errors[drawn], fmt="none", ecolor=chosen.ink, capsize=3)
    widest = float(np.nanmax(times + errors))
    for place, time, error in zip(places, times, errors, strict=True):
        if np.isfinite(time):
            panel.text(time + error + 0.02 * widest, float(place), number_text(time), va="center")
    axes.set_xlim(0, 1.12 * widest if widest > 0 else 1)
    panel.name_rows(labels)
    axes.grid(visible=False, axis="y")
    return axes


def describe_step_times(runs: Mapping[str, Any]) -> str:
    """Each time."""
    labels, rows = _times(runs)
    clauses = [
        f"{label} {number_text(None if (seconds := row.number('seconds')) is None else 1e3 * seconds)}"
        for label, row in zip(labels, rows, strict=True)
    ]
    return f"Milliseconds of a training step: {listed(clauses)}." if clauses else "Step times without data."


def _rows(record: Any) -> list[Fields]:
    rows = Fields(_OWNER, record, ("rows",)).parts("rows")
    read = [Fields(_OWNER, row, ("method", "scores"), of="a row") for row in rows]
    for row in read:
        scores = row.get("scores")
        if not isinstance(scores, Mapping) or not all(isinstance(score, Mapping) for score in scores.values()):
            raise DataError(f"{_OWNER}: the scores of '{row.text('method', '')}' must map metrics to {{'mean': ...}}")
    return read


def _metrics(record: Any, wanted: Sequence[str] | None) -> list[str]:
    known = list(dict.fromkeys(name for row in _rows(record) for name in row.get("scores")))
    if wanted is None:
        return [name for name in _USUAL if name in known][:_MOST_PANELS]
    for name in wanted:
        if name not in known:
            raise DataError(f"{_OWNER}: no method has the metric '{name}'; {nearest(name, known)}")
    return list(wanted)


def _columns(rows: Sequence[Fields], metric: str) -> tuple[Numbers, Numbers, list[str]]:
    """Means, standard errors, and what each error is over ("" if there is none)."""
    scores = [Fields(_OWNER, row.get("scores").get(metric, {}), ()) for row in rows]
    by_seed, by_example = (column(scores, f"standard_error_over_{what}") for what in ("seeds", "examples"))
    errors = np.where(np.isfinite(by_seed), by_seed, by_example)
    kinds = ["seeds" if known else "test examples" for known in np.isfinite(by_seed)]
    over = [kind if np.isfinite(error) else "" for kind, error in zip(kinds, errors, strict=True)]
    return column(scores, "mean"), errors, over


def _best(rows: Sequence[Fields], means: Numbers, metric: str) -> list[int]:
    """The rows whose score says that it is ``best``, or else those of the best mean."""
    scores = [row.get("scores").get(metric, {}) for row in rows]
    said = [index for index, score in enumerate(scores) if score.get("best") is True]
    return said or _highest(means, metric)


def _highest(means: Numbers, metric: str) -> list[int]:
    sign = better(metric)
    if not sign or not len(finite(means)):
        return []
    top = np.nanmax(sign * means)
    return [int(index) for index in np.flatnonzero(sign * means == top)]


def _draw_dots(panel: Panel, rows: Sequence[Fields], metric: str) -> list[tuple[Any, str]]:
    axes, theme = panel
    means, errors, over = _columns(rows, metric)
    way = {1: " ↑", -1: " ↓", 0: ""}[better(metric)]
    panel.title(_SHOWN.get(metric, metric.replace("_", " ").capitalize()) + way)
    kinds = [kind for kind in ("seeds", "test examples") if kind in over]
    panel.labels(f"± SE over {' or '.join(kinds)}".replace("test examples", "examples") if kinds else "", "")
    axes.locator_params(axis="x", nbins=3)
    if not len(finite(means)):
        panel.text(0.5, 0.5, "no data", ha="center", transform=axes.transAxes, color=theme.muted)
        return []
    places = np.arange(len(rows))
    dots = axes.plot(means, places, color=theme.colour(0), marker="o", markersize=5, linestyle="none")[0]
    entries: list[tuple[Any, str]] = [(dots, "mean ± standard error (SE)" if kinds else "mean")]
    taken = np.isfinite(errors) & np.isfinite(means)
    if taken.any():
        look: dict[str, Any] = {"ecolor": theme.colour(0), "elinewidth": 1.3, "capsize": 2.5}
        axes.errorbar(means[taken], places[taken], xerr=errors[taken], fmt="none", **look)
    best = _best(rows, means, metric)
    if best:
        star = axes.plot(
            means[best], places[best], color=theme.colour(1), marker="*", markersize=11, linestyle="none", zorder=4
        )[0]
        told = any("best" in score for row in rows for score in row.get("scores").values())
        entries.append((star, f"{_BEST}, or level with it" if told else _BEST))
    return entries


def _times(runs: Any) -> tuple[list[str], list[Fields]]:
    found = as_runs("plot_step_times", runs)
    return [label for label, _ in found], [
        lenient("plot_step_times", record, ("seconds",), of=f"'{label}'") for label, record in found
    ]
