"""Inputs of the compiled formulas, their definitions, and how near the numbers must be."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.native import library
from bayeswell.posteriors.one_pass import GaussianPrior

ROOT = Path(__file__).resolve().parents[2]

needs_library = pytest.mark.skipif(not native.available(), reason="the compiled library is not there, or turned off")

SIZES = (1, 127, 128, 255, 256, 257, 16384, 16385, 40_000)

CONSTANT = torch.tensor(-2.31)
"""What a prior adds to the KL."""

KEY = 0xA4093822299F31D0

KEYS = torch.tensor([KEY - 2**64, -3, 1])

ROUNDING = 1e-6
"""About ten roundings of float32, of the sum of the absolute values of all terms."""

TINY = torch.finfo(torch.float32).tiny

each_form = pytest.mark.parametrize("form", [0, 1], ids=["from_log_std", "as_it_is"])

PRIORS = ("scalar", "vector", "stretches")

each_prior = pytest.mark.parametrize("prior", PRIORS)


def machine_runs() -> tuple[str, ...]:
    return library._BY_CAPABILITY.get(torch.backends.cpu.get_cpu_capability(), ("default",))


def numbers(size: int, seed: int, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    """Generic float32 numbers, from torch's own generator."""
    return _drawn(size, seed) * scale + offset


@cache
def _drawn(size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def states(form: int, size: int) -> Tensor:
    """log stds from -80 to 5, or stds from 1e-6 to 10."""
    share = torch.rand(size, generator=torch.Generator().manual_seed(5))
    return share * 85 - 80 if form == 0 else 10 ** (share * 7 - 6)


LENGTHS = (1, 1, 2, 0, 119, 3, 1, 7, 300, 16_000, 1, 5000)
"""Of stretches with one precision: many in one block, of one weight, of none, and across the borders of chunks."""


def precisions(prior: str, size: int) -> native.Precision:
    """1/1.7^2 for all weights, or one from 0.1 to 30 for each weight, or for each stretch."""
    if prior == "scalar":
        return native.Precision(torch.tensor([1 / 1.7**2]), torch.tensor([size]))
    ends = torch.tensor(LENGTHS * (1 + size // sum(LENGTHS))).cumsum(0)
    ends = torch.cat([ends[ends < size], torch.tensor([size])]) if prior == "stretches" else None
    count = size if ends is None else len(ends)
    return native.Precision(0.1 * 300 ** torch.rand(count, generator=torch.Generator().manual_seed(6)), ends)


def spread(precision: native.Precision) -> Tensor:
    """The precision of each weight."""
    if precision.ends is None:
        return precision.values
    return precision.values.repeat_interleave(precision.ends.diff(prepend=torch.zeros(1, dtype=torch.int64)))


def gaussian(prior: str, size: int, dtype: torch.dtype = torch.float32) -> GaussianPrior:
    """As a prior holds them."""
    precision = precisions(prior, size)
    return GaussianPrior(native.Precision(precision.values.to(dtype), precision.ends))


def the_same(value: float, size: int) -> native.Precision:
    """One precision for all weights."""
    return native.Precision(torch.tensor([value]), torch.tensor([size]))


def assert_near(found: Tensor, expected: Tensor, scale: Tensor, rounding: float = ROUNDING) -> None:
    """Within roundings of the terms that were added up; below the smallest normal number anything near 0 will do."""
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    errors = (found.double() - expected).abs() - rounding * scale - TINY
    assert float(errors.max()) <= 0, f"number {int(errors.argmax())} is {float(found.flatten()[errors.argmax()]):.9g}"
