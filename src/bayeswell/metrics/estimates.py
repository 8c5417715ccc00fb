"""Numbers with their standard errors, which are of two kinds that must not be mixed up.

``over="examples"``: how far a number would move with other test examples; one run is enough. ``over="seeds"``: how far
with another seed of training; it needs several runs. Test examples do not depend on the seed, so there it is of
training alone, and neither error contains the other. Held-out examples are drawn by the seed unless the rule is "last":
the error of a sweep's trial (``--seeds``) is of other weights and of other held-out examples together.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, ParamSpec, Self

import torch
from torch import Tensor

from ..errors import DataError, SettingError
from .checks import require_numbers

Over = Literal["examples", "seeds"]
Given = ParamSpec("Given")
_SUFFIXES: Mapping[str, str] = {"examples": "_error", "seeds": "_error_over_seeds"}


class Estimate(float):
    """A number that knows its standard error, and what the error is over; None where one example or seed tells nothing.

    It is the number: it adds, compares and prints with a format as any float does.
    """

    error: float | None
    over: Over

    def __new__(cls, value: float, error: float | None, over: Over = "examples") -> Self:
        if over not in _SUFFIXES:
            raise SettingError(f"Estimate: over = {over!r}; allowed: examples, seeds")
        made = super().__new__(cls, value)
        made.error, made.over = error, over
        return made

    def __getnewargs__(self) -> tuple[float, float | None, Over]:  # type: ignore[override]
        return float(self), self.error, self.over

    @property
    def value(self) -> float:
        """The number alone."""
        return float(self)

    def __eq__(self, other: object) -> bool:
        """Another estimate is equal with its error, a plain number by value."""
        same = super().__eq__(other)
        return same and (self.error, self.over) == (other.error, other.over) if isinstance(other, Estimate) else same

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__

    def __repr__(self) -> str:
        return f"Estimate({float(self)!r}, {self.error!r}, over={self.over!r})"

    def __str__(self) -> str:
        spread = "unknown" if self.error is None else f"{self.error:.2g}"
        return f"{self:.4g} +- {spread} (over {self.over})"

    def as_record(self, name: str) -> dict[str, float]:
        """``<name>``, and ``<name>_error`` (over examples) or ``<name>_error_over_seeds`` unless it is unknown."""
        record = {name: float(self)}
        if self.error is not None:
            record[name + _SUFFIXES[self.over]] = self.error
        return record


def estimate_mean(values: Tensor) -> Estimate:
    """The mean of (S, ...) and its standard error std / sqrt(S) over the S examples.

    Values of one example (places of an image) are not independent, so they are averaged first: all examples have
    equally many, and the mean stays the same.
    """
    return mean_of(require_numbers("values", values))


def mean_of(values: Tensor) -> Estimate:
    """``estimate_mean`` of numbers that were looked at before."""
    return from_influence(float(values.mean()), values)


class MeanScore(Generic[Given]):
    """A score that is a mean over examples: called, it gives the mean with its standard error.

    ``of_examples`` takes the same and gives the number of each example, (S, ...).
    """

    def __init__(self, of_examples: Callable[Given, Tensor]) -> None:
        self.of_examples = of_examples
        functools.update_wrapper(self, of_examples)

    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Estimate:
        """The mean over examples."""
        return mean_of(self.of_examples(*given, **named))

    def __reduce__(self) -> str:
        return self.of_examples.__name__  # pickled by its name, as a function is


def from_influence(value: float, influence: Tensor) -> Estimate:
    """The delta method: the influence (S, ...) of each example on a number, whose mean is the number's first order.

    For a mean it is the values themselves. Constants make no difference.
    """
    rows = influence.double().reshape(len(influence), -1).mean(1)
    return Estimate(value, None if len(rows) < 2 else float(rows.std()) / math.sqrt(len(rows)))


def estimate_over_seeds(values: Sequence[float]) -> Estimate:
    """The mean of one number over runs that differ by their seed alone, and its standard error std / sqrt(runs)."""
    numbers = require_numbers("values over seeds", torch.tensor(list(values), dtype=torch.float64)).tolist()
    # Sums without rounding: runs that agree have an error of 0, not of 1e-17.
    error = None if len(numbers) < 2 else statistics.stdev(numbers) / math.sqrt(len(numbers))
    return Estimate(statistics.mean(numbers), error, over="seeds")


def over_seeds(records: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """``estimate_over_seeds`` of each number that all records have; their errors over examples are left out."""
    if not records:
        raise DataError("over_seeds: no records; it takes one for each seed, at least one")
    shared = [name for name in records[0] if all(name in record for record in records)]
    errors = {name + suffix for name in shared for suffix in _SUFFIXES.values()}
    return {name: estimate_over_seeds([record[name] for record in records]) for name in shared if name not in errors}


def flat_record(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Plain numbers for JSON: ``Estimate.as_record`` of each."""
    return {key: number for name, found in estimates.items() for key, number in found.as_record(name).items()}
