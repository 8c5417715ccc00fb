"""Small runs for the tests of training."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from bayeswell.methods import find_method
from bayeswell.training.data import Columns, as_data
from bayeswell.training.devices import Devices, Engine
from bayeswell.training.members import Member, Plan, train_members

X = torch.randn(46, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] - X[:, 1] > 0).long()
METHODS = ["bbb", "map", "k-tied", "hwa", "swag", "sghmc", "f-bbb", "ivon", "mc-dropout", "vl", "csgld"]


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


def plan(method: str = "bbb", **settings: Any) -> Plan:
    given = {"data": as_data((X, Y), Columns(), batch_size=10), "epochs": 4, "seed": 0, **settings}
    changes = {**({"averaging": {"start": 0.4}} if method == "swag" else {}), **given.pop("changes", {})}
    net = given.pop("net", None) or network()
    return Plan(find_method(method).changed(**changes), net, "categorical", **given)


def run(one: Plan, workers: int = 1) -> list[Member]:
    return train_members(dataclasses.replace(one, workers=workers), Engine(Devices("cpu")))


def weights(member: Member) -> list[Tensor]:
    return [tensor for _, tensor in sorted(member.model.state_dict().items()) if tensor.numel()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
