"""What came out of a sweep, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .space import Value

COMPLETE, FAILED, RUNNING = "complete", "failed", "running"


@dataclass(frozen=True)
class TrialRecord:
    """One trial. ``attempts`` is how often it was begun; ``message`` is what last went wrong, if anything did.

    ``place`` is where it ended, as machine:folder: there lies its run. ``error`` is the standard error of the value,
    over seeds, where the function gives one (an ``Estimate``).
    """

    number: int
    state: str
    settings: Mapping[str, Value]
    value: float | None
    seconds: float | None
    attempts: int
    message: str | None
    place: str | None = None
    error: float | None = None


@dataclass(frozen=True)
class SweepResult:
    """The trials of a sweep in the order in which they were begun; ``wanted`` is how many there are to be."""

    name: str
    wanted: int
    direction: str
    trials: tuple[TrialRecord, ...]

    def ranked(self) -> list[TrialRecord]:
        """The finished trials, best first; of equals the earlier."""
        sign = 1.0 if self.direction == "minimize" else -1.0
        done = [(sign * trial.value, trial.number, trial) for trial in self.trials if trial.value is not None]
        return [trial for _, _, trial in sorted(done, key=lambda entry: entry[:2])]

    @property
    def best(self) -> TrialRecord | None:
        """The best finished trial; None if none finished."""
        return next(iter(self.ranked()), None)

    def count(self, state: str) -> int:
        """How many trials are in this state."""
        return sum(trial.state == state for trial in self.trials)

    def success_rate(self, threshold: float) -> float | None:
        """Share of the trials that ended whose value is at least as good as this; those that failed are not.

        None if none has ended.
        """
        sign = 1.0 if self.direction == "minimize" else -1.0
        ended = self.count(COMPLETE) + self.count(FAILED)
        passed = sum(sign * trial.value <= sign * threshold for trial in self.trials if trial.value is not None)
        return passed / ended if ended else None

    @property
    def finished(self) -> bool:
        """Every trial that was asked for has ended, well or not."""
        return self.count(COMPLETE) + self.count(FAILED) >= self.wanted

    def record(self) -> dict[str, Any]:
        """As plain data, for machines."""
        best = self.best
        return {
            "name": self.name,
            "direction": self.direction,
            "wanted": self.wanted,
            "complete": self.count(COMPLETE),
            "failed": self.count(FAILED),
            "best": None if best is None else best.number,
            "trials": [{**asdict(trial), "settings": dict(trial.settings)} for trial in self.trials],
        }


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """As they are written."""
    return " ".join(f"{name}={in_words(value)}" for name, value in settings.items())


def in_words(value: Any) -> str:
    """A number in four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
