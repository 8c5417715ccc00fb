"""Sequences of gradients, and an optimizer run along them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayeswell.core.protocols import OptimizerContext, OptimizerPart

SHAPES = ((2, 3), (4,), ())
Array = np.ndarray


def context(**settings: Any) -> OptimizerContext:
    return OptimizerContext(**{"dataset_size": 50, "total_steps": 300, "batches": 10, **settings})


def gradient_sequence(steps: int, spikes: Sequence[int] = (), seed: int = 4) -> list[list[Tensor]]:
    """Gradients of three parameters whose sizes differ by 10^7 between weights and drift along the run."""
    generator = torch.Generator().manual_seed(seed)
    scales = [10.0 ** (4 - 7 * torch.rand(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]
    sizes = [math.exp(math.sin(t / 25)) * (200.0 if t in spikes else 1.0) for t in range(steps)]
    return [
        [size * s * (0.4 + torch.randn(s.shape, generator=generator, dtype=torch.float64)) for s in scales]
        for size in sizes
    ]


def parameters(seed: int = 5) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]


def flat(tensors: Sequence[Tensor]) -> Array:
    return np.concatenate([tensor.detach().reshape(-1).numpy() for tensor in tensors])


def build(part: OptimizerPart, params: Sequence[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    group = {"name": "means", "params": list(params), "noise": True}
    return part.build([{**group, "lr": part.lr} if part.lr else group], context(**settings))


def run(
    optimizer: torch.optim.Optimizer, params: Sequence[nn.Parameter], gradients: Sequence[Sequence[Tensor]]
) -> Array:
    for row in gradients:
        for parameter, gradient in zip(params, row, strict=True):
            parameter.grad = gradient.to(parameter).clone()
        optimizer.step()
    return flat(params)
