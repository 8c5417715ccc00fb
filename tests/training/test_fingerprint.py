"""Hashes of settings, and differences by name."""

from __future__ import annotations

import functools
import json

import numpy as np
import torch
from torch import Tensor, nn

from bayeswell.training.fingerprint import differences, fingerprint


class Net(nn.Module):
    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return self.slope * self.layer(x)


def test_equal_things_have_equal_fingerprints() -> None:
    net = Net()
    twin = Net()
    twin.load_state_dict(net.state_dict())
    settings = {"net": net, "x": torch.ones(3), "f": functools.partial(max, 1), "n": np.int64(3), "s": {"b", "a"}}
    again = {**settings, "net": twin, "x": torch.ones(3)}
    assert differences(fingerprint(settings), fingerprint(again)) == []
    assert json.loads(json.dumps(fingerprint(settings))) == fingerprint(settings)


def test_differences_are_named() -> None:
    net = Net()
    old = {"lr": 0.1, "net": net, "data": torch.zeros(4), "f": lambda x: x + 1}
    changed = Net(2.0)
    changed.load_state_dict(net.state_dict())
    new = {"lr": 0.2, "net": changed, "data": torch.tensor([0.0, 0, 0, 1]), "f": lambda x: x + 2}
    assert differences(fingerprint(old), fingerprint(new)) == [
        "data differs",
        "f.code differs",
        "lr was 0.1, is 0.2",
        "net.attributes.slope was 1.0, is 2.0",
    ]


def test_code_of_the_network_counts() -> None:
    class Other(Net):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.layer(x))

    Other.__qualname__ = "Net"
    net, other = Net(), Other()
    other.load_state_dict(net.state_dict())
    assert any("code" in line for line in differences(fingerprint(net), fingerprint(other)))


def test_closures_count() -> None:
    def adds(n: int) -> object:
        return lambda x: x + n

    assert differences(fingerprint(adds(1)), fingerprint(adds(2))) == ["values differs"]
    assert fingerprint(adds(1)) == fingerprint(adds(1))
