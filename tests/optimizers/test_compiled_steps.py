"""Compiled steps are those of torch's operations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell import native
from bayeswell.errors import DivergenceError
from bayeswell.optimizers import (
    OPTIMIZERS,
    YellowFin,
)

compiled = pytest.mark.skipif(not native.available(), reason="the compiled formulas are not installed")


def both_ways(name: str, steps: int = 14) -> list[tuple[list[nn.Parameter], torch.optim.Optimizer]]:
    """The same run compiled and by torch's operations, in float32: long and short tensors, two groups, all layouts.

    One convolution's weights lie in memory with channels last, one gradient is a transposed one. Sizes of gradients
    differ by 10^3 and the fifth and ninth are spikes, so that every bound and clip of the formulas is met.
    """
    shapes = [(300, 131), (7,), (1,), (6, 5, 3, 3), (40, 30)]
    generator = torch.Generator().manual_seed(11)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    scales = [10.0 ** -(3 * torch.rand(shape, generator=generator)) for shape in shapes]
    gradients = [
        [
            0.02 * scale * (0.4 + torch.randn(shape, generator=generator)) * {4: 300.0, 8: 9.0}.get(t, 1.0)
            for shape, scale in zip(shapes, scales, strict=True)
        ]
        for t in range(steps)
    ]

    def finish() -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        values = [tensor.clone() for tensor in start]
        values[3] = values[3].to(memory_format=torch.channels_last)
        params = [nn.Parameter(tensor) for tensor in values]
        settings = {"gamma": 0.06, "final_lr": 0.02} if name != "yellowfin" else {"beta": 0.9, "window": 2}
        groups = [{"params": params[:2], "lr": 0.02, "weight_decay": 0.03}, {"params": params[2:], "lr": 0.005}]
        optimizer = OPTIMIZERS[name](lr=0.005, **settings).build(groups)
        for row in gradients:
            for parameter, gradient in zip(params, row, strict=True):
                parameter.grad = gradient.to(memory_format=torch.channels_last) if gradient.dim() == 4 else gradient
            params[4].grad = gradients[0][4].T.contiguous().T
            optimizer.step()
        return params, optimizer

    with native.disabled():
        eager = finish()
    return [finish(), eager]


@compiled
@pytest.mark.parametrize("name", ["adabound", "amsbound", "yellowfin"])
def test_compiled_steps_are_those_of_torch(name: str) -> None:
    (params, optimizer), (others, other) = both_ways(name)
    moved = 0.0
    for index, (parameter, expected) in enumerate(zip(params, others, strict=True)):
        # Rounding: 14 steps of some ten roundings each; the tuner of YellowFin takes differences of close numbers.
        close = {"rtol": 1e-4 if name == "yellowfin" else 5e-6, "atol": 2e-6, "msg": f"parameter {index}"}
        torch.testing.assert_close(parameter, expected, **close)
        state, other_state = optimizer.state[parameter], other.state[expected]
        assert state.keys() == other_state.keys()
        for key, value in state.items():
            if isinstance(value, Tensor):
                scale = float(other_state[key].abs().max())
                assert scale > 0
                torch.testing.assert_close(value, other_state[key], rtol=1e-4, atol=1e-6 * scale, msg=key)
                moved = max(moved, scale)
            else:
                assert value == other_state[key]
    assert moved > 0.01


@compiled
def test_compiled_and_other_parameters_share_the_statistics_of_yellowfin() -> None:
    (_, optimizer), (_, other) = both_ways("yellowfin")
    for key, value in vars(optimizer.statistics).items():  # type: ignore[attr-defined]
        np.testing.assert_allclose(value, getattr(other.statistics, key), rtol=2e-5, err_msg=key)  # type: ignore[attr-defined]


@compiled
@pytest.mark.parametrize("name", ["adabound", "yellowfin"])
def test_autograd_knows_of_compiled_steps(name: str) -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS[name]().build([{"params": [weights]}])
    stale = weights.square().sum()
    weights.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


@compiled
def test_a_refused_step_leaves_no_state_behind() -> None:
    weights = nn.Parameter(torch.ones(3))
    optimizer = YellowFin().build([{"params": [weights]}])
    weights.grad = torch.tensor([1.0, math.nan, 1.0])
    with pytest.raises(DivergenceError, match="the gradient's norm is nan"):
        optimizer.step()
    assert not optimizer.state_dict()["state"]
    assert torch.equal(weights.detach(), torch.ones(3))
