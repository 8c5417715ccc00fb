"""Numbers with standard errors, and the arrays that scores accept."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec

import numpy as np
import torch
from torch import Tensor

from ..core.errors import DataError

Array = Tensor | np.ndarray[Any, Any] | Sequence[Any]
Params = ParamSpec("Params")


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error ``se``; None where it is not known (one example, one seed).

    The error of a score is over test examples; that of ``statistics.mean_over_seeds`` is over training seeds. Neither
    contains the other.
    """

    value: float
    se: float | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if not self.se or not math.isfinite(self.se):
            return f"{self.value:.4g}"
        decimals = max(0, 1 - math.floor(math.log10(self.se)))
        return f"{self.value:.{decimals}f} ± {self.se:.{decimals}f}"

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(self.value, spec) if self.se is None else f"{self.value:{spec}} ± {self.se:{spec}}"

    def record(self, name: str) -> dict[str, float]:
        """Return ``{name: value, name_se: se}`` for JSON, without the error if it is not known."""
        return {name: self.value} if self.se is None else {name: self.value, f"{name}_se": self.se}


def flat_record(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    return {key: number for name, found in estimates.items() for key, number in found.record(name).items()}


def from_influence(value: float, influence: Tensor) -> Estimate:
    """Return an estimate with its standard error by the delta method.

    ``influence`` (S, ...) is what each example adds to the number, to first order; constants make no difference. For a
    mean it is the values themselves. Values of one example (positions of an image) are averaged first: they are not
    independent.
    """
    rows = influence.double().reshape(len(influence), -1).mean(1)
    return Estimate(value, None if len(rows) < 2 else float(rows.std()) / math.sqrt(len(rows)))


def estimate_mean(values: Array) -> Estimate:
    """Return the mean of (S, ...) and its standard error std / sqrt(S)."""
    numbers = as_numbers("values", values)
    return from_influence(float(numbers.mean()), numbers)


class MeanScore(Generic[Params]):
    """A score that is a mean over examples; ``by_example`` returns the (S, ...) numbers before the mean."""

    def __init__(self, by_example: Callable[Params, Tensor]) -> None:
        self.by_example = by_example
        functools.update_wrapper(self, by_example)

    def __call__(self, *args: Params.args, **kwargs: Params.kwargs) -> Estimate:
        return estimate_mean(self.by_example(*args, **kwargs))

    def __reduce__(self) -> str:
        return self.by_example.__name__  # pickled by name, as functions are


def as_tensor(name: str, values: Array) -> Tensor:
    """Return real numbers (S, ...), S at least 1, as a tensor on the CPU without history."""
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name}: dtype {array.dtype}; it must hold real numbers")
        values = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    if values.dim() == 0 or values.numel() == 0:
        raise DataError(f"{name}: shape {tuple(values.shape)} holds no examples; it must be (S, ...)")
    return values.detach().cpu()


def as_numbers(name: str, values: Array) -> Tensor:
    """Return the same in float64; all finite."""
    numbers = as_tensor(name, values).double()
    if not bool(torch.isfinite(numbers).all()):
        raise DataError(f"{name}: NaN or infinity; every number must be finite")
    return numbers


def matched(name: str, values: Array, other: str, reference: Array) -> tuple[Tensor, Tensor]:
    """Return both as float64 in the shape of the reference; (S,) and (S, 1) are interchangeable."""
    numbers, truth = as_numbers(name, values), as_numbers(other, reference)
    found, wanted = tuple(numbers.shape), tuple(truth.shape)
    if found != wanted and (*found, 1) != wanted and found != (*wanted, 1):
        raise DataError(f"{name}: shape {found}, but {other} have shape {wanted}")
    return numbers.reshape(wanted), truth
