"""Plots of methods side by side: paired differences, and quality against cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas

from ...core.errors import DataError
from ...metrics import find_score, paired_difference
from ...metrics.statistics import SIGNIFICANCE
from .outside import heading
from .theme import TICK, WIDTH, Panel, open_panel, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..comparison import Comparison

SEEDS, EXAMPLES = "runs", "test examples"


def plot_forest(
    comparison: Comparison,
    *,
    score: str = "nll",
    reference: str | None = None,
    ax: Axes | None = None,
    theme: str = "light",
) -> Figure:
    """Plot the paired difference of each method from a reference method, with 95 % intervals.

    Filled points differ significantly at 5 % (Student's paired t-test), hollow ones do not.

    Args:
        comparison: of at least two methods.
        score: a key of ``metrics.SCORES``.
        reference: the method that others are compared with; None: that of the comparison.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    shown, table = find_score(score), paired_table(comparison, score, reference)
    table = table[table["pairs"] > 0]
    if not len(table):
        raise DataError(f"plot_forest: no other method has the score {score!r} of the reference method")
    problems = list(dict.fromkeys(table["problem"]))
    title = f"Δ{shown.heading} vs {short_name(table['reference'].iloc[0])}"
    better = {"lower": "lower is better", "higher": "higher is better"}.get(shown.direction, "")
    parts = (shown.unit if shown.unit != "y" else "", better, "filled: significant at 5 %")
    label = ", ".join(part for part in parts if part)
    rows: list[tuple[str, Mapping[str, Any] | None]] = []
    for problem in problems:
        rows += [(problem, None)] if len(problems) > 1 else []
        rows += [(row["method"], row) for row in table[table["problem"] == problem].to_dict("records")]
    panel = open_panel(ax, theme, title, label, "", (WIDTH, 1.1 + 0.24 * max(3, len(rows))))
    panel.reference(x=0)
    for place, (_, row) in enumerate(rows):
        if row is not None:
            _draw_difference(panel, place, row)
    panel.rows([name for name, _ in rows])
    for text, (_, row) in zip(panel.axes.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row is None else "normal")
    panel.axes.grid(visible=False, axis="y")
    return panel.finished()


def _draw_difference(panel: Panel, place: int, row: Mapping[str, Any]) -> None:
    error = None if math.isnan(row["se"]) else [[row["difference"] - row["low"]], [row["high"] - row["difference"]]]
    color = {True: panel.theme.color(2), False: panel.theme.color(1)}.get(row["better"], panel.theme.muted)
    fill = panel.theme.background if row["better"] is None else color
    look: dict[str, Any] = {"color": color, "markerfacecolor": fill, "markersize": 6, "capsize": 3, "elinewidth": 1.5}
    panel.axes.errorbar([row["difference"]], [place], xerr=error, fmt="o", **look)


def paired_table(comparison: Comparison, score: str, reference: str | None = None) -> pandas.DataFrame:
    """Return ``Comparison.differences`` of one score with the columns ``reference`` and ``over``.

    Differences are paired over runs. Where each method has a single run, they are paired over its test examples: the
    error then says nothing about other seeds.
    """
    found = comparison.differences(reference, [score]).reset_index()
    base = reference or (comparison.reference if comparison.reference in comparison.methods else comparison.methods[0])
    rows = []
    for row in found.to_dict("records"):
        by_example = _over_examples(comparison, row["problem"], row["method"], base, score) if row["pairs"] == 1 else {}
        rows.append({**row, "reference": base, "over": EXAMPLES if by_example else SEEDS, **by_example})
    columns = [*found.columns, "reference", "over"]
    return pandas.DataFrame(rows, columns=columns).astype({"better": object})


def _over_examples(comparison: Comparison, problem: str, method: str, base: str, score: str) -> dict[str, Any]:
    first, second = comparison.records(problem, method), comparison.records(problem, base)
    (repeat,) = [one for one in first if one in second]
    losses = [records[repeat].per_example.get(score) for records in (first, second)]
    if losses[0] is None or losses[1] is None or losses[0].shape != losses[1].shape or len(losses[0]) < 2:
        return {}
    difference = paired_difference(losses[0].flatten().tolist(), losses[1].flatten().tolist())
    low, high = difference.interval()
    sign = find_score(score.partition(".")[0]).sign
    significant = sign != 0 and difference.p_value < SIGNIFICANCE
    better = bool(sign * difference.value < 0) if significant else None
    found = {"difference": difference.value, "se": difference.se, "low": low, "high": high}
    return {**found, "p_value": difference.p_value, "better": better}


def plot_cost_quality(
    comparison: Comparison,
    *,
    score: str = "nll",
    problem: str | None = None,
    ax: Axes | None = None,
    theme: str = "light",
) -> Figure:
    """Plot a score of each method against its training cost; a line joins the methods that no other one dominates.

    The cost is relative to ordinary training of as many epochs. Errors are over seeds.

    Args:
        comparison: of several methods.
        score: a key of ``metrics.SCORES``.
        problem: which one to show; None: the only one.
        ax: axes to draw in; None: a new figure.
        theme: "light" or "dark".
    """
    problems = comparison.problems
    if problem is None and len(problems) != 1:
        raise DataError(f"plot_cost_quality shows one of the problems {', '.join(problems)}; give `problem`")
    shown, sign = problem or problems[0], find_score(score).sign or 1
    table = comparison.table([score]).loc[shown]
    table = table[table[score].notna() & (table["cost"] > 0)]
    if not len(table):
        raise DataError(f"plot_cost_quality: no run on {shown!r} has both a cost and the score {score!r}")
    front = pareto_front({str(name): (row["cost"], sign * row[score]) for name, row in table.iterrows()})
    title, label = f"Cost and quality on {shown}", "training cost (ordinary training = 1)"
    panel = open_panel(ax, theme, title, label, heading(score))
    for name, row in table.iterrows():
        color = panel.theme.color(0) if name in front else panel.theme.muted
        error = 0 if math.isnan(row[f"{score}_se"]) else row[f"{score}_se"]
        panel.axes.errorbar([row["cost"]], [row[score]], [error], fmt="o", color=color, capsize=2, markersize=5)
    line = table.loc[front]
    look: dict[str, Any] = {"color": panel.theme.color(0), "linewidth": 1, "alpha": 0.6}
    panel.axes.step(line["cost"].tolist(), line[score].tolist(), where="post", **look)
    panel.log_scale(x=True)
    panel.axes.margins(x=0.22)
    _name_points(panel, {str(name): (row["cost"], row[score]) for name, row in table.iterrows()})
    return panel.finished()


def _name_points(panel: Panel, points: Mapping[str, tuple[float, float]]) -> None:
    # Names that would overlap are moved upwards.
    low, high = panel.axes.get_ylim()
    scale = 72 * 0.65 * panel.figure.get_figheight() / ((high - low) or 1.0)
    tops: dict[str, tuple[float, float]] = {}
    for name, (cost, value) in sorted(points.items(), key=lambda item: item[1][1]):
        near = [top for other, top in tops.values() if max(cost / other, other / cost) < 1.6]
        height = max([scale * (value - low), *(top + 1.3 * TICK for top in near)])
        tops[name] = (cost, height)
        place: dict[str, Any] = {"textcoords": "offset points", "fontsize": TICK, "va": "center"}
        shift = (7, height - scale * (value - low))
        panel.axes.annotate(shorten(name, 22), (cost, value), xytext=shift, color=panel.theme.ink, **place)


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that no other one is below in both numbers, in the order of the first number."""
    front: list[str] = []
    for name in sorted(points, key=lambda name: points[name]):
        if not front or points[name][1] < points[front[-1]][1]:
            front.append(name)
    return front


def short_name(method: str) -> str:
    return "MAP" if method == "map" else method
