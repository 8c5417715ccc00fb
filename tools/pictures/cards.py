"""The picture on each method card: its posterior on one curve with a gap, the same for every method.

The problem is the regression reference of ``tests/references``: 40 points on both sides of a gap, a 1-50-1 tanh
network, noise of known std. Above, the method as ``fit`` has it; below, the same at temperature 1 (Bayes' rule). The
dashed lines are the posterior that long runs of NUTS found at temperature 1, on both.

    python tools/pictures/cards.py [card ...]     # all of them without a name
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import bayeswell as bw
from bayeswell.plots.theme import Theme, find_theme

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from make_references import Reference, read_reference
from method_cards import card_names, method_of

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "cards"
EPOCHS, BATCH_SIZE, SEED, DRAWS, SHOWN = 250, 10, 0, 300, 6
"""1,000 steps of ten examples; so many draws for the bands, and so many of them as lines."""
WIDTH, HEIGHT = 4.2, 5.5
"""Inches; text of 11 points is still 11 pixels high where the picture is 300 pixels wide."""
SHOWN_WIDTH = 330
"""Pixels."""
_STDS = 2.0

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """What a method says of the curve at the reference's test inputs, and the temperature that it had."""

    temperature: float
    mean: Array
    epistemic: Array
    total: Array
    functions: Array


def posterior(reference: Reference, method: str, **settings: Any) -> Posterior:
    """Train one method, with nothing set but what ``settings`` says."""
    problem = reference.problem
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
    options: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "seed": SEED, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)  # a run of seconds is short, and says so
        data = (problem.train_inputs, problem.train_targets)
        result = bw.fit(net, data, method, problem.likelihood, **options | settings)
        found = result.predict(torch.from_numpy(problem.test_inputs).float(), draws=DRAWS, seed=SEED, keep_samples=True)
    chosen = torch.linspace(0, len(found.samples) - 1, min(SHOWN, len(found.samples))).long()
    return Posterior(
        float(result.temperature), *(_column(one) for one in (found.mean, found.epistemic_std, found.std)),
        found.samples[chosen].squeeze(-1).double().numpy(),
    )  # fmt: skip


def _column(values: torch.Tensor) -> Array:
    column: Array = values.squeeze(-1).double().numpy()
    return column


def draw(reference: Reference, name: str, panels: Sequence[tuple[str, Posterior]], theme: Theme, path: Path) -> None:
    """The panels one above the other under the method's name, with a legend below them."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        figure.suptitle(name, fontsize=14, fontweight="bold", color=theme.ink, x=0.02, ha="left")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (title, found) in zip(axes, panels, strict=True):
            handles = _panel(ax, reference, found, theme)
            ax.set_title(title, fontsize=12, color=theme.ink, loc="left")
        figure.legend(
            handles=handles, loc="outside lower center", ncols=2, fontsize=11, frameon=False, labelcolor=theme.ink,
            columnspacing=1.2, handlelength=1.6, borderaxespad=0.0,
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", facecolor="none", metadata={"Date": None})
    path.write_text(small(path.read_text(encoding="utf-8")), encoding="utf-8")


def small(svg: str) -> str:
    """The same picture in half the bytes: no metadata, places to a tenth of a point, one style for all marks of a line.

    Its own width is that at which two of them stand beside each other on a page.
    """
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', f'width="{SHOWN_WIDTH}"', svg, count=1)
    svg = re.sub(r' d="([^"]*)"', lambda found: f' d="{_short_path(found[1])}"', svg)
    svg = re.sub(r' ([xy])="(-?\d+\.\d)\d+"', r' \1="\2"', svg)
    svg = re.sub(r"<g ([^>]*)>\s*((?:<use [^>]*/>\s*){2,})</g>", _one_style, svg)
    return "\n".join(line.strip() for line in svg.splitlines()) + "\n"


def _one_style(group: re.Match[str]) -> str:
    """Marks that all look alike get their style from their group."""
    styles = set(re.findall(r' style="[^"]*"', group[2]))
    if len(styles) != 1:
        return group[0]
    style = styles.pop()
    return f"<g {group[1]}{style}>{group[2].replace(style, '')}</g>"


def _short_path(path: str) -> str:
    """Places to a tenth; in a path of straight lines the word for one is needed once."""
    short = re.sub(r"(-?\d+\.\d)\d+", r"\1", " ".join(path.split()))
    return short if re.search("[QC]", short) else short.replace(" L ", " ")


def _panel(ax: Any, reference: Reference, found: Posterior, theme: Theme) -> list[Any]:
    """Bands, drawn functions, mean, NUTS and the data, in the order of the legend."""
    theme.dress(ax)
    ax.set_facecolor("none")  # that of the page
    x, blue = reference.problem.test_inputs[:, 0], theme.colour(0)
    bands = []
    for std, alpha, label in (
        (found.total, 0.16, "± 2 std, with noise"),
        (found.epistemic, 0.38, "± 2 std, epistemic"),
    ):
        ends = (found.mean - _STDS * std, found.mean + _STDS * std)
        bands.append(ax.fill_between(x, *ends, color=blue, alpha=alpha, linewidth=0, label=label))
    lines = [ax.plot(x, one, color=blue, linewidth=0.8, alpha=0.75)[0] for one in found.functions]
    mean = ax.plot(x, found.mean, color=theme.ink, linewidth=1.6, label="mean")[0]
    for sign in (-1, 1):
        edge = reference.mean + sign * _STDS * reference.std
        nuts = ax.plot(x, edge, color=theme.colour(1), linestyle=(0, (4, 2)), linewidth=1.4, label="NUTS ± 2 std")[0]
    inputs, targets = reference.problem.train_inputs[:, 0], reference.problem.train_targets[:, 0]
    dots = ax.plot(inputs, targets, ".", color=theme.ink, markersize=4, label="data")[0]
    lines[0].set_label("drawn functions")
    ax.set_xlim(float(x[0]), float(x[-1]))
    ax.set_ylim(-2.6, 2.6)
    ax.tick_params(labelsize=11)
    return [mean, lines[0], bands[1], bands[0], nuts, dots]


def main(arguments: Sequence[str]) -> int:
    """Pictures of these methods, or of all."""
    reference = read_reference("regression")
    torch.set_num_threads(1)
    for card in arguments or card_names():
        method = method_of(card).name
        own, bayes = posterior(reference, method), posterior(reference, method, temperature=1.0)
        panels = [
            (f"defaults: temperature {own.temperature:.2g}", own),
            ("temperature 1: Bayes' rule", bayes),
        ]
        for theme in ("light", "dark"):
            draw(reference, method, panels, find_theme(theme), FOLDER / f"{card}-{theme}.svg")
        print(card, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
