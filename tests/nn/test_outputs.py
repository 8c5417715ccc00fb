"""The tensor in what a network returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import NetworkError
from bayeswell.nn import bayesian, output_tensor

X = torch.arange(6.0).view(2, 3)
HIDDEN = torch.zeros(2, 12)


@pytest.mark.parametrize("returned", [X, SimpleNamespace(logits=X), {"logits": X, "hidden": HIDDEN}, (X,), [X, None]])
def test_known_outputs(returned: Any) -> None:
    assert output_tensor(returned) is X


@pytest.mark.parametrize("returned", [(X, X), (HIDDEN, X), (X, (HIDDEN, HIDDEN)), {"y": X}, None, 3.0, ()])
def test_ambiguous_outputs_are_refused(returned: Any) -> None:
    with pytest.raises(NetworkError, match="give `output`"):
        output_tensor(returned)


def test_hook_chooses_the_tensor() -> None:
    assert output_tensor((HIDDEN, X), lambda returned: returned[1]) is X
    with pytest.raises(NetworkError, match="must return a tensor, got a tuple"):
        output_tensor((HIDDEN, X), lambda returned: returned)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.body(x))
        return hidden, self.head(hidden)


def test_models_apply_the_hook() -> None:
    net, x = Two(), torch.randn(5, 4)
    model, hooked = bayesian(net).eval(), bayesian(net, output=lambda returned: returned[1]).eval()
    weights = model.layout.unflatten(model.posterior.mean)
    torch.testing.assert_close(hooked.call(weights, x), net(x)[1])
    torch.testing.assert_close(hooked(x), net(x)[1])
    assert isinstance(model(x), tuple)
    with pytest.raises(NetworkError, match="tuple of"):
        model.call(weights, x)
