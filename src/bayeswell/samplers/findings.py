"""What a sampler that fits itself has found: plain numbers, which are saved with it."""

from __future__ import annotations

import dataclasses
import math
import warnings
from dataclasses import dataclass

import torch

from ..errors import BayeswellWarning

_MUCH_TOO_WIDE = 1.3


@dataclass
class Findings:
    """Rate, momentum and what they were made from.

    ``curvature`` is the largest met, ``heat`` the temperature that minibatch noise is worth at most, ``limit`` the
    objective above which the chain has left the region it began in, ``start`` and ``now`` the objective of the first
    batches and a moving average of it, ``asked`` the temperature that was asked for (-1: none was).
    """

    rate: float = 0.0
    momentum: float = 0.0
    curvature: float = 0.0
    heat: float = 0.0
    asked: float = -1.0
    thermal: float = 0.0
    limit: float = math.inf
    halvings: int = 0
    start: float = 0.0
    now: float = 0.0
    seen: int = 0
    totals: list[float] = dataclasses.field(default_factory=list)

    def count(self, total: float, memory: int) -> None:
        """Take note of the objective of a batch."""
        self.seen += 1
        if self.seen <= memory:
            self.start += (total - self.start) / self.seen
        if math.isfinite(total):
            self.now += (total - self.now) / min(self.seen, memory)

    def begin_chain(self, thermal: float) -> None:
        """At temperature T a chain of P weights stands about ``thermal`` = T P / (2 N) above the mode."""
        self.thermal, self.curvature = thermal, 0.0
        level = torch.tensor(self.totals or [self.now], dtype=torch.float64)
        spread = float(level.std()) if len(level) > 1 else abs(float(level[0]))
        self.limit = float(level.mean()) + 5 * (1 + thermal) + 10 * spread

    def warn_of_heat(self, name: str, temperature: float) -> None:
        """Say if minibatch noise, which comes on top of the injected one, may make draws much too wide.

        Not of a temperature that the run has found by itself: nobody has asked for just that width.
        """
        if temperature != self.asked:
            return
        width = math.sqrt(1 + self.heat / temperature) if temperature > 0 else 1.0
        if width > _MUCH_TOO_WIDE:
            _warn(
                f"{name}: minibatch noise adds up to {self.heat:.2g} to the temperature of {temperature:g}, so that "
                f"weights may spread up to {width:.2g} times too widely; a batch_size "
                f"{math.ceil(self.heat / temperature / (_MUCH_TOO_WIDE**2 - 1))} times as large would cure it"
            )

    def warn_if_nothing_was_learned(self, name: str) -> None:
        """At the end: the objective is no lower than at the start, or far above what the temperature explains."""
        if not self.now < self.start + 3 * self.thermal:
            _warn(
                f"{name}: the objective began at {self.start:.3g} and ended at {self.now:.3g}: nothing was learned; "
                "look at the scale of the data, or train for more epochs"
            )


def _warn(note: str) -> None:
    warnings.warn(note, BayeswellWarning, stacklevel=7)
