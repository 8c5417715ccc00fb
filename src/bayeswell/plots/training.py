"""Training epoch by epoch: the rows of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from .canvas import WIDTH, AnyFigure, Axes, Panel, handle, is_steep, marks_if_few, open_panel, open_sheet, with_legend
from .reading import Numbers, as_list, as_numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_LABELS: Mapping[str, str] = {
    "total": "objective\n(nats per example)",
    "nll": "NLL as trained on\n(nats per example)",
    "kl": "KL; of a point\n-log prior (nats)",
    "accuracy": "accuracy",
    "rmse": "RMSE\n(targets as trained on)",
    "std_ratio": "posterior std / prior std",
}
_TITLES = {
    "nll": "Negative log likelihood",
    "kl": "KL to the prior (points: -log prior)",
    "accuracy": "Accuracy",
    "rmse": "RMSE",
}
_OWNER = "training_curves"
_RATES = "learning rates"
_VALIDATION = "validation."
_OTHERS: Mapping[str, tuple[Any, str]] = {
    _VALIDATION: ((0, (3, 2)), "validation (dashed)"),
    "test.": ((0, (1, 1.5)), "test set (dotted)"),
    "test.average.": ((0, (5, 1.5, 1, 1.5)), "test, average (dash-dotted)"),
}
"""How scores on other data than those of training are drawn, and what the legend says of them."""
_STEEP = 30.0
"""From this ratio of the highest to the lowest value on, an axis is logarithmic."""

Epochs = list[Mapping[str, Any]]


def plot_training_curves(
    runs: Mapping[str, Sequence[Any]], *, figure: AnyFigure | None = None, theme: ThemeName = "light"
) -> tuple[Axes, ...]:
    """NLL, KL, accuracy (or RMSE) and learning rates against epochs, a panel each, as far as any run has them."""
    wanted = _panels(runs)
    count = max(1, len(wanted))
    labels = [label for label, _ in as_runs(_OWNER, runs)]
    sheet = open_sheet(figure, theme, with_legend((WIDTH, 0.5 + 2.0 * count), labels, always=True))
    found = sheet.panels(count, 1, count)
    entries: dict[str, Any] = {}
    for panel, quantity in zip(found, wanted, strict=False):
        draw = _draw_rates if quantity == _RATES else _draw_quantity
        entries |= {label: line for line, label in draw(panel, runs, quantity)}
        panel.title(_TITLES.get(quantity, quantity.capitalize()))
    if not wanted:
        found[0].has_data()
    sheet.legend(entries)
    return tuple(panel.axes for panel in found)


def plot_training_curve(
    runs: Mapping[str, Sequence[Any]], quantity: str = "nll", *, ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """One quantity of the epochs of each run: solid in training, dashed in validation, dotted on a test set."""
    known = sorted({name for _, rows in _read(runs) for row in rows for name in row})
    if known and not any(prefix + quantity in known for prefix in ("", *_OTHERS)):
        raise DataError(f"plot_training_curve: no epoch has '{quantity}'; there are: {', '.join(known)}")
    panel = open_panel(ax, theme, _TITLES.get(quantity, quantity))
    panel.legend(_draw_quantity(panel, runs, quantity))
    return panel.axes


def plot_learning_rates(
    runs: Mapping[str, Sequence[Any]], *, ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """The learning rate of each group of parameters at the end of each epoch."""
    panel = open_panel(ax, theme, _RATES.capitalize())
    panel.legend(_draw_rates(panel, runs))
    return panel.axes


def describe_training_curves(runs: Mapping[str, Sequence[Any]]) -> str:
    """First and last values of each run."""
    wanted = [name for name in _panels(runs) if name != _RATES]
    clauses = []
    for label, rows in _read(runs):
        parts = []
        for name in wanted:
            for prefix in ("", *_OTHERS):
                values = finite(_column(rows, prefix + name))
                if len(values):
                    shown = f"{prefix.replace('.', ' ')}{name}"
                    parts.append(f"{shown} {number_text(values[0])} to {number_text(values[-1])}")
        epochs = len({row["epoch"] for row in rows})
        clauses.append(f"{label} over {epochs} epochs: {', '.join(parts) or 'no numbers'}")
    return f"Training curves; {listed(clauses)}." if clauses else "Training curves without data."


def _read(runs: Any) -> list[tuple[str, Epochs]]:
    found = []
    for label, rows in as_runs(_OWNER, runs):
        epochs = []
        for row in as_list(_OWNER, f"the record of '{label}'", rows):
            if not isinstance(row, Mapping) and callable(getattr(row, "values", None)) and hasattr(row, "epoch"):
                row = {"epoch": row.epoch, **row.values()}
            if not isinstance(row, Mapping) or not isinstance(row.get("epoch"), int | float):
                raise DataError(f"{_OWNER}: a row of '{label}' has no number 'epoch'; each is a line of metrics.jsonl")
            epochs.append(row)
        found.append((label, epochs))
    return found


def _panels(runs: Any) -> list[str]:
    names = {name.split(".")[-1] if name.startswith((*_OTHERS,)) else name
             for _, rows in _read(runs) for row in rows for name in row}  # fmt: skip
    found: list[str] = [name for name in ("nll", "kl", "accuracy", "rmse") if name in names]
    return [*found, _RATES] if any(name.startswith("lr.") for name in names) else found


def _column(rows: Epochs, name: str) -> Numbers:
    return as_numbers(_OWNER, name, [row.get(name) for row in rows], 1)


def _members(rows: Epochs) -> list[Epochs]:
    found: dict[Any, Epochs] = {}
    for row in rows:
        found.setdefault(row.get("member", 0), []).append(row)
    return list(found.values())


def _draw_quantity(panel: Panel, runs: Any, quantity: str) -> list[tuple[Any, str]]:
    axes, theme = panel
    entries: list[tuple[Any, str]] = []
    seen: list[Numbers] = []
    others: dict[str, Any] = {}
    for index, (label, rows) in enumerate(_read(runs)):
        members = _members(rows)
        for prefix in ("", *_OTHERS):
            if not any(prefix + quantity in row for row in rows):
                continue
            look = theme.line(index)
            if prefix:
                style, shown = _OTHERS[prefix]
                look |= {"linestyle": style, "fillstyle": "none"}
                others[shown] = style
            for member in members:
                line = _curve(axes, _column(member, "epoch"), _column(member, prefix + quantity), look, len(members))
                seen.append(np.asarray(line.get_ydata(), dtype=np.float64))
                if not any(label == name for _, name in entries):
                    entries.append((handle(**theme.line(index)), label))
    _finish(panel, seen, _LABELS.get(quantity, quantity))
    entries += [(handle(color=theme.muted, linestyle=style), shown) for shown, style in others.items()]
    return entries


def _draw_rates(panel: Panel, runs: Any, quantity: str = _RATES) -> list[tuple[Any, str]]:
    """Colours are runs, line styles are groups of parameters."""
    axes, theme = panel
    read = _read(runs)
    names = [name for _, rows in read for row in rows for name in row if name.startswith("lr.")]
    groups = list(dict.fromkeys(names))
    styles: list[Any] = ["-", (0, (1, 1.5)), (0, (5, 2)), (0, (5, 2, 1, 2))]
    entries: list[tuple[Any, str]] = []
    seen: list[Numbers] = []
    for index, (label, rows) in enumerate(read):
        for place, group in enumerate(groups):
            if not any(group in row for row in rows):
                continue
            # All members go through the same rates.
            first = _members(rows)[0]
            look = {**theme.line(index), "linestyle": styles[place % len(styles)]}
            line = _curve(axes, _column(first, "epoch"), _column(first, group), look, 1)
            seen.append(np.asarray(line.get_ydata(), dtype=np.float64))
        if rows:
            entries.append((handle(**theme.line(index)), label))
    if len(groups) > 1:
        for place, group in enumerate(groups):
            style = styles[place % len(styles)]
            entries.append((handle(color=theme.muted, linestyle=style), f"rate of {group[3:]}"))
    _finish(panel, seen, "learning rate")
    return entries


def _curve(axes: Axes, x: Numbers, y: Numbers, look: Mapping[str, Any], members: int) -> Any:
    marks = marks_if_few(int(np.isfinite(y).sum()), 12)
    fainter = {"alpha": 0.55, "linewidth": 1.0} if members > 1 else {}
    return axes.plot(x, y, **{**look, **marks, **fainter})[0]


def _finish(panel: Panel, seen: list[Numbers], label: str) -> None:
    panel.labels("epoch", label)
    if not panel.has_data(*seen):
        return
    panel.whole_ticks()
    if label != "accuracy" and is_steep(np.concatenate(seen), _STEEP):
        panel.logarithmic()
