"""Learning rates that fall when a metric stops improving, one for each group with its own metric."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import DataError, SettingError, require_positive
from .checks import require_at_least_zero, require_below_one
from .groups import MEANS, STDS


@dataclass(frozen=True)
class PlateauState:
    """Where one plateau stands: its factor, the best value so far, and the epochs since that improved."""

    factor: float = 1.0
    best: float | None = None
    waited: int = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_state_dict(cls, saved: Mapping[str, Any]) -> PlateauState:
        """The inverse of ``state_dict``."""
        return cls(**saved)


@dataclass(frozen=True)
class Plateau:
    """The rate is multiplied by ``factor`` once ``metric`` has not improved for more than ``patience`` epochs.

    A lower value is better; it has improved where value < best - threshold |best| (as torch's ReduceLROnPlateau
    for positive values; torch's best (1 - threshold) would call a slightly worse negative value an improvement).
    After a fall the count begins again; the best value stays. The factor never goes below ``minimum``.

    State is explicit: ``state = plateau.update(state, value)`` once an epoch, beginning with ``PlateauState()``. Epochs
    in which the group rests (``Alternating``) say nothing about its rate: leave them out, as ``fit`` does.
    """

    metric: str
    factor: float = 0.1
    patience: int = 1
    threshold: float = 1e-4
    minimum: float = 0.0

    name: ClassVar[str] = "plateau"
    paper: ClassVar[str] = "Book 2020, sections 3.3 and 5.4"

    def __post_init__(self) -> None:
        require_positive(self.name, "factor", self.factor)
        require_below_one(self.name, "factor", self.factor)
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 0:
            raise SettingError(f"plateau: patience = {self.patience!r}; it must be a whole number of at least 0")
        require_at_least_zero(self.name, "threshold", self.threshold)
        require_at_least_zero(self.name, "minimum", self.minimum)

    def update(self, state: PlateauState, value: float) -> PlateauState:
        """The state after an epoch that ended with this value of the metric."""
        if not math.isfinite(value):
            raise DataError(f"plateau: the metric '{self.metric}' is {value}; it must be finite")
        if state.best is None or value < state.best - self.threshold * abs(state.best):
            return PlateauState(state.factor, value, 0)
        if state.waited < self.patience:
            return PlateauState(state.factor, state.best, state.waited + 1)
        fallen = max(state.factor * self.factor, min(self.minimum, state.factor))
        return PlateauState(fallen, state.best, 0)


def means_by_nll_stds_by_kl(factor: float = 0.1, patience: int = 1) -> dict[str, Plateau]:
    """The thesis' choice (figure 5.11): the rate of the means listens to the NLL, that of the stds to the KL."""
    return {MEANS: Plateau("nll", factor, patience), STDS: Plateau("kl", factor, patience)}
