"""The record as one picture: who is better than ordinary training where, and who is worse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bayeswell.plots import figure_to_svg
from bayeswell.plots.theme import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, find_theme

from .differences import Mean, Results
from .plan import CONTROL
from .problems import TEN

FULL = 0.3
"""Nats at which a colour is full; the root of the difference grows evenly, so that small ones can be seen."""
_BETTER, _WORSE = (0, 114, 178), (213, 94, 0)  # blue and vermillion of the house's palette


def draw(found: Results, path: Path) -> bool:
    """A cell for each method and problem with the difference in NLL; False if there is nothing to show."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    problems = [name for name in found.problems(TEN) if found.at(name, CONTROL)]
    methods = [name for name in found.methods(problems) if name != CONTROL]
    if not problems or not methods:
        return False
    theme = find_theme("light")
    figure = Figure(figsize=(1.6 + 0.47 * len(problems), 1.9 + 0.27 * len(methods)), layout="constrained")
    axes: Any = figure.subplots()
    theme.dress(axes)
    axes.grid(visible=False)
    for row, method in enumerate(methods):
        for column, problem in enumerate(problems):
            one = found.difference(problem, method)
            if one is None:
                continue
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour(one), edgecolor="white", lw=1))
            sure = not one.within_noise or Mean(-one.mean, one.error, one.count).above(0)
            weight = "bold" if sure else "normal"
            dark = strength(one) > 0.6 and sure
            axes.text(
                column, row, _short(one.mean), ha="center", va="center", fontsize=TICK_SIZE - 1, fontweight=weight,
                color="white" if dark else theme.ink,
            )  # fmt: skip
    axes.set_xlim(-0.5, len(problems) - 0.5)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xticks(range(len(problems)), problems, rotation=60, ha="right", fontsize=TICK_SIZE)
    axes.set_yticks(range(len(methods)), methods, fontsize=TICK_SIZE)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(f"Test NLL above {CONTROL}'s, nats", loc="left", fontsize=TITLE_SIZE, color=theme.ink)
    axes.set_xlabel(
        "blue: better, orange: worse, bold: by more than\ntwo standard errors (paired, over seeds)",
        fontsize=LABEL_SIZE, color=theme.ink,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    alt = f"Test NLL of {len(methods)} methods above that of {CONTROL} on {len(problems)} problems"
    path.write_text(figure_to_svg(figure, name="quality", alt=alt) + "\n", encoding="utf-8")
    return True


def strength(one: Mean) -> float:
    """From 0, no difference, to 1."""
    return 1.0 if not math.isfinite(one.mean) else min(1.0, math.sqrt(abs(one.mean) / FULL))


def colour(one: Mean) -> tuple[float, float, float]:
    """White at zero; half as strong where the difference is within noise."""
    target = _WORSE if one.mean > 0 else _BETTER
    sure = not one.within_noise or Mean(-one.mean, one.error, one.count).above(0)
    share = strength(one) * (1.0 if sure else 0.35)
    return tuple(1 - share * (1 - part / 255) for part in target)  # type: ignore[return-value]


def _short(value: float) -> str:
    """As few letters as say it: +.02, -.13, +1.2."""
    if not math.isfinite(value):
        return "fail"
    if abs(value) < 0.005:
        return "0"
    if abs(value) < 0.995:
        return f"{value:+.2f}".replace("0.", ".")
    return f"{value:+.1f}" if abs(value) < 99.5 else f"{value:+.0e}"
