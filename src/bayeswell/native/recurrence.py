"""The element-wise part of an LSTM and of its two derivatives (the equations are in ``layers/recurrent.py``).

Gates are (T, B, 4H), cells and states (T, B, H), what comes before the first step (B, H). The functions that are named
after a step give one that is called with the number of each time step in turn, after the product that recurs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .library import Buffer, call, prepared

Step = Callable[[int], None]


def lstm_step(first: Tensor, gates: Tensor, cells: Tensor, states: Tensor) -> Step:
    """Gates from what goes into them, in its place; then the cell c = f c_before + i g and the state o tanh c."""
    return prepared("lstm_step", *_sizes(cells), *_inside(cells, first, gates), cells, states)


def lstm_step_backward(
    first: Tensor, gates: Tensor, cells: Tensor, of_states: Tensor | None, of_cells: Tensor | None,
    of_gates: Tensor | None, tanh: Tensor, p: Tensor, q: Tensor, of_x: Tensor,
) -> Step:  # fmt: skip
    """From p_t, which has what later steps give to the state: p_t whole, q_t, A'_t in ``of_x``, and tanh c_t."""
    size = cells.numel()
    given = (Buffer(of_states, size), Buffer(of_cells, size), Buffer(of_gates, 4 * size))
    results = (tanh, p, q, Buffer(of_x, 4 * size))
    return prepared("lstm_step_backward", *_sizes(cells), *_inside(cells, first, gates), cells, *given, *results)


def lstm_step_tangents(
    first: Tensor, gates: Tensor, cells: Tensor, tanh: Tensor, first_moved: Tensor, along: Tensor, moved: Tensor,
    moved_cells: Tensor, moved_states: Tensor,
) -> Step:  # fmt: skip
    """The tangents of gates, cell and state from ``along``, that of what goes into the gates."""
    tangents = (*_inside(cells, first_moved, along), Buffer(moved, 4 * cells.numel()), moved_cells, moved_states)
    return prepared("lstm_step_tangents", *_sizes(cells), *_inside(cells, first, gates), cells, tanh, *tangents)


def lstm_second_derivatives(
    first: Tensor, gates: Tensor, cells: Tensor, tanh: Tensor, p: Tensor, q: Tensor, first_moved: Tensor, moved: Tensor,
    moved_cells: Tensor, of_gates: Tensor | None, along: Tensor, by_cells: Tensor,
) -> None:  # fmt: skip
    """What the tangents give to gates, in the place of ``along``, and to cells."""
    size, steps, width = _sizes(cells)
    given = (*_inside(cells, first, gates), cells, tanh, p, q, *_inside(cells, first_moved, moved))
    results = (Buffer(of_gates, 4 * size), Buffer(along, 4 * size), by_cells)
    call("lstm_second_derivatives", size, steps, width, *given, moved_cells, *results)


def _sizes(cells: Tensor) -> tuple[int, int, int]:
    steps, _, width = cells.shape
    return cells.numel(), steps, width


def _inside(cells: Tensor, first: Tensor, gates: Tensor) -> tuple[Buffer, Buffer]:
    """What is as long as one step's cells, and as all gates."""
    size = cells.numel()
    return Buffer(first, size // max(len(cells), 1)), Buffer(gates, 4 * size)
