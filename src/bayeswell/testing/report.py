"""Results of checks, and the comparisons that they are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from ..core.errors import BayeswellError

FAILURE_RATE = 1e-6
"""Rate at which a statistical check refuses a correct part, over all numbers that it compares."""
ROUNDING = 1e-6
"""Relative tolerance of numbers that must agree up to rounding."""


class PartError(BayeswellError, AssertionError):
    """A part fails a check; the message has the check, the value and what was expected."""


class Omitted(Exception):
    """A check does not apply; the message has the reason."""


@dataclass(frozen=True)
class Report:
    """The checks that a part passed, and the reasons why others were left out."""

    kind: str
    part: str
    passed: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.part}: {len(self.passed)} checks passed: {', '.join(self.passed)}"]
        return "\n".join([*lines, *(f"  left out: {name}: {reason}" for name, reason in self.left_out.items())])


def applies(fact: bool, reason: str) -> None:
    if not fact:
        raise Omitted(reason)


def require(fact: bool, message: str) -> None:
    if not fact:
        raise PartError(message)


def require_close(what: str, found: Tensor, expected: Tensor, tolerance: float = ROUNDING) -> None:
    require(found.shape == expected.shape, f"{what} has shape {tuple(found.shape)}, expected {tuple(expected.shape)}")
    first, second = found.detach().double().flatten(), expected.detach().double().flatten()
    error = ((first - second).abs() / second.abs().max().clamp_min(1e-30)).nan_to_num(math.inf)
    at = int(error.argmax())
    require(float(error[at]) <= tolerance, f"{what} is {float(first[at]):.8g}, expected {float(second[at]):.8g}")


def require_same(what: str, found: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        require(set(found) == set(expected), f"{what}: keys are {sorted(found)}, expected {sorted(expected)}")
        for key in expected:
            require_same(f"{what}: '{key}'", found[key], expected[key])
    elif isinstance(expected, Tensor):
        require(torch.equal(found, expected), f"{what} differs")
    else:
        require(found == expected, f"{what} is {found!r}, expected {expected!r}")


def require_mean(what: str, samples: Tensor, expected: Tensor | float) -> None:
    """Compare the mean over the first axis by a z-test of each number, together failing at ``FAILURE_RATE``."""
    values = samples.detach().double().reshape(len(samples), -1)
    wanted = torch.as_tensor(expected).detach().double().flatten().expand(values.shape[1])
    require(bool(values.isfinite().all()), f"{what} has NaN or infinite values")
    mean = values.mean(0)
    error = values.std(0) / math.sqrt(len(values)) + 1e-9 * (wanted.abs() + mean.abs()) + 1e-14
    limit = NormalDist().inv_cdf(1 - FAILURE_RATE / (2 * values.shape[1]))
    score = (mean - wanted).abs() / error
    worst = int(score.argmax())
    gap = f"{float(mean[worst]):.5g} on average, expected {float(wanted[worst]):.5g}"
    require(float(score[worst]) <= limit, f"{what} is {gap}: off by {float(score[worst]):.1f} standard errors")
