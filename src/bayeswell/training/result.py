"""What a fit ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..methods import Method
from ..metrics.chains import ChainReport
from ..predictive.predictor import Predictor
from .records import History


@dataclass(frozen=True)
class Result(Predictor):
    """A trained network that predicts, saves and says what it is.

    ``chains`` tells, for samplers, whether the chains (one a member) agree in function space; ``stopped`` why training
    ended before its time, if it did. ``state`` is where training stood at its end (optimizer, averages, generators):
    ``fit(result, data, epochs=10)`` goes on from there.
    """

    method: Method
    histories: tuple[History, ...]
    seed: int
    chains: ChainReport | None = None
    stopped: str = ""
    state: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: near 0 the network is deterministic, whatever it is called."""
        return self.model.std_ratio()
