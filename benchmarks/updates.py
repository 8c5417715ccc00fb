"""Optimizer updates alone, on the same parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
from torch import nn

import bayeswell as bw

from .nets import NETS
from .timing import Case, Step

FUSED_ADAM = "Adam, fused"
PLACES = ("lenet", "mlp", "flat")
_FLAT = 1_000_000
_SETS = 4
"""Sets of gradients that take turns."""

_MAKE: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    FUSED_ADAM: lambda parameters: torch.optim.Adam(parameters, 1e-3, fused=True),
    "Adam, fused, again": lambda parameters: torch.optim.Adam(parameters, 1e-3, fused=True),
    "Adam, torch's default": lambda parameters: torch.optim.Adam(parameters, 1e-3),
    "adabound": lambda parameters: _ours("adabound", parameters),
    "amsbound": lambda parameters: _ours("amsbound", parameters),
    "yellowfin": lambda parameters: _ours("yellowfin", parameters),
}


def cases(place: str) -> list[Case]:
    """One for each optimizer."""
    return [Case(name, lambda make=make: _step(place, make), calls=20) for name, make in _MAKE.items()]


def _ours(name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    part: Any = bw.OPTIMIZERS.resolve(name)
    made: torch.optim.Optimizer = part.build([{"params": parameters, "lr": part.lr}])
    return made


def _parameters(place: str) -> list[nn.Parameter]:
    if place == "flat":
        return [nn.Parameter(torch.randn(_FLAT, generator=torch.Generator().manual_seed(0)))]
    return list(NETS[place].build().parameters())


def _step(place: str, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> Step:
    parameters = _parameters(place)
    generator = torch.Generator().manual_seed(1)
    sets = cycle([[0.01 * torch.randn(p.shape, generator=generator) for p in parameters] for _ in range(_SETS)])
    optimizer = make(parameters)

    def step() -> None:
        for parameter, gradient in zip(parameters, next(sets), strict=True):
            parameter.grad = gradient
        optimizer.step()

    return step
