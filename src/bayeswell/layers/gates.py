"""The element-wise part of an LSTM and of its derivatives, by compiled formulas or by torch's operations.

The equations are in ``recurrent``. Gates are (T, B, 4H) in the order i, f, g, o, cells and states (T, B, H), and
``first`` (B, H) is the cell before the first step. What is named after steps prepares a loop over time: it gives what
is to be called with the number of each step, once the product that recurs is there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import native
from ..native.recurrence import Step


def forward_steps(first: Tensor, gates: Tensor, cells: Tensor, states: Tensor) -> Step:
    """In order of time. From ``gates``, of which step t has what goes into it: gates, cells and states."""
    if native.takes(first, gates, cells, states):
        return native.lstm_step(first, gates, cells, states)
    width = cells.shape[-1]

    def step(t: int) -> None:
        both, g, o = gates[t].split([2 * width, width, width], -1)
        both.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        i, f = both.chunk(2, -1)
        torch.mul(f, cells[t - 1] if t else first, out=cells[t]).addcmul_(i, g)
        torch.tanh(cells[t], out=states[t]).mul_(o)

    return step


def backward_steps(
    first: Tensor, gates: Tensor, cells: Tensor, of_states: Tensor | None, of_cells: Tensor | None,
    of_gates: Tensor | None, tanh: Tensor, p: Tensor, q: Tensor, of_x: Tensor,
) -> Step:  # fmt: skip
    """Against time. From p_t = W' A'_{t+1}: p, q and A' in ``of_x``; and tanh c."""
    given = (first, gates, cells, of_states, of_cells, of_gates, tanh, p, q, of_x)
    if native.takes(*given):
        return native.lstm_step_backward(*given)
    width, before = cells.shape[-1], _before(first, cells)
    i, f, g, o = gates.chunk(4, -1)
    torch.tanh(cells, out=tanh)
    opened = torch.addcmul(o, o, tanh.square(), value=-1)  # of the cell by the state
    _slopes(gates, out=of_x)  # in its memory: each step needs its own slopes alone, and once
    direct = None if of_gates is None else (of_gates * of_x).unbind()
    # Of each gate: what the gradient of the cell (or of the state, for o) is multiplied by on its way to a.
    for slope, factor in zip(of_x.chunk(4, -1), (g, before, i, tanh), strict=True):
        slope.mul_(factor)
    by_cell, by_state = of_x.unflatten(-1, (4, width)).split([3, 1], -2)

    def step(t: int) -> None:
        if of_states is not None:
            p[t].add_(of_states[t])
        torch.mul(p[t], opened[t], out=q[t])
        if t + 1 < len(cells):
            q[t].addcmul_(q[t + 1], f[t + 1])
        if of_cells is not None:
            q[t].add_(of_cells[t])
        by_cell[t].mul_(q[t][:, None])
        by_state[t].mul_(p[t][:, None])
        if direct is not None:
            of_x[t].add_(direct[t])

    return step


def tangent_steps(
    first: Tensor, gates: Tensor, cells: Tensor, tanh: Tensor, first_moved: Tensor, along: Tensor, moved: Tensor,
    moved_cells: Tensor, moved_states: Tensor,
) -> Step:  # fmt: skip
    """In order of time. From ``along``, of which step t has the tangent of what goes into it: those of the results."""
    given = (first, gates, cells, tanh, first_moved, along, moved, moved_cells, moved_states)
    if native.takes(*given):
        return native.lstm_step_tangents(*given)
    i, f, g, o = gates.chunk(4, -1)
    opened = torch.addcmul(o, o, tanh.square(), value=-1)
    # Of the cell by each gate but the last, in their order.
    partners = torch.stack([g, _before(first, cells), i], -2)
    _slopes(gates, out=moved)  # as above

    def step(t: int) -> None:
        by_gate = moved[t].mul_(along[t]).unflatten(-1, (4, -1))
        before = moved_cells[t - 1] if t else first_moved
        torch.sum(partners[t] * by_gate[:, :3], 1, out=moved_cells[t]).addcmul_(f[t], before)
        torch.mul(opened[t], moved_cells[t], out=moved_states[t]).addcmul_(tanh[t], by_gate[:, 3])

    return step


def second_derivatives(
    first: Tensor, gates: Tensor, cells: Tensor, tanh: Tensor, p: Tensor, q: Tensor, first_moved: Tensor, moved: Tensor,
    moved_cells: Tensor, of_gates: Tensor | None, along: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What the tangents give to gates, in the memory of ``along``, and to cells."""
    by_cells = torch.empty_like(cells)
    given = (first, gates, cells, tanh, p, q, first_moved, moved, moved_cells, of_gates, along, by_cells)
    if native.takes(*given):
        native.lstm_second_derivatives(*given)
        return along, by_cells
    i, _, g, o = gates.chunk(4, -1)
    of_i, of_f, of_g, of_o = moved.chunk(4, -1)
    before, moved_before = _before(first, cells), _before(first_moved, moved_cells)
    closed = torch.rsub(tanh.square(), 1).mul_(p)
    # D, then its part of the slopes' own slopes, then what gates do to the tangent of the cell and of the state.
    within = ((q, g), (q, before), (q, i), (p, tanh))
    beyond = ((q, of_g), (q, moved_before), (q, of_i), (closed, moved_cells))
    for place, (gate, chunk) in enumerate(zip(gates.chunk(4, -1), along.chunk(4, -1), strict=True)):
        one, other = within[place]
        d = one * other
        if of_gates is not None:
            d += of_gates.chunk(4, -1)[place]
        if place == 2:  # a slope 1 - g^2 has the slope -2 g, one of s (1 - s) has 1 - 2 s
            d.mul_(g).mul_(-2)
        else:
            d.addcmul_(d, gate, value=-2)
        chunk.mul_(d).addcmul_(*beyond[place])
    torch.addcmul(of_o, tanh * o, moved_cells, value=-2, out=by_cells).mul_(closed)
    by_cells[:-1].addcmul_(q[1:], of_f[1:])
    return along, by_cells


def _before(first: Tensor, cells: Tensor) -> Tensor:
    """What each step begins with."""
    return torch.cat([first[None], cells[:-1]])


def _slopes(gates: Tensor, out: Tensor) -> None:
    """d gate / d a: s (1 - s) of a sigmoid, 1 - g^2 of a tanh."""
    torch.addcmul(gates, gates, gates, value=-1, out=out)
    g = gates.chunk(4, -1)[2]
    torch.addcmul(g.new_ones(()), g, g, value=-1, out=out.chunk(4, -1)[2])
