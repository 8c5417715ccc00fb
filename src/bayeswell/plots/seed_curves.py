"""Training curves of several seeds as one: the mean of each method, with a band of one std over its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from .canvas import WIDTH, AnyFigure, Axes, Panel, handle, is_steep, marks_if_few, open_sheet, with_legend
from .reading import Numbers, as_list, as_numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_OWNER = "seed_curves"
_QUANTITIES: Mapping[str, tuple[str, str]] = {
    "nll": ("Training: NLL", "NLL as trained on\n(nats per example)"),
    "validation.nll": ("Validation: NLL", "NLL\n(nats per example)"),
    "test.nll": ("Test set: NLL", "NLL\n(nats per example)"),
    "validation.minus_elbo": ("Validation: -ELBO", "-ELBO\n(nats per example)"),
    "accuracy": ("Training: accuracy", "accuracy"),
    "validation.accuracy": ("Validation: accuracy", "accuracy"),
    "test.accuracy": ("Test set: accuracy", "accuracy"),
    "rmse": ("Training: RMSE", "RMSE\n(targets as trained on)"),
    "validation.rmse": ("Validation: RMSE", "RMSE\n(targets as trained on)"),
    "test.rmse": ("Test set: RMSE", "RMSE\n(targets as trained on)"),
}
_FURTHEST = ("accuracy", "rmse")
"""Of these the last data only, of training, validation and test, that any run was measured on."""
_TEST, _AVERAGE = "test.", "test.average."
_DASHED = (0, (3, 2))
_STEEP = 30.0

Runs = list[list[Mapping[str, Any]]]


class Curve(NamedTuple):
    """At each epoch that all ``runs`` have: their mean, and their std (n - 1), NaN of a single run."""

    epochs: Numbers
    mean: Numbers
    std: Numbers
    runs: int


def plot_seed_curves(
    runs: Mapping[str, Sequence[Sequence[Any]]], *, figure: AnyFigure | None = None, theme: ThemeName = "light"
) -> tuple[Axes, ...]:
    """NLL in training, on validation data and on the test set, -ELBO on validation data, and accuracy (or RMSE).

    ``runs`` has of each method the epochs of its runs, one list a seed. A line is the mean over runs of the epochs that
    all have, its band one std (n - 1) over them; members of an ensemble are averaged first. On the test set the
    averaged model (HWA, SWA, SWAG) is dashed, the iterate solid.
    """
    read = _read(runs)
    wanted = _panels(read)
    labels = [label for label, _ in read]
    count = max(1, len(wanted))
    sheet = open_sheet(figure, theme, with_legend((WIDTH, 0.5 + 2.0 * count), [*labels, _note(read)], always=True))
    panels = sheet.panels(count, 1, count)
    averaged = False
    for panel, quantity in zip(panels, wanted, strict=False):
        averaged |= _draw(panel, read, quantity)
    if not wanted:
        panels[0].has_data()
    entries = {label: handle(**sheet.theme.line(index)) for index, (label, _) in enumerate(read)}
    if averaged:
        entries["averaged model (dashed)"] = handle(color=sheet.theme.muted, linestyle=_DASHED)
    entries[_note(read)] = handle(color=sheet.theme.muted, linewidth=6, alpha=0.3)
    sheet.legend(entries if wanted else {})
    return tuple(panel.axes for panel in panels)


def describe_seed_curves(runs: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """The last mean and std of each method."""
    read = _read(runs)
    clauses = []
    for label, found in read:
        parts = []
        for quantity in _panels(read):
            for name, words in _names(quantity):
                curve = seed_curve(found, name)
                if len(finite(curve.mean)):
                    last = int(np.flatnonzero(np.isfinite(curve.mean))[-1])
                    spread = "" if math.isnan(curve.std[last]) else f" ± {number_text(curve.std[last])}"
                    title = _QUANTITIES[quantity][0].replace(": ", " ")
                    parts.append(f"{title}{words} {number_text(curve.mean[last])}{spread}")
        clauses.append(f"{label} ({len(found)} runs): {', '.join(parts) or 'no numbers'}")
    return f"Training curves over seeds, at the end; {listed(clauses)}." if clauses else "Training curves without data."


def seed_curve(runs: Runs, name: str) -> Curve:
    """Mean and std over runs of a number of their epochs."""
    tables = [_by_epoch(rows, name) for rows in runs]
    tables = [table for table in tables if table]
    shared = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    values = np.array([[table[epoch] for epoch in shared] for table in tables]).reshape(len(tables), len(shared))
    std = values.std(axis=0, ddof=1) if len(tables) > 1 else np.full(len(shared), np.nan)
    mean = values.mean(axis=0) if tables else np.zeros(0)
    return Curve(np.array(shared, dtype=np.float64), mean, std, len(tables))


def _by_epoch(rows: Sequence[Mapping[str, Any]], name: str) -> dict[float, float]:
    """The mean over the members of an ensemble."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if name in row:
            found.setdefault(float(row["epoch"]), []).append(float(as_numbers(_OWNER, name, row[name], 0)))
    return {epoch: math.fsum(values) / len(values) for epoch, values in found.items()}


