"""Compiled steps of samplers and optimizers against their equations in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from native.formulas import ROUNDING, SIZES, needs_library
from native.steps import STEPS, Result, step_vectors


@needs_library
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.usefixtures("each_library")
def test_steps(name: str) -> None:
    """What a step changes is as its equations say, and it changes nothing else."""
    for size in SIZES:
        vectors = step_vectors(size)
        doubles = {key: vector.double() for key, vector in vectors.items()}
        expected = STEPS[name].equations(doubles)
        found: Result = {**vectors, **(STEPS[name].run(vectors) or {})}
        for key, value in {**doubles, **expected}.items():
            if isinstance(value, Tensor) and key not in expected:
                assert torch.equal(found[key].double(), value), f"{key} was changed"
            elif isinstance(value, Tensor):
                tolerance = 2 * ROUNDING * float(value.abs().max())
                torch.testing.assert_close(found[key].double(), value, rtol=2 * ROUNDING, atol=tolerance)
            else:
                assert found[key] == pytest.approx(value, rel=2 * ROUNDING, abs=1e-6 * size)
