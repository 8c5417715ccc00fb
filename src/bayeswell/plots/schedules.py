"""What theory and plans say before anything is trained: robust regions of SGD, and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..optimizers.robust_region import least_robust_momentum, robust_region
from .canvas import SINGLE, Axes, is_steep, marks_if_few, open_panel, with_legend
from .reading import Fields, Numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_MOMENTA = np.linspace(0.0, 0.995, 200)


def plot_robust_region(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Rates that are robust at each momentum, for ranges of curvature (Book 2020, eq. (3.2.1)).

    Robust for curvatures h are rates from (1 - sqrt(momentum))^2 / h_min to (1 + sqrt(momentum))^2 / h_max; where the
    first is above the second there are none.
    """
    found = _curvatures(runs)
    size = with_legend(SINGLE, [label for label, _, _ in found])
    panel = open_panel(ax, theme, "Robust region of SGD", "momentum", "learning rate", size)
    axes, chosen = panel
    entries: list[tuple[Any, str]] = []
    seen: list[Numbers] = []
    for index, (label, least, most) in enumerate(found):
        regions = [robust_region(float(momentum), least, most) for momentum in _MOMENTA]
        low, high = (np.array([getattr(one, end) for one in regions]) for end in ("lowest", "highest"))
        area = axes.fill_between(
            _MOMENTA, low, high, where=(low <= high).tolist(), color=chosen.colour(index), alpha=0.3, linewidth=0
        )
        axes.plot(_MOMENTA, low, **chosen.line(index))
        axes.plot(_MOMENTA, high, **chosen.line(index))
        seen += [low, high]
        entries.append((area, f"{label}: curvature {_range(least, most)}"))
    if not panel.has_data(*seen):
        return axes
    panel.logarithmic()
    panel.legend(entries)
    return axes


def describe_robust_region(runs: Mapping[str, Any]) -> str:
    """From which momentum on there are robust rates, and which they are at 0.9."""
    clauses = []
    for label, least, most in _curvatures(runs):
        region = robust_region(0.9, least, most)
        rates = "none" if region.empty else f"{number_text(region.lowest)} to {number_text(region.highest)}"
        clauses.append(
            f"{label}: from momentum {number_text(least_robust_momentum(least, most))} on, at 0.9 rates {rates}"
        )
    return f"Robust region of SGD; {listed(clauses)}." if clauses else "Robust region of SGD, without data."


def plot_schedules(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Learning rates, KL weights or anything else that is planned, over the steps of training.

    A record may say what its values are (``quantity``); else they are factors, which is what schedules give.
    """
    found = _schedules(runs)
    size = with_legend(SINGLE, [label for label, _, _ in found])
    panel = open_panel(ax, theme, "Schedules", "step", _quantities(runs), size)
    axes, chosen = panel
    entries: list[tuple[Any, str]] = []
    seen: list[Numbers] = []
    for index, (label, steps, values) in enumerate(found):
        entries.append((axes.plot(steps, values, **chosen.line(index), **marks_if_few(len(steps)))[0], label))
        seen.append(values)
    if not panel.has_data(*seen):
        return axes
    if is_steep(np.concatenate(seen)):
        panel.logarithmic()
    panel.legend(entries)
    return axes


def describe_schedules(runs: Mapping[str, Any]) -> str:
    """Where each begins and ends, and its extremes."""
    clauses = []
    for label, _, values in _schedules(runs):
        there = finite(values)
        if not len(there):
            clauses.append(f"{label}: no data")
            continue
        clauses.append(
            f"{label}: {number_text(there[0])} to {number_text(there[-1])}, between {number_text(there.min())} and "
            f"{number_text(there.max())}"
        )
    return f"Schedules; {listed(clauses)}." if clauses else "Schedules, without data."


def _curvatures(runs: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    found = []
    for label, record in as_runs("plot_robust_region", runs):
        read = Fields("plot_robust_region", record, ("curvature_min", "curvature_max"), of=f"'{label}'")
        least, most = read.number("curvature_min"), read.number("curvature_max")
        if least is not None and most is not None:
            found.append((label, least, most))
    return found


def _range(least: float, most: float) -> str:
    return number_text(least) if least == most else f"{number_text(least)} to {number_text(most)}"


def _schedules(runs: Mapping[str, Any]) -> list[tuple[str, Numbers, Numbers]]:
    found = []
    for label, record in as_runs("plot_schedules", runs):
        read = Fields("plot_schedules", record, ("steps", "values"), of=f"'{label}'")
        found.append((label, read.numbers("steps"), read.numbers("values", like="steps")))
    return found


def _quantities(runs: Mapping[str, Any]) -> str:
    """What the values are, each once."""
    read = [Fields("plot_schedules", record, (), of=f"'{label}'") for label, record in as_runs("plot_schedules", runs)]
    return ", ".join(dict.fromkeys(str(one.get("quantity")) if one.has("quantity") else "factor" for one in read))
