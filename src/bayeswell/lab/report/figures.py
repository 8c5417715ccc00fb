"""Figures of a report, from the records of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..comparison import Comparison
from ..measure import RunRecord
from ..plots import (
    plot_cost_quality,
    plot_coverage,
    plot_forest,
    plot_ood,
    plot_pit,
    plot_posterior,
    plot_regression_band,
    plot_reliability,
    plot_risk_coverage,
    plot_training,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_METHODS = 6
MOST_POSTERIORS = 4
MOST_BYTES = 2_200_000
"""Figures beyond this are left out, so that the page stays below 3 MB."""

Draw = Callable[[], "Figure"]


@dataclass(frozen=True)
class Picture:
    """One figure as SVG; ``label`` is read by screen readers."""

    title: str
    label: str
    svg: str


@dataclass(frozen=True)
class Section:
    """Figures below one heading; ``omitted`` counts those that had no room."""

    title: str
    pictures: tuple[Picture, ...]
    omitted: int = 0


def forest(comparison: Comparison) -> Picture:
    """Return the forest plot of ΔNLL."""
    label = "Paired difference in NLL of each method from the reference method, with 95 % intervals"
    return Picture("", label, to_svg(plot_forest(comparison), "forest", label))


def sections_of(comparison: Comparison) -> list[Section]:
    """Return training curves, calibration, OOD detection, posteriors and costs, first problems first."""
    room = MOST_BYTES
    sections = []
    for number, (title, planned) in enumerate(_plan(comparison).items()):
        pictures, omitted = [], 0
        for index, (problem, label, draw) in enumerate(planned):
            svg = to_svg(draw(), f"s{number}-{index}", f"{label}, {problem}") if room > 0 else ""
            if svg and len(svg.encode()) <= room:
                room -= len(svg.encode())
                pictures.append(Picture(problem, f"{label}, {problem}", svg))
            else:
                omitted += 1
        if planned:
            sections.append(Section(title, tuple(pictures), omitted))
    return sections


def _plan(comparison: Comparison) -> dict[str, list[tuple[str, str, Draw]]]:
    titles = ("Training curves", "Calibration", "Out-of-distribution inputs", "Posterior of the weights", "Cost")
    plan: dict[str, list[tuple[str, str, Draw]]] = {title: [] for title in titles}
    for problem in comparison.problems:
        firsts = first_records(comparison, problem)
        if not firsts:
            continue
        for title, label, draw in _of_problem(firsts):
            plan[title].append((problem, label, draw))
        if len(firsts) > 1:
            draw = _later(plot_cost_quality, comparison, problem=problem)
            plan["Cost"].append((problem, "NLL of each method against its training cost", draw))
    return {title: planned for title, planned in plan.items() if planned}


def _of_problem(firsts: dict[str, RunRecord]) -> Iterator[tuple[str, str, Draw]]:
    trained = {label: record for label, record in firsts.items() if record.history}
    if trained:
        yield "Training curves", "NLL by epoch", _later(plot_training, trained)
    for names, plot, label in (
        (("probabilities", "target"), plot_reliability, "Accuracy against confidence"),
        (("probabilities", "target"), plot_risk_coverage, "Error rate against the share of examples answered"),
        (("pit",), plot_pit, "Histogram of P(Y <= y)"),
        (("pit",), plot_coverage, "Coverage of central intervals"),
    ):
        usable = {key: record for key, record in firsts.items() if all(name in record.per_example for name in names)}
        if usable:
            yield "Calibration", label, _later(plot, usable)
    for label, record in firsts.items():
        if _is_line(record):
            draw = _later(plot_regression_band, {label: record})
            yield "Calibration", f"Prediction and its uncertainty, {label}", draw
    for label, record in firsts.items():
        if any(name.startswith("ood.") and name.endswith(".entropy") for name in record.per_example):
            draw = _later(plot_ood, record, title=f"OOD inputs, {label}")
            yield "Out-of-distribution inputs", f"Entropy of test and OOD inputs, {label}", draw
    wide = [(key, record) for key, record in firsts.items() if (record.posterior or {}).get("std_ratio")]
    for label, record in [pair for pair in wide if pair[1].posterior.get("layers")][:MOST_POSTERIORS]:
        draw = _later(plot_posterior, record, title=f"Posterior, {label}")
        yield "Posterior of the weights", f"Std and mean of each parameter, {label}", draw


def first_records(comparison: Comparison, problem: str) -> dict[str, RunRecord]:
    """Return the first run of each method, the reference method first, at most ``MOST_METHODS``."""
    methods = sorted(comparison.methods, key=lambda method: method != comparison.reference)
    found = {method: list(comparison.records(problem, method).values()) for method in methods}
    return dict([(method, own[0]) for method, own in found.items() if own][:MOST_METHODS])


def _is_line(record: RunRecord) -> bool:
    inputs, mean = record.per_example.get("inputs"), record.per_example.get("mean")
    return inputs is not None and mean is not None and inputs.shape[1:] == (1,) and mean.numel() == len(mean)


def _later(plot: Callable[..., Figure], *args: Any, **settings: Any) -> Draw:
    return lambda: plot(*args, **settings)
