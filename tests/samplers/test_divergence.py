"""A step that would diverge is not taken."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from bayeswell.errors import DivergenceError
from bayeswell.random import make_generator
from bayeswell.samplers import PSGLD, SGLD, Sampler
from samplers.chains import PARTS, each_part, random_gradients, take


@each_part
@pytest.mark.parametrize("fault", [math.nan, math.inf])
def test_a_step_that_would_diverge_is_not_taken(name: str, fault: float) -> None:
    part, gradients = PARTS[name], random_gradients(8, (3,), (2, 2))

    def begin() -> tuple[Sampler, list[nn.Parameter]]:
        params = [nn.Parameter(torch.full(s, 0.5, dtype=torch.float64)) for s in ((3,), (2, 2))]
        groups = [{"params": [("first", params[0])]}, {"params": [("second", params[1])]}]
        return part.build(groups, 11, make_generator(23), 8), params

    calm, wanted = begin()
    take(calm, wanted, gradients)
    sampler, params = begin()
    take(sampler, params, gradients[:5])
    before = copy.deepcopy((sampler.state_dict(), [param.detach() for param in params]))
    bad = [gradients[5][0], gradients[5][1].clone()]
    bad[1][1, 0] = fault
    with pytest.raises(DivergenceError) as caught:
        take(sampler, params, [bad])
    assert "step 5 would make" in str(caught.value)
    assert "parameter 'second' NaN or inf at index (1, 0)" in str(caught.value)
    assert "gradient is NaN or inf already" in str(caught.value)
    assert "\n" not in str(caught.value)
    after = sampler.state_dict()
    assert torch.equal(before[0]["generator"], after["generator"])
    assert all(torch.equal(a, b) for a, b in zip(before[1], params, strict=True))
    take(sampler, params, gradients[5:])  # as if nothing had been
    assert all(torch.equal(a, b) for a, b in zip(wanted, params, strict=True))


def test_an_unstable_chain_is_reported_before_it_overflows() -> None:
    weights = nn.Parameter(torch.tensor([0.3, 0.1]))
    sampler = SGLD(lr=40.0).build([weights], 3, make_generator(1))

    def climb() -> None:
        for _ in range(1000):
            weights.grad = weights.detach().clone()
            sampler.step()

    with pytest.raises(DivergenceError, match=r"sgld: step \d+ would make parameter 0 .*lower lr \(now 40\)"):
        climb()
    assert bool(weights.isfinite().all())
    assert 20 < sampler.steps < 30  # float32 ends at 39^24


def test_large_but_finite_numbers_are_no_divergence() -> None:
    """Their sum overflows, they do not."""
    weights = nn.Parameter(torch.full((4,), 3e38))
    sampler = SGLD(lr=0.1).build([weights], 3, make_generator(1))
    take(sampler, [weights], [[torch.zeros(4)]])
    assert sampler.steps == 1


def test_a_preconditioner_that_overflows_is_a_divergence() -> None:
    """Its scale would be 0 ever after: a chain that stands still, with no NaN to be seen in the weights."""
    weights = nn.Parameter(torch.zeros(2))
    sampler = PSGLD().build([weights], 3, make_generator(1))
    with pytest.raises(DivergenceError, match="the square_average of parameter 0 of its group NaN or inf at index"):
        take(sampler, [weights], [[torch.tensor([1.0, 1e25])]])
    assert torch.equal(weights.detach(), torch.zeros(2))
    assert not sampler.state_dict()["state"]
