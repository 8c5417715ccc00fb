"""LSTM whose second derivatives are as cheap as its first.

torch differentiates its fused LSTM once; for a second derivative it takes the layer apart, step by step and operation
by operation. Here the layer is the recurrence alone, between products over all steps at once. With x_t = W_x input + b,

    a_t = x_t + W h_{t-1},    (i, f, g, o)_t = (sig, sig, tanh, sig)(a_t),
    c_t = f c_{t-1} + i g,    h_t = o tanh c_t,

and gradients H', C', G' of the states, cells and gates from outside, its backward pass is, from the last step to the
first,

    p_t = H'_t + W' A'_{t+1},    q_t = C'_t + p_t o (1 - tanh^2 c_t) + q_{t+1} f_{t+1},
    A'_t = (D_i i (1 - i), D_f f (1 - f), D_g (1 - g^2), D_o o (1 - o)),
    D = (q g, q c_{t-1}, q i, p tanh c) + G'.

A' is linear in H', C' and G': towards V its derivative there is the tangent (h., c., (i., f., g., o.)) of the forward
pass in the direction V, a pass from the first step to the last. Its derivatives in gates and cells are sums of
products of these at each step, with no recurrence at all: they go back as G' and C' into one more backward pass, the
one that the loss needs anyway. So a step with a penalty on gradients has four recurrences, an ordinary one two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .gates import backward_steps, forward_steps, second_derivatives, tangent_steps
from .products import linear, outer_sum


def is_plain_lstm(module: nn.Module) -> bool:
    """Whether ``lstm_layers`` computes what the module does: torch's own LSTM, without projections."""
    return isinstance(module, nn.LSTM) and type(module).forward is nn.LSTM.forward and not module.proj_size


