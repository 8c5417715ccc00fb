"""Networks to lift, their estimators, and one training step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from nets import (
    is_legal,
)

ESTIMATORS = [name for name in bw.ESTIMATORS if is_legal({"name": "mean_field"}, {"name": name})]

LABELS = torch.tensor([0, 2, 1, 1, 0])

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def train(model: bw.BayesianModule, inputs: Any, steps: int = 2) -> None:
    """Some steps of Adam; every gradient must be there and finite."""
    elbo = bw.ELBO("categorical", 23)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        elbo(model, inputs, LABELS).total.backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, name
                assert bool(parameter.grad.isfinite().all()), name
        optimizer.step()


def with_tensors(net: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """A copy of the network that holds these values."""
    filled = copy.deepcopy(net)
    with torch.no_grad():
        for name, parameter in filled.named_parameters(remove_duplicate=False):
            if name in tensors:
                parameter.copy_(tensors[name])
    return filled


def reasons(model: bw.BayesianModule) -> dict[str, str]:
    return {row.name: row.note for row in model.describe().rows if row.posterior == "deterministic"}
