"""The records of a run, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochRecord:
    """The numbers of one epoch.

    Args:
        epoch: counts from 0.
        step: steps taken at its end.
        total: mean objective over the steps, nats per datum.
        nll: mean NLL over the training examples as they were met.
        kl: mean KL over the steps in nats; -log p(w) for a point estimate.
        seconds: wall time of the epoch.
        temperature: of the posterior that these steps aimed at.
        std_ratio: mean posterior std over prior std at the end.
        rates: learning rate of each parameter group.
        validation: scores on the validation data.
    """

    epoch: int
    step: int
    total: float
    nll: float
    kl: float
    seconds: float = 0.0
    temperature: float = 1.0
    std_ratio: float = 0.0
    rates: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """All numbers by name, such as ``validation.nll`` and ``lr.means``."""
        plain = {name: value for name, value in vars(self).items() if not isinstance(value, Mapping)}
        rates = {f"lr.{name}": rate for name, rate in self.rates.items()}
        return {**plain, **rates, **{f"validation.{name}": value for name, value in self.validation.items()}}


@dataclass
class History:
    """The epochs of one member so far; ``stopped`` says why training ended early."""

    epochs: list[EpochRecord] = field(default_factory=list)
    stopped: str = ""

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        return cls([EpochRecord(**record) for record in state["epochs"]], state["stopped"])


@dataclass
class Sums:
    """Running sums of an epoch; ``squares`` are squared errors of real targets."""

    total: float = 0.0
    kl: float = 0.0
    nll: float = 0.0
    examples: float = 0.0
    squares: float = 0.0
