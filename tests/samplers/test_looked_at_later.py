"""Samplers on an accelerator look at a step one step later, and come to the same as those that look at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bayeswell as bw
from bayeswell.errors import DivergenceError
from bayeswell.samplers import PSGLD, SGHMC, SGLD, stepping

PARTS: dict[str, Any] = {
    "sgld": SGLD(lr=0.05, temperature=0.7),
    "sghmc": SGHMC(lr=0.02, temperature=0.7, momentum=0.8),
    "psgld": PSGLD(lr=0.003, temperature=0.7),
}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator: only counters, which are on the CPU there too, are looked at."""
    monkeypatch.setattr(stepping, "looks_at_once", lambda device: False)


def chain(name: str) -> tuple[list[Tensor], Any]:
    torch.manual_seed(3)
    params = [torch.randn(5, 3).requires_grad_(), torch.randn(7).requires_grad_()]
    sampler = PARTS[name].build([{"params": params}], dataset_size=30, generator=bw.make_generator(4))
    return params, sampler


def step(params: list[Tensor], sampler: Any, factor: float) -> None:
    for param in params:
        param.grad = factor * param.detach()
    sampler.step()


def kept(params: list[Tensor], sampler: Any) -> list[Tensor]:
    states = [sampler.state[param][key] for param in params for key in sorted(sampler.state[param])]
    return [tensor.detach().clone() for tensor in (*params, *states, sampler.generator.get_state())]


@pytest.mark.parametrize("name", PARTS)
def test_healthy_chains_are_the_same(name: str, request: pytest.FixtureRequest) -> None:
    params, sampler = chain(name)
    for _ in range(6):
        step(params, sampler, 1.3)
    at_once = kept(params, sampler)
    request.getfixturevalue("later")
    params, sampler = chain(name)
    for _ in range(6):
        step(params, sampler, 1.3)
    for one, other in zip(at_once, kept(params, sampler), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", PARTS)
def test_a_step_that_diverges_is_not_taken_and_told_by_the_next(name: str, bad: float, later: None) -> None:
    params, sampler = chain(name)
    for _ in range(3):
        step(params, sampler, 1.3)
    good = kept(params, sampler)
    step(params, sampler, bad)
    assert all(bool(param.isfinite().all()) for param in params)
    with pytest.raises(DivergenceError, match=r"step 3 would make .* NaN or inf; nothing was changed; lower lr"):
        step(params, sampler, 1.3)
    for before, after in zip(good, kept(params, sampler), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=0)
    assert sampler.steps == 3
    step(params, sampler, 1.3)  # it can go on


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_saved_of_a_step_that_diverged(name: str, later: None) -> None:
    params, sampler = chain(name)
    step(params, sampler, 1.3)
    step(params, sampler, float("nan"))
    with pytest.raises(DivergenceError, match="step 1"):
        sampler.state_dict()
    assert sampler.state_dict()["step"] == 1