def _read(runs: Any) -> list[tuple[str, Runs]]:
    found: list[tuple[str, Runs]] = []
    for label, several in as_runs(_OWNER, runs):
        tables: Runs = []
        for rows in as_list(_OWNER, f"the record of '{label}'", several):
            table = as_list(_OWNER, f"a run of '{label}'", rows)
            table = [{"epoch": row.epoch, **row.values()} if hasattr(row, "as_state") else row for row in table]
            if not all(isinstance(row, Mapping) and isinstance(row.get("epoch"), int | float) for row in table):
                raise DataError(f"{_OWNER}: a row of '{label}' has no number 'epoch'; each is a line of metrics.jsonl")
            tables.append(table)
        found.append((label, [table for table in tables if table]))
    return found


def _panels(read: list[tuple[str, Runs]]) -> list[str]:
    known = {name for _, tables in read for rows in tables for row in rows for name in row}
    found = [name for name in _QUANTITIES if name in known]
    for score in _FURTHEST:
        there = [name for name in found if name.split(".")[-1] == score]
        found = [name for name in found if name not in there[:-1]]
    return found


def _names(quantity: str) -> list[tuple[str, str]]:
    """What is drawn in a panel: on the test set the averaged model too."""
    if not quantity.startswith(_TEST):
        return [(quantity, "")]
    return [(quantity, ""), (quantity.replace(_TEST, _AVERAGE), " of the average")]


def _note(read: list[tuple[str, Runs]]) -> str:
    counts = sorted({len(tables) for _, tables in read}) or [0]
    return f"one std over {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} runs"


def _draw(panel: Panel, read: list[tuple[str, Runs]], quantity: str) -> bool:
    """Whether an averaged model was among what was drawn."""
    axes, theme = panel
    seen: list[Numbers] = []
    averaged = False
    for index, (_, tables) in enumerate(read):
        for name, words in _names(quantity):
            curve = seed_curve(tables, name)
            if not len(finite(curve.mean)):
                continue
            look = theme.line(index) | ({"linestyle": _DASHED, "fillstyle": "none"} if words else {})
            averaged |= bool(words)
            marks = marks_if_few(int(np.isfinite(curve.mean).sum()), 12)
            axes.plot(curve.epochs, curve.mean, **{**look, **marks})
            low, high = curve.mean - curve.std, curve.mean + curve.std
            axes.fill_between(curve.epochs, low, high, color=look["color"], alpha=0.18, linewidth=0)
            seen += [curve.mean, low, high]
    title, label = _QUANTITIES[quantity]
    panel.title(title)
    panel.labels("epoch", label)
    if panel.has_data(*seen):
        panel.whole_ticks()
        if label != "accuracy" and is_steep(np.concatenate(seen), _STEEP):
            panel.logarithmic()
    return averaged
