"""Long float32 vectors: compiled steps are those of torch's operations."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from bayeswell import native
from bayeswell.errors import DivergenceError
from bayeswell.random import LEAST_COUNTED, make_generator
from bayeswell.samplers import SGLD, Sampler
from samplers.chains import PARTS, each_part, take

LONG = LEAST_COUNTED + 77

compiled = pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")


def long_chain(name: str) -> tuple[Sampler, list[nn.Parameter]]:
    """Two long parameters, one of them without noise, and short ones in between."""
    generator = make_generator(41)
    shapes = [(LONG,), (4, 3), (2, LONG), (5,)]
    params = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    groups = [{"params": params[:2]}, {"params": params[2:], "noise": False, "lr": 0.03}]
    return PARTS[name].build(groups, 9, make_generator(42), 10), params


def long_gradients(steps: int) -> list[list[Tensor]]:
    generator = make_generator(43)
    shapes = [(LONG,), (4, 3), (2, LONG), (5,)]
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(steps)]


@compiled
@each_part
def test_compiled_steps_are_those_of_torch(name: str) -> None:
    """Ten steps: the scale of psgld is fixed after six, and cyclical_sgld explores in some without noise."""
    gradients = long_gradients(10)
    sampler, params = long_chain(name)
    take(sampler, params, gradients)
    with native.disabled():
        other, others = long_chain(name)
        take(other, others, gradients)
    assert torch.equal(sampler.generator.get_state(), other.generator.get_state())
    for param, expected in zip(params, others, strict=True):
        torch.testing.assert_close(param, expected, rtol=2e-5, atol=1e-5)
        assert sampler.state[param].keys() == other.state[expected].keys()
        for key, value in sampler.state[param].items():
            torch.testing.assert_close(value, other.state[expected][key], rtol=2e-5, atol=1e-5, msg=key)


@compiled
@each_part
def test_long_vectors_go_on_bit_for_bit_and_are_never_half_changed(name: str) -> None:
    """A bad gradient in the second long vector, when the first would already have moved."""
    gradients = long_gradients(6)
    calm, wanted = long_chain(name)
    take(calm, wanted, gradients)
    sampler, params = long_chain(name)
    for fault in (math.nan, -math.inf):  # before there is any state, too
        bad = [grad.clone() for grad in gradients[0]]
        bad[2][1, -1] = fault
        with pytest.raises(DivergenceError, match=rf"parameter 0 of its group NaN or inf at index \(1, {LONG - 1}\)"):
            take(sampler, params, [bad])
        assert not sampler.state_dict()["state"]
    take(sampler, params, gradients[:3])
    with pytest.raises(DivergenceError, match="step 3 would make"):
        take(sampler, params, [bad])
    saved, values = copy.deepcopy((sampler.state_dict(), [param.detach() for param in params]))
    resumed, others = long_chain(name)
    take(resumed, others, gradients[3:4])
    with torch.no_grad():
        for param, value in zip(others, values, strict=True):
            param.copy_(value)
    resumed.load_state_dict(saved)
    take(resumed, others, gradients[3:])
    take(sampler, params, gradients[3:])
    for param, other, expected in zip(params, others, wanted, strict=True):
        assert torch.equal(param, expected)
        assert torch.equal(other, expected)


@compiled
@each_part
def test_numbers_that_are_large_but_finite_are_no_divergence_in_long_vectors(name: str) -> None:
    """They are beyond what compiled code takes; the step is the same."""
    gradients = long_gradients(2)
    sampler, params = long_chain(name)
    with torch.no_grad():
        params[0][5] = 3e38
    take(sampler, params, gradients)
    other, others = long_chain(name)
    take(other, others, gradients)
    assert float(params[0][5].detach()) == pytest.approx(3e38)
    torch.testing.assert_close(params[0][6:], others[0][6:], rtol=2e-5, atol=1e-5)


@compiled
def test_a_finite_step_that_overflows_is_refused_in_long_vectors() -> None:
    """Weights and gradients are fine, and so are their magnitudes: it is the rate that is too much."""
    weights = nn.Parameter(torch.ones(LONG))
    sampler = SGLD(lr=1e38, temperature=1e-9).build([weights], 3, make_generator(1))
    with pytest.raises(DivergenceError, match="lower lr"):
        take(sampler, [weights], [[torch.full((LONG,), 7.0)]])
    assert torch.equal(weights.detach(), torch.ones(LONG))


@compiled
def test_autograd_knows_of_compiled_steps() -> None:
    weights = nn.Parameter(torch.ones(LONG))
    sampler = SGLD().build([weights], 3, make_generator(1))
    stale = weights.square().sum()
    take(sampler, [weights], [[torch.ones(LONG)]])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()
