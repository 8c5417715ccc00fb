"""What a run has learned of itself, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: means over it, learning rates at its end, and what was measured after it.

    ``total`` (nll + temperature kl / N) and ``kl`` (of one weight vector -log p(w), the negative log prior) are means
    over steps, ``nll`` and ``scores`` (accuracy, or rmse) over training examples as they were met, with the weights of
    the moment. ``std_ratio`` is posterior std / prior std at the end, ``temperature`` that of the posterior that these
    steps aimed at. ``validation`` has the scores on held-out data and, of posteriors with a density, ``expected_nll``,
    ``minus_elbo`` and ``minus_elbo_tempered`` there (``bound_per_datum``). ``test`` has the same of data that the
    record alone shows (``fit(trace=...)``): nothing is chosen by them. Where an average of weights is gathered,
    ``average.nll`` and kin in it are the averaged model's, from its first snapshot on.
    """

    epoch: int
    total: float
    nll: float
    kl: float
    std_ratio: float
    scores: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    test: Mapping[str, float] = field(default_factory=dict)

    def as_state(self) -> dict[str, Any]:
        """Plain data from which ``EpochRecord(**state)`` is the same again."""
        # Not dataclasses.asdict, which copies number by number: every checkpoint has the records of all epochs.
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def values(self) -> dict[str, float]:
        """All numbers by one name each, as they stand in a metrics file: ``validation.nll``, ``test.nll``, ..."""
        return {
            "total": self.total,
            "nll": self.nll,
            "kl": self.kl,
            **self.scores,
            "std_ratio": self.std_ratio,
            "temperature": self.temperature,
            **{f"lr.{name}": rate for name, rate in self.rates.items()},
            **{f"validation.{name}": value for name, value in self.validation.items()},
            **{f"test.{name}": value for name, value in self.test.items()},
        }


@dataclass
class History:
    """The records of all epochs so far."""

    epochs: list[EpochRecord] = field(default_factory=list)


Watcher = Callable[[EpochRecord], None]
