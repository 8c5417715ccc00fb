"""Learning rates that fall when a metric stops improving, for each group with its own metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..core.errors import DataError, SettingError, check_integer, check_number


@dataclass(frozen=True)
class PlateauState:
    """Factor on the learning rate, best value so far, and epochs since it improved."""

    factor: float = 1.0
    best: float | None = None
    waited: int = 0


@dataclass(frozen=True)
class Plateau:
    """Multiply the learning rate by ``factor`` once ``metric`` has not improved for more than ``patience`` epochs.

    Lower values are better, and an improvement is value < best - threshold |best|. (The best (1 - threshold) of torch
    would accept a slightly worse negative value.) After a fall the count begins again and the best value stays.

    Args:
        metric: a key of the metrics of an epoch: "nll", "kl", "total", or "validation.nll" and the like.
        factor: from 0 to below 1.
        patience: epochs.
        threshold: relative improvement that counts.
        minimum: the lowest factor on the learning rate.
    """

    metric: str = "nll"
    factor: float = 0.1
    patience: int = 1
    threshold: float = 1e-4
    minimum: float = 0.0

    name: ClassVar[str] = "plateau"
    paper: ClassVar[str] = "Book 2020, sections 3.3 and 5.4"

    def __post_init__(self) -> None:
        if check_number(self.name, "factor", self.factor, 0, 1, above=True) == 1:
            raise SettingError("plateau: `factor` must be below 1, got 1")
        check_integer(self.name, "patience", self.patience, 0)
        check_number(self.name, "threshold", self.threshold, 0)
        check_number(self.name, "minimum", self.minimum, 0)

    def update(self, state: PlateauState, value: float) -> PlateauState:
        """Return the state after an epoch with this value of the metric."""
        if not math.isfinite(value):
            raise DataError(f"plateau: the metric '{self.metric}' must be finite, got {value}")
        if state.best is None or value < state.best - self.threshold * abs(state.best):
            return PlateauState(state.factor, value, 0)
        if state.waited < self.patience:
            return PlateauState(state.factor, state.best, state.waited + 1)
        lowered = max(state.factor * self.factor, min(self.minimum, state.factor))
        return PlateauState(lowered, state.best, 0)


def means_by_nll_stds_by_kl(factor: float = 0.1, patience: int = 1) -> dict[str, Plateau]:
    """Return the plateaus of the thesis (figure 5.11): means follow the NLL, stds the KL."""
    return {"means": Plateau("nll", factor, patience), "stds": Plateau("kl", factor, patience)}
