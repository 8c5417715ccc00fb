"""Snapshot ensembles: the networks at the ends of the learning rate's cycles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..errors import SettingError, require_count
from ..types import BANK, POINT, BayesianModel, Collector, CollectorPart, Posterior, PosteriorPart, Progress
from .bank import Bank


@dataclass(frozen=True)
class CycleEnds(CollectorPart):
    """One run, ``cycles`` cycles, and the network at the end of each as a member of an ensemble (Huang et al. 2017).

    With rate "cyclic" of as many cycles the rate starts anew after each end, so that training leaves the optimum it
    has come to and ends in another one: diversity for the price of one run. Cycles are of ceil(T / cycles) of T steps,
    as the rate's; the last may be shorter. ``keep`` takes the last so many (the paper's m of M; None: all): those
    before had less training.

    Each member keeps the network's other trained parameters and buffers as they were then, as in ``bank``; what a
    likelihood has learned of the noise is that of the end.
    """

    cycles: int = 5
    keep: int | None = None

    name: ClassVar[str] = "cycle_ends"
    paper: ClassVar[str] = "Huang et al. 2017"
    needs: ClassVar[frozenset[str]] = frozenset({POINT})
    provides: ClassVar[frozenset[str]] = frozenset({BANK})

    def __post_init__(self) -> None:
        require_count(self.name, "cycles", self.cycles)
        if self.keep is not None:
            require_count(self.name, "keep", self.keep)
            if self.keep > self.cycles:
                raise SettingError(f"cycle_ends: keep = {self.keep} of cycles = {self.cycles}; it must not be more")

    def build(self, model: BayesianModel, total_steps: int, batches: int) -> Collector:
        """The collector's state for one run."""
        require_count(self.name, "total_steps", total_steps)
        if self.cycles > total_steps:
            raise SettingError(f"cycle_ends: cycles = {self.cycles}, and only {total_steps} steps are planned")
        length = math.ceil(total_steps / self.cycles)
        ends = [min(first + length, total_steps) - 1 for first in range(0, total_steps, length)]
        kept = frozenset(ends if self.keep is None else ends[-self.keep :])
        # So many draws are planned as there are ends, whatever the number of steps.
        bank = Bank(burn_in=0, thinning=1, max_draws=len(kept)).build(model, len(kept), batches)
        return CycleEndsCollector(kept, bank)


class CycleEndsCollector:
    """A bank that is shown the ends of cycles alone."""

    def __init__(self, ends: frozenset[int], bank: Collector) -> None:
        self.ends, self._bank = ends, bank

    def observe(self, model: BayesianModel, at: Progress) -> None:
        """Keep the network after the last step of a cycle."""
        if at.step in self.ends:
            self._bank.observe(model, at)

    def result(self) -> tuple[PosteriorPart, Posterior]:
        """The networks, with equal weight."""
        return self._bank.result()

    def deterministic(self) -> Mapping[str, Tensor]:
        """Nothing to average: each network keeps its own."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return self._bank.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self._bank.load_state_dict(state)
