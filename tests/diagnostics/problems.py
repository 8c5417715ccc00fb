"""Losses in weight space, and lifted networks at generic values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw


class Identity(nn.Module):
    """A network whose output is its own weight vector, so that the likelihood is a loss in weight space."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.expand(len(x), -1)


class LossAsLikelihood(nn.Module):
    """nll(outputs) = loss(weights): any loss of the weights in the place of a likelihood."""

    name = "loss"

    def __init__(self, loss: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        pass

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs)


NO_DATA = (torch.zeros(3, 1), torch.zeros(3))
"""Three examples that a loss in weight space does not look at."""


def convolutional() -> nn.Sequential:
    """A convolution, BatchNorm and a dense layer, for inputs (n, 2, 5, 5) and three classes."""
    return nn.Sequential(
        nn.Conv2d(2, 4, (2, 3)), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 4 * 3, 3)
    )  # fmt: skip


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


def shaken(model: bw.BayesianModule, seed: int = 5, by: float = 0.3) -> bw.BayesianModule:
    """The model with every parameter of q moved at random, so that nothing stands where it started."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


def lifted(posterior: Any = "mean_field", net: nn.Module | None = None, **settings: Any) -> bw.BayesianModule:
    """A lifted network in float64 away from its start."""
    torch.manual_seed(3)
    chosen = copy.deepcopy(net) if net is not None else small()
    return shaken(bw.bayesian(chosen.double(), posterior, **{"prior": {"name": "normal", "std": 0.8}, **settings}))
