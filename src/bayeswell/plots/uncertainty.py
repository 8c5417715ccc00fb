"""What uncertainty is good for: risk and coverage, inputs from outside the distribution, entropies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import require_count
from .canvas import Axes, Panel, literal, marks_if_few, open_panel, size_for
from .reading import Fields, Numbers, as_runs, finite, listed, number_text
from .theme import ThemeName

_SCORES: Mapping[str, str] = {
    "entropy": "predictive entropy (nats)",
    "max_probability": "1 - largest probability",
    "mutual_information": "mutual information (nats)",
}


def plot_risk_coverage(runs: Mapping[str, Any], *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """The mean loss of the surest examples against the share of examples they are (``metrics.risk_coverage``)."""
    labels = ("coverage (share of examples answered)", "risk (mean loss of those)")
    panel = open_panel(ax, theme, "Risk and coverage", *labels, size_for(runs, " (AURC 0.0123)"))
    axes, chosen = panel
    entries, seen = [], []
    for index, (label, curve) in enumerate(as_runs("plot_risk_coverage", runs)):
        read = _curve(curve, label)
        coverage, risk = read.numbers("coverage"), read.numbers("risk", like="coverage")
        line = axes.plot(coverage, risk, **chosen.line(index), **marks_if_few(len(finite(risk))))[0]
        aurc = read.number("aurc")
        seen.append(risk)
        entries.append((line, label if aurc is None else f"{label} (AURC {number_text(aurc)})"))
    axes.set_xlim(0, 1)
    if panel.has_data(*seen):
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if axes.get_ylim()[0] < -0.05 else 0.0)
        panel.legend(entries)
    return axes


def describe_risk_coverage(runs: Mapping[str, Any]) -> str:
    """Risk at half and at full coverage."""
    clauses = []
    for label, curve in as_runs("plot_risk_coverage", runs):
        read = _curve(curve, label)
        coverage, risk = read.numbers("coverage"), read.numbers("risk", like="coverage")
        known = np.isfinite(coverage) & np.isfinite(risk)
        if not known.any():
            clauses.append(f"{label}: no data")
            continue
        half = int(np.argmin(np.abs(coverage[known] - 0.5)))
        aurc = read.number("aurc")
        clauses.append(
            f"{label}: {'' if aurc is None else f'AURC {number_text(aurc)}, '}risk {number_text(risk[known][half])} at "
            f"coverage {number_text(coverage[known][half])}, {number_text(risk[known][-1])} at "
            f"{number_text(coverage[known][-1])}"
        )
    return f"Risk against coverage; {listed(clauses)}." if clauses else "Risk against coverage without data."


def plot_ood_scores(record: Any, *, bins: int = 30, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Histograms of a score of uncertainty for ordinary inputs and for others, each as shares of its own number."""
    require_count("plot_ood_scores", "bins", bins)
    read, name, groups = _scores(record)
    auroc = read.number("auroc")
    title = "Inside and outside" + (f": AUROC {number_text(auroc)}" if auroc is not None else "")
    panel = open_panel(ax, theme, title, literal(name), "share of inputs")
    panel.legend(_histograms(panel, groups, bins))
    return panel.axes


def describe_ood_scores(record: Any) -> str:
    """Means of both sides and the AUROC."""
    read, name, groups = _scores(record)
    sides = [f"{len(values)} {label} inputs with mean {number_text(_mean(values))}" for label, values in groups]
    auroc = read.number("auroc")
    return f"Histograms of {name}: {', '.join(sides)}{'' if auroc is None else f'; AUROC {number_text(auroc)}'}."


def plot_entropy(record: Any, *, bins: int = 30, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Histograms of predictive entropy where the prediction is right, where wrong, and outside the distribution."""
    require_count("plot_entropy", "bins", bins)
    read, groups = _entropies(record)
    panel = open_panel(ax, theme, "Entropy of predictions", _SCORES["entropy"], "share of each group")
    axes, chosen = panel
    classes = read.number("classes")
    top = math.log(classes) if classes is not None and classes > 1 else None
    shown = [(f"{name} ({len(values)})", values) for name, values in groups]
    entries = _histograms(panel, shown, bins, top)
    if top is not None:
        axes.axvline(top, color=chosen.muted, linestyle=(0, (4, 3)), linewidth=1)
        place = axes.get_xaxis_transform()
        note = f"log {classes:.0f} "
        panel.text(top, 0.98, note, ha="right", va="top", transform=place, color=chosen.muted)
    panel.legend(entries, loc="upper center")
    return axes


def describe_entropy(record: Any) -> str:
    """How many there are of each, and their mean."""
    _, groups = _entropies(record)
    parts = [f"{len(values)} {name} with mean {number_text(_mean(values))}" for name, values in groups]
    return f"Histograms of predictive entropy in nats: {', '.join(parts)}."


def _curve(curve: Any, label: str) -> Fields:
    return Fields("plot_risk_coverage", curve, ("coverage", "risk"), of=f"the record of '{label}'")


def _entropies(record: Any) -> tuple[Fields, list[tuple[str, Numbers]]]:
    read = Fields("plot_entropy", record, ("correct", "wrong"))
    names = [name for name in ("correct", "wrong", "ood") if read.has(name)]
    shown = {"correct": "right", "wrong": "wrong", "ood": "out of distribution"}
    return read, [(shown[name], finite(read.numbers(name))) for name in names]


def _scores(record: Any) -> tuple[Fields, str, list[tuple[str, Numbers]]]:
    """The record, what its score is, and the scores of both sides with their labels."""
    read = Fields("plot_ood_scores", record, ("inside", "outside"))
    score = read.text("score", "entropy")
    groups = [
        (read.text(f"{side}_label", label), finite(read.numbers(side)))
        for side, label in (("inside", "in distribution"), ("outside", "out of distribution"))
    ]
    return read, _SCORES.get(score, score), groups


def _mean(values: Numbers) -> float | None:
    return float(values.mean()) if len(values) else None


def _histograms(
    panel: Panel, groups: Sequence[tuple[str, Numbers]], bins: int, top: float | None = None
) -> list[tuple[Any, str]]:
    """Filled steps over common bins; the share of each group in each bin."""
    axes, theme = panel
    everything = np.concatenate([values for _, values in groups])
    if not panel.has_data(everything):
        return []
    low, high = min(0.0, float(everything.min())), max(float(everything.max()), top or 0.0)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    entries = []
    for index, (label, values) in enumerate(groups):
        counts = np.histogram(values, edges)[0]
        shares = counts / max(1, len(values))
        filled = axes.stairs(shares, edges, fill=True, color=theme.colour(index), alpha=0.35)
        axes.stairs(shares, edges, color=theme.colour(index), linewidth=1.5)
        entries.append((filled, label if len(values) else f"{label} (none)"))
    return entries
