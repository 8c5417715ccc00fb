"""Formulas that accelerators get as one kernel are the same; tried on the CPU, which is told to be one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import utils as dynamo

import bayeswell as bw
from bayeswell import native
from bayeswell.errors import BayeswellWarning
from bayeswell.native import fused
from nets import lift, randomise


def step(posterior: dict[str, Any], prior: Any) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = lift(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), posterior, prior=prior)
    randomise(model)
    inputs, targets = torch.randn(6, 5, generator=bw.make_generator(1)), torch.arange(6) % 3
    with native.disabled():
        terms = bw.ELBO("categorical", 40, temperature=0.6)(model, inputs, targets, generator=bw.make_generator(2))
        terms.total.backward()
    return [terms.total.detach(), terms.kl, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("prior", ["kaiming", {"name": "normal", "std": 0.7}], ids=["by site", "scalar"])
@pytest.mark.parametrize("parameter", ["log_std", "rho"])
def test_a_step_is_the_same(parameter: str, prior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = {"name": "mean_field", "parameter": parameter, "initial_std": 0.05}
    expected = step(posterior, prior)
    torch._dynamo.reset()
    dynamo.counters.clear()
    monkeypatch.setattr(fused, "FUSED_DEVICES", {"cpu"})
    monkeypatch.setattr(fused, "BACKEND", "aot_eager")
    for found, wanted in zip(step(posterior, prior), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
    assert dynamo.counters["stats"]["unique_graphs"] == 2, "the draw with its divergence, and their slopes"
    torch._dynamo.reset()


def test_where_torch_cannot_compile_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("Cannot find a working triton installation")

    monkeypatch.setattr(fused, "FUSED_DEVICES", {"cpu"})
    monkeypatch.setattr(fused, "BACKEND", missing)
    formula = fused.fused(lambda first, second: first * second + 1)
    with torch.no_grad():
        with pytest.warns(BayeswellWarning, match="torch.compile cannot make kernels for cpu .*triton"):
            found = formula(torch.tensor([1.5]), torch.tensor([2.0]))
        assert found.item() == 4.0
        assert (
            formula(torch.tensor([0.5]), torch.tensor([2.0])).item() == 2.0
        )  # and no second warning, which would raise
    torch._dynamo.reset()
