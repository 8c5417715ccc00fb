"""The tensor in what a network returns, and modes that are restored."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jvp

from bayeswell.core.errors import NetworkError
from bayeswell.nn import bayesian, evaluation_mode, output_tensor, plain_attention
from networks import Transformer

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


def test_evaluation_mode_restores_each_module() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    net[1].eval()
    model = bayesian(net)
    modes = [module.training for module in model.modules()]
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes


def test_plain_attention_has_all_derivatives_and_ends_with_the_last_block() -> None:
    net, x = Transformer().eval(), torch.randn(5, 6, 8)
    flash = torch.backends.cuda.flash_sdp_enabled()
    with plain_attention():
        expected, tangent = jvp(net, (x,), (torch.ones_like(x),))
        inside = threading.Event()

        def other() -> None:
            with plain_attention():
                inside.set()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not torch.backends.cuda.flash_sdp_enabled()
    assert inside.is_set()
    assert torch.backends.cuda.flash_sdp_enabled() == flash
    assert torch.backends.mha.get_fastpath_enabled()
    torch.testing.assert_close(net(x), expected)
    step = 1e-3
    torch.testing.assert_close((net(x + step) - net(x - step)) / (2 * step), tangent, rtol=0.02, atol=2e-3)
