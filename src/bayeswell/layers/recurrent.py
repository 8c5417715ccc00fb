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
    _, cells, states = _Recurrence.apply(F.linear(inputs, of_inputs, both), of_states, first, cell)
    return states, states[-1], cells[-1]


class _Recurrence(torch.autograd.Function):
    """(x, W, h_0, c_0) -> gates (T, B, 4H), cells and states (T, B, H)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, first: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        width = first.shape[-1]
        gates = x.clone(memory_format=torch.contiguous_format)
        cells, states = x.new_empty(*x.shape[:2], width), x.new_empty(*x.shape[:2], width)
        transposed = weight.T
        h, c = first, cell
        for a, next_c, next_h in zip(gates.unbind(), cells.unbind(), states.unbind(), strict=True):
            a.addmm_(h, transposed)
            both, g, o = a.split([2 * width, width, width], -1)
            both.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            i, f = both.chunk(2, -1)
            torch.mul(f, c, out=next_c).addcmul_(i, g)
            torch.tanh(next_c, out=next_h).mul_(o)
            h, c = next_h, next_c
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
        return of_x, of_x.flatten(0, 1).T @ before.flatten(0, 1), of_first, of_cell


class _Backward(torch.autograd.Function):
    """(H', C', G', W, c_0, gates, cells) -> A' (T, B, 4H), and the gradients of h_0 and c_0."""

    @staticmethod
    def forward(
        ctx: Any, of_states: Tensor | None, of_cells: Tensor | None, of_gates: Tensor | None, weight: Tensor,
        cell: Tensor, gates: Tensor, cells: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        tanh, width = cells.tanh(), cells.shape[-1]
        before = torch.cat([cell[None], cells[:-1]])
        i, f, g, o = gates.chunk(4, -1)
        opened = torch.addcmul(o, o, tanh.square(), value=-1)  # of the cell by the state
        slopes = _slopes(gates)
        direct = None if of_gates is None else (of_gates * slopes).unbind()
        # Of each gate: what the gradient of the cell (or of the state, for o) is multiplied by on its way to a.
        for slope, factor in zip(slopes.chunk(4, -1), (g, before, i, tanh), strict=True):
            slope.mul_(factor)
        by_cell, by_state = slopes.unflatten(-1, (4, width)).split([3, 1], -2)
        of_x, p_all, q_all = torch.empty_like(gates), torch.empty_like(cells), torch.empty_like(cells)
        to_cell, to_state = of_x.unflatten(-1, (4, width)).split([3, 1], -2)
        q = of_x.new_zeros(()).expand_as(cell)
        for t in reversed(range(len(cells))):
            p, carried = p_all[t], q
            if t + 1 == len(cells):
                p.zero_()
            else:
                torch.mm(of_x[t + 1], weight, out=p)
            if of_states is not None:
                p.add_(of_states[t])
            q = torch.mul(p, opened[t], out=q_all[t])
            if t + 1 < len(cells):
                q.addcmul_(carried, f[t + 1])
            if of_cells is not None:
                q.add_(of_cells[t])
            torch.mul(by_cell[t], q[:, None], out=to_cell[t])
            torch.mul(by_state[t], p[:, None], out=to_state[t])
            if direct is not None:
                of_x[t].add_(direct[t])
        ctx.save_for_backward(of_gates, weight, cell, gates, cells, tanh, p_all, q_all, of_x)
        ctx.set_materialize_grads(False)
        return of_x, of_x[0] @ weight, q * f[0]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, towards: Tensor | None, towards_first: Tensor | None, towards_cell: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        of_gates, weight, cell, gates, cells, tanh, p, q, of_x = ctx.saved_tensors
        before = torch.cat([cell[None], cells[:-1]])
        i, f, g, o = gates.chunk(4, -1)
        along = torch.zeros_like(gates) if towards is None else towards.clone(memory_format=torch.contiguous_format)
        h = first = torch.zeros_like(cell) if towards_first is None else towards_first
        c = first_cell = torch.zeros_like(cell) if towards_cell is None else towards_cell
        closed = torch.rsub(tanh.square(), 1)
        opened = o * closed
        slopes, moved = _slopes(gates), torch.empty_like(gates)
        moved_cells, moved_states = torch.empty_like(cells), torch.empty_like(cells)
        # Of the cell by each gate but the last, in their order.
        partners = torch.stack([g, before, i], -2)
        transposed = weight.T
        whole = (f, opened, tanh, partners, along, slopes, moved, moved_cells, moved_states)
        for f_t, opened_t, tanh_t, partner, a, slope, own, next_c, next_h in zip(*whole, strict=True):
            torch.mul(a.addmm_(h, transposed), slope, out=own)
            by_gate = own.unflatten(-1, (4, -1))
            torch.sum(partner * by_gate[:, :3], 1, out=next_c).addcmul_(f_t, c)
            torch.mul(opened_t, next_c, out=next_h).addcmul_(tanh_t, by_gate[:, 3])
            h, c = next_h, next_c
        of_i, of_f, of_g, of_o = moved.chunk(4, -1)
        closed.mul_(p)
        # D, then its part of the slopes' own slopes, then what gates do to the tangent of the cell and of the state.
        by_gates = torch.empty_like(gates) if of_gates is None else of_gates.clone()
        chunks = by_gates.chunk(4, -1)
        for chunk, one, other in zip(chunks, (q, q, q, p), (g, before, i, tanh), strict=True):
            if of_gates is None:
                torch.mul(one, other, out=chunk)
            else:
                chunk.addcmul_(one, other)
        by_gates.mul_(along).mul_(_bends(gates))
        earlier_cells = torch.cat([first_cell[None], moved_cells[:-1]])
        others = ((q, of_g), (q, earlier_cells), (q, of_i), (closed, moved_cells))
        for chunk, (one, other) in zip(chunks, others, strict=True):
            chunk.addcmul_(one, other)
        by_cells = torch.addcmul(of_o, tanh * o, moved_cells, value=-2).mul_(closed)
        later = q * of_f
        by_cells[:-1] += later[1:]
        by_weight = of_x.flatten(0, 1).T @ torch.cat([first[None], moved_states[:-1]]).flatten(0, 1)
        found = (moved_states, moved_cells, moved, by_weight, later[0], by_gates, by_cells)
        return tuple(one if needed else None for one, needed in zip(found, ctx.needs_input_grad, strict=True))


def _slopes(gates: Tensor) -> Tensor:
    """d gate / d a: s (1 - s) of a sigmoid, 1 - g^2 of a tanh."""
    slopes = torch.addcmul(gates, gates, gates, value=-1)
    g = gates.chunk(4, -1)[2]
    torch.addcmul(g.new_ones(()), g, g, value=-1, out=slopes.chunk(4, -1)[2])
    return slopes


def _bends(gates: Tensor) -> Tensor:
    """The derivative of a slope by its gate: 1 - 2 s of a sigmoid, -2 g of a tanh."""
    bends = torch.add(gates.new_ones(()), gates, alpha=-2)
    torch.mul(gates.chunk(4, -1)[2], -2, out=bends.chunk(4, -1)[2])
    return bends