def lstm_layers(
    module: nn.LSTM, inputs: Tensor, states: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What ``module(inputs, states)`` gives, with its parameters as they are now, for a tensor of sequences."""
    batched = inputs.dim() == 3
    time_first = inputs if batched else inputs[:, None]
    layer = time_first.transpose(0, 1) if batched and module.batch_first else time_first
    ways = 2 if module.bidirectional else 1
    shape = (ways * module.num_layers, layer.shape[1], module.hidden_size)
    if states is None:
        first = cells = layer.new_zeros(shape)
    else:
        first, cells = (state if batched else state[:, None] for state in states)
    ends: list[tuple[Tensor, Tensor]] = []
    for level in range(module.num_layers):
        if level and module.dropout:
            layer = F.dropout(layer, module.dropout, module.training)
        sides = []
        for way in range(ways):
            place = level * ways + way
            own, suffix = (layer.flip(0), f"_l{level}_reverse") if way else (layer, f"_l{level}")
            output, end, cell = _one_way(module, suffix, own, first[place], cells[place])
            sides.append(output.flip(0) if way else output)
            ends.append((end, cell))
        layer = sides[0] if ways == 1 else torch.cat(sides, -1)
    hidden, last = (torch.stack(kind) for kind in zip(*ends, strict=True))
    if not batched:
        return layer[:, 0], (hidden[:, 0], last[:, 0])
    return layer.transpose(0, 1) if module.batch_first else layer, (hidden, last)


def _one_way(
    module: nn.LSTM, suffix: str, inputs: Tensor, first: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(T, B, H) states of one layer in one direction, and the last state and cell."""
    wanted = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    of_inputs, of_states, bias, other = (getattr(module, name + suffix, None) for name in wanted)
    assert isinstance(of_inputs, Tensor)
    both = bias + other if bias is not None and other is not None else None
    x = linear(inputs.flatten(0, 1), of_inputs, both).unflatten(0, inputs.shape[:2])
    _, cells, states = _Recurrence.apply(x, of_states, first, cell)
    return states, states[-1], cells[-1]


class _Recurrence(torch.autograd.Function):
    """(x, W, h_0, c_0) -> gates (T, B, 4H), cells and states (T, B, H); the gates are written over x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates = x.detach()  # in the memory of x, which was made for this alone and which nothing else has kept
        cells, states = x.new_empty(*x.shape[:2], first.shape[-1]), x.new_empty(*x.shape[:2], first.shape[-1])
        step, transposed, h = forward_steps(cell, gates, cells, states), weight.T, first
        for t, (a, state) in enumerate(zip(gates.unbind(), states.unbind(), strict=True)):
            a.addmm_(h, transposed)
            step(t)
            h = state
        ctx.save_for_backward(weight, first, cell, gates, cells, states)
        ctx.set_materialize_grads(False)
        return gates, cells, states

    @staticmethod
    def backward(
        ctx: Any, of_gates: Tensor | None, of_cells: Tensor | None, of_states: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        weight, first, cell, gates, cells, states = ctx.saved_tensors
        if of_gates is None and of_cells is None and of_states is None:
            return None, None, None, None
        of_x, of_first, of_cell = _Backward.apply(of_states, of_cells, of_gates, weight, cell, gates, cells)
        before = torch.cat([first[None], states[:-1]])
        return of_x, outer_sum(of_x.flatten(0, 1), before.flatten(0, 1)), of_first, of_cell


class _Backward(torch.autograd.Function):
    """(H', C', G', W, c_0, gates, cells) -> A' (T, B, 4H), and the gradients of h_0 and c_0."""

    @staticmethod
    def forward(
        ctx: Any, of_states: Tensor | None, of_cells: Tensor | None, of_gates: Tensor | None, weight: Tensor,
        cell: Tensor, gates: Tensor, cells: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        of_x, tanh, p, q = torch.empty_like(gates), *(torch.empty_like(cells) for _ in range(3))
        states, others, direct = (None if one is None else one.contiguous() for one in (of_states, of_cells, of_gates))
        step, later = backward_steps(cell, gates, cells, states, others, direct, tanh, p, q, of_x), None
        for t, (own_p, a) in reversed([*enumerate(zip(p.unbind(), of_x.unbind(), strict=True))]):
            if later is None:
                own_p.zero_()
            else:
                torch.mm(later, weight, out=own_p)
            step(t)
            later = a
        ctx.save_for_backward(of_gates, weight, cell, gates, cells, tanh, p, q, of_x)
        ctx.set_materialize_grads(False)
        return of_x, of_x[0] @ weight, q[0] * gates[0].chunk(4, -1)[1]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, towards: Tensor | None, towards_first: Tensor | None, towards_cell: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        of_gates, weight, cell, gates, cells, tanh, p, q, of_x = ctx.saved_tensors
        of_gates = None if of_gates is None else of_gates.contiguous()
        along = torch.zeros_like(gates) if towards is None else towards.clone(memory_format=torch.contiguous_format)
        h = first = torch.zeros_like(cell) if towards_first is None else towards_first
        first_cell = torch.zeros_like(cell) if towards_cell is None else towards_cell.contiguous()
        moved, moved_cells, moved_states = (torch.empty_like(one) for one in (gates, cells, cells))
        step = tangent_steps(cell, gates, cells, tanh, first_cell, along, moved, moved_cells, moved_states)
        transposed = weight.T
        for t, (a, state) in enumerate(zip(along.unbind(), moved_states.unbind(), strict=True)):
            a.addmm_(h, transposed)
            step(t)
            h = state
        met = (cell, gates, cells, tanh, p, q, first_cell, moved, moved_cells)
        by_gates, by_cells = second_derivatives(*met, of_gates, along)
        by_weight = outer_sum(of_x.flatten(0, 1), torch.cat([first[None], moved_states[:-1]]).flatten(0, 1))
        by_cell = q[0] * moved[0].chunk(4, -1)[1]
        found = (moved_states, moved_cells, moved, by_weight, by_cell, by_gates, by_cells)
        return tuple(one if needed else None for one, needed in zip(found, ctx.needs_input_grad, strict=True))
