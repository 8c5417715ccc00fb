"""Inputs of the element-wise part of an LSTM, and loops over its steps without the products that recur."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayeswell.layers import gates as by_steps
from native.formulas import numbers

STEPS = 3


class Loop(NamedTuple):
    """Gates (T, B, 4H), what is as long as cells (T, B, H), and what is as long as one step's (B, H)."""

    first: Tensor
    gates: Tensor
    cells: Tensor
    of_states: Tensor
    of_cells: Tensor
    of_gates: Tensor
    p: Tensor
    first_moved: Tensor
    along: Tensor


def loop_inputs(batch: int, width: int, scale: float = 1.0) -> Loop:
    """Generic numbers; what goes into the gates, cells and all that is linear alike."""
    short, long, gates = (batch, width), (STEPS, batch, width), (STEPS, batch, 4 * width)
    shapes = (short, gates, long, long, long, gates, long, short, gates)
    drawn = (numbers(torch.Size(shape).numel(), 20 + seed, scale).view(shape) for seed, shape in enumerate(shapes))
    return Loop(*(tensor.clone() for tensor in drawn))


def of_size(size: int) -> Loop:
    """About so many numbers in cells."""
    width = 7 if size < 10_000 else 50
    return loop_inputs(size // width // STEPS, width)


def forward(x: Loop) -> tuple[Tensor, ...]:
    """Gates, cells and states."""
    gates, cells, states = x.gates.clone(), torch.empty_like(x.cells), torch.empty_like(x.cells)
    step = by_steps.forward_steps(x.first, gates, cells, states)
    for t in range(STEPS):
        step(t)
    return gates, cells, states


def backward(x: Loop, with_gates: bool = True, with_cells: bool = True, with_states: bool = True) -> tuple[Tensor, ...]:
    """tanh c, p, q and the gradient of what goes into the gates; ``x.p`` stands for what recurs."""
    gates, cells, _ = forward(x)
    tanh, p, q, of_x = torch.empty_like(cells), x.p.clone(), torch.empty_like(cells), torch.empty_like(gates)
    given = (
        x.of_states if with_states else None, x.of_cells if with_cells else None, x.of_gates if with_gates else None
    )  # fmt: skip
    step = by_steps.backward_steps(x.first, gates, cells, *given, tanh, p, q, of_x)
    for t in reversed(range(STEPS)):
        step(t)
    return tanh, p, q, of_x


def tangents(x: Loop) -> tuple[Tensor, ...]:
    """Those of gates, cells and states."""
    gates, cells, _ = forward(x)
    moved, moved_cells, moved_states = torch.empty_like(gates), torch.empty_like(cells), torch.empty_like(cells)
    results = (x.first_moved, x.along.clone(), moved, moved_cells, moved_states)
    step = by_steps.tangent_steps(x.first, gates, cells, cells.tanh(), *results)
    for t in range(STEPS):
        step(t)
    return moved, moved_cells, moved_states


def second_derivatives(x: Loop, with_gates: bool = True) -> tuple[Tensor, ...]:
    """What the tangents give to gates and to cells."""
    gates, cells, _ = forward(x)
    tanh, p, q, _ = backward(x, with_gates)
    moved, moved_cells, _ = tangents(x)
    given = (x.first, gates, cells, tanh, p, q, x.first_moved, moved, moved_cells)
    return by_steps.second_derivatives(*given, x.of_gates if with_gates else None, x.along.clone())


CALLS: dict[str, Any] = {
    "lstm_step": lambda size: forward(of_size(size)),
    "lstm_step_backward": lambda size: backward(of_size(size)),
    "lstm_step_tangents": lambda size: tangents(of_size(size)),
    "lstm_second_derivatives": lambda size: second_derivatives(of_size(size)),
}
