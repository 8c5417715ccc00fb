"""What a check says: nothing, why it was left out, or what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ..errors import BayeswellError

FAILURE_RATE = 1e-6
"""How often a statistical check refuses a right part, at most: over all the numbers that it looks at."""
ROUNDING = 1e-6
"""Relative tolerance of numbers that must agree but for rounding."""

Check = Callable[[Any], None]
"""One truth about the parts of an axis; its name and the first line of its docstring say which."""


@dataclass(frozen=True)
class Suite:
    """The checks of an axis: what makes a problem of the part and the hints, the checks on it, the hints' names."""

    make: Callable[..., Any]
    checks: tuple[Check, ...]
    hints: tuple[str, ...] = ()


class PartError(BayeswellError, AssertionError):
    """A part does not do what its axis asks for: which check, what was found, what was expected."""


class Omitted(Exception):
    """A check that does not apply, with the reason."""


@dataclass(frozen=True)
class Report:
    """What ``check_part`` did: the names of the checks that a part passed, and why others were left out."""

    axis: str
    part: str
    passed: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.axis} {self.part}: {len(self.passed)} checks passed: {', '.join(self.passed)}"]
        return "\n".join([*lines, *(f"  left out: {name}: {reason}" for name, reason in self.left_out.items())])


def require(fact: bool, found: str) -> None:
    """Refuse the part with this line unless the fact holds."""
    if not fact:
        raise PartError(found)


def require_close(what: str, found: Tensor, expected: Tensor, tolerance: float = ROUNDING) -> None:
    """Refuse numbers that differ by more than rounding, relative to the largest of them."""
    require(
        found.shape == expected.shape,
        f"{what} has shape {tuple(found.shape)}, expected {tuple(expected.shape)}",
    )
    if found.numel() == 0:
        return
    found, expected = found.detach().double(), expected.detach().double()
    scale = max(1e-30, float(expected.abs().max()))
    error = (found - expected).abs() / scale
    worst = int(error.nan_to_num(math.inf).flatten().argmax())
    require(
        bool((error <= tolerance).all()),
        f"{what} is {float(found.flatten()[worst]):.8g}, expected {float(expected.flatten()[worst]):.8g} "
        f"(to a relative {tolerance:g})",
    )


def require_same(what: str, found: Any, expected: Any) -> None:
    """Refuse states (tensors, plain data, mappings and sequences of them) that are not equal bit for bit."""
    where = difference(found, expected)
    require(where is None, f"{what}: {where}")


def difference(found: Any, expected: Any, place: str = "") -> str | None:
    """Where two states differ; None if they do not."""
    if isinstance(expected, Tensor):
        if not isinstance(found, Tensor) or (found.dtype, found.shape) != (expected.dtype, expected.shape):
            return f"{place or 'it'} is {_kind(found)}, expected {_kind(expected)}"
        if torch.equal(found, expected):
            return None
        return f"{place or 'it'} differs by up to {float((found.double() - expected.double()).abs().max()):.3g}"
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping) or set(found) != set(expected):
            return f"{place or 'it'} has other keys: {sorted(map(str, found))}, expected {sorted(map(str, expected))}"
        pairs = ((found[key], expected[key], f"{place}.{key}".lstrip(".")) for key in expected)
    elif isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return f"{place or 'it'} has another length"
        pairs = ((a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
    else:
        same = found == expected or (found != found and expected != expected)
        return None if same else f"{place or 'it'} is {found!r}, expected {expected!r}"
    return next((where for pair in pairs if (where := difference(*pair)) is not None), None)


def _kind(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def require_mean(what: str, samples: Tensor, expected: Tensor | float) -> None:
    """A z-test of the mean over the first axis, of every number: refuses right ones at ``FAILURE_RATE`` in all."""
    samples = samples.detach().double().flatten(1) if samples.dim() > 1 else samples.detach().double()[:, None]
    wanted = torch.as_tensor(expected).detach().double().flatten().expand(samples.shape[1])
    require(bool(samples.isfinite().all()), f"{what} holds NaN or inf")
    mean, error = samples.mean(0), samples.std(0) / math.sqrt(len(samples))
    error = error + 1e-9 * (wanted.abs() + mean.abs()) + 1e-14
    limit = NormalDist().inv_cdf(1 - FAILURE_RATE / (2 * samples.shape[1]))
    score = (mean - wanted).abs() / error
    worst = int(score.argmax())
    require(
        float(score[worst]) <= limit,
        f"{what} is {float(mean[worst]):.5g} on average, expected {float(wanted[worst]):.5g}: off by "
        f"{float(score[worst]):.1f} standard errors of {float(error[worst]):.2g}",
    )
