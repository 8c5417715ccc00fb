"""Sequences of gradients, and an optimizer run along them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayeswell.types import Progress

STEPS = 300

SHAPES = ((2, 3), (4,), ())

# Torch optimizers that need nothing but groups of parameters.
NAMES = ["sgd", "adam", "amsgrad", "adamw", "radam", "adabound", "amsbound", "yellowfin"]

Numbers = list[float]


def gradient_sequence(steps: int, spikes: Sequence[int] = (), seed: int = 4) -> list[list[Tensor]]:
    """Gradients of three parameters whose sizes differ by 10^7 between weights and drift along the run."""
    generator = torch.Generator().manual_seed(seed)
    scales = [10.0 ** (4 - 7 * torch.rand(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]
    return [
        [
            scale * (0.4 + torch.randn(shape, generator=generator, dtype=torch.float64))
            * math.exp(math.sin(t / 25)) * (200.0 if t in spikes else 1.0)
            for shape, scale in zip(SHAPES, scales, strict=True)
        ]
        for t in range(steps)
    ]  # fmt: skip


def parameters(seed: int = 5) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]


def numbers(tensors: Sequence[Tensor]) -> Numbers:
    return [float(value) for tensor in tensors for value in tensor.detach().reshape(-1)]


def assert_same(found: Sequence[float], expected: Sequence[float], tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(map(abs, expected)))


def run(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], gradients: list[list[Tensor]]) -> Numbers:
    for step in gradients:
        for parameter, gradient in zip(params, step, strict=True):
            parameter.grad = gradient.to(parameter).clone()
        optimizer.step()
    return numbers(params)


def assert_equal_states(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for key, state in expected["state"].items():
        assert state.keys() == found["state"][key].keys()
        for name, value in state.items():
            other = found["state"][key][name]
            assert torch.equal(other, value) if isinstance(value, Tensor) else other == value, (key, name)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def factors(rate: Any, total: int, steps: int | None = None) -> list[float]:
    """Of every step of a run with epochs of 8 batches."""
    return [rate.factor(Progress(step, total, step % 8, 8)) for step in range(total if steps is None else steps)]
