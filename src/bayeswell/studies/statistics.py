"""Means over seeds and differences in pairs: what tables, plots and claims of a study are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..metrics.estimates import Estimate, estimate_over_seeds
from .cells import Cell
from .results import Line, lines_of

_HIGHER = ("accuracy", "auroc", "aupr", "r2")


def higher_is_better(score: str) -> bool:
    """Which way a score is better, by its last name: ``validation.accuracy``, ``accuracy.last``."""
    words = [word for word in score.split(".") if word not in ("first", "half", "last", "validation", "train", "ood")]
    return any(word == name or word.endswith(f"_{name}") for word in words for name in _HIGHER)


def values_of(lines: Iterable[Line], scale: str, cell: Cell, score: str) -> dict[int, float]:
    """A score of a cell by seed."""
    return {seed: line.scores[score] for seed, line in lines_of(lines, scale, cell).items() if score in line.scores}


def over_seeds(values: Mapping[int, float]) -> Estimate | None:
    """Mean and standard error over seeds; None without runs, its error None for one."""
    return estimate_over_seeds(list(values.values())) if values else None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate | None:
    """The mean of first - second at the same seed, and its standard error std(d) / sqrt(n)."""
    shared = sorted(first.keys() & second.keys())
    return estimate_over_seeds([first[seed] - second[seed] for seed in shared]) if shared else None


def ratios(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate | None:
    """The mean over seeds of first / second, and its standard error."""
    shared = sorted(seed for seed in first.keys() & second.keys() if second[seed])
    return estimate_over_seeds([first[seed] / second[seed] for seed in shared]) if shared else None


def slope(points: Sequence[Mapping[int, float]]) -> Estimate | None:
    """The least-squares slope of a score over the number of its point, 0, 1, 2, ...: mean and error over seeds."""
    shared = sorted(set.intersection(*(set(point) for point in points))) if points else []
    if not shared or len(points) < 2:
        return None
    centre = (len(points) - 1) / 2
    squares = math.fsum((index - centre) ** 2 for index in range(len(points)))
    each = [math.fsum((i - centre) * point[seed] for i, point in enumerate(points)) / squares for seed in shared]
    return estimate_over_seeds(each)


def chosen(lines: Sequence[Line], scale: str, cells: Sequence[Cell], score: str) -> Cell | None:
    """The cell with the best mean of a score (one on validation data), among those that have it."""
    found = [(over_seeds(values_of(lines, scale, cell, score)), cell) for cell in cells]
    known = [(mean.value, cell) for mean, cell in found if mean is not None]
    if not known:
        return None
    sign = -1 if higher_is_better(score) else 1
    return min(known, key=lambda pair: sign * pair[0])[1]
