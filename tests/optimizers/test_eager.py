"""torch's optimizers without its compiler: the same numbers to the bit, and a short run that imports no compiler."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from bayeswell import eager

SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.03, "momentum": 0.7, "nesterov": True, "weight_decay": 0.02},
    "Adam": {"lr": 0.03, "betas": (0.8, 0.95), "amsgrad": True, "fused": True},
    "AdamW": {"lr": 0.03, "weight_decay": 0.1},
    "RAdam": {"lr": 0.03, "betas": (0.8, 0.9)},
}


def trained(kind: Any, settings: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    torch.manual_seed(1)
    net = nn.Linear(3, 2)
    x, y = torch.randn(20, 3), torch.randn(20, 2)
    groups = [{"params": [net.weight]}, {"params": [net.bias], "lr": 0.2}]
    optimizer = kind(groups, **settings)
    for step in range(12):
        optimizer.zero_grad(set_to_none=True)
        (net(x) - y).square().mean().backward()
        optimizer.step()
        if step == 5:  # as a run that goes on does
            state, optimizer = optimizer.state_dict(), kind(groups, **settings)
            optimizer.load_state_dict(state)
    return dict(net.state_dict()), optimizer.state_dict()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_numbers_are_torchs_to_the_bit(name: str) -> None:
    own, own_state = trained(getattr(eager, name), SETTINGS[name])
    torchs, torchs_state = trained(getattr(torch.optim, name), SETTINGS[name])
    assert all(torch.equal(value, torchs[key]) for key, value in own.items())
    assert own_state["param_groups"] == torchs_state["param_groups"]
    for index, state in own_state["state"].items():
        assert all(torch.equal(torch.as_tensor(value), torch.as_tensor(torchs_state["state"][index][key]))
                   for key, value in state.items())  # fmt: skip


def test_whoever_has_the_compiler_gets_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", torch)
    assert eager.eager(torch.optim.Adam) is torch.optim.Adam
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    assert eager.eager(torch.optim.Adam) is eager.Adam


def test_a_step_that_is_differentiated_keeps_its_graph() -> None:
    weight = torch.ones(2, requires_grad=True)
    moved = weight.clone()
    optimizer = eager.SGD([moved], lr=0.5, differentiable=True)
    moved.grad = (weight * torch.tensor([2.0, 3.0])).clone()
    optimizer.step()
    (gradient,) = torch.autograd.grad(moved.sum(), weight)
    torch.testing.assert_close(gradient, torch.tensor([1 - 0.5 * 2, 1 - 0.5 * 3]))


def test_a_short_run_imports_no_compiler() -> None:
    code = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, bayeswell as bw
x = torch.randn(40, 3)
net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
for method in ("bbb", "map", "sgld", "swag", "auto"):
    bw.fit(net, (x, (x[:, 0] > 0).long()), method, epochs=8, progress=False).evaluate(x, (x[:, 0] > 0).long())
print(sorted({name for name in ("torch._dynamo", "sympy", "lightning_fabric", "sklearn") if name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
