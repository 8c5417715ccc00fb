"""The element-wise part of an LSTM: compiled formulas and torch's operations, and functions that they come from."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bayeswell import native
from bayeswell.layers import lstm_layers, products
from native.formulas import needs_library
from native.recurrence import STEPS, Loop, backward, forward, loop_inputs, second_derivatives, tangents

SHAPES = ((1, 1), (3, 5), (2, 16), (4, 67), (33, 128), (70, 300))
"""Examples and widths: rests of vector registers, one thread and several."""

Formula = Callable[[Loop], tuple[Tensor, ...]]

FORMULAS: dict[str, Formula] = {
    "forward": forward,
    "backward": backward,
    "backward, of states": lambda x: backward(x, with_gates=False, with_cells=False),
    "backward, of cells": lambda x: backward(x, with_gates=False, with_states=False),
    "backward, of gates": lambda x: backward(x, with_cells=False, with_states=False),
    "tangents": tangents,
    "second_derivatives": second_derivatives,
    "second_derivatives, without gradients of gates": lambda x: second_derivatives(x, with_gates=False),
}

each_formula = pytest.mark.parametrize("name", FORMULAS)


@needs_library
@each_formula
@pytest.mark.usefixtures("each_library")
def test_compiled_steps_are_those_of_torch_in_double_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten roundings of float32 of numbers that are sums of a few products of numbers of size 1."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for batch, width in SHAPES:
        x = loop_inputs(batch, width)
        found = FORMULAS[name](x)
        expected = FORMULAS[name](Loop(*(tensor.double() for tensor in x)))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=2e-6)


@needs_library
@pytest.mark.usefixtures("each_library")
def test_sigmoid_and_tanh_are_exact_to_their_last_digits_near_zero_and_far_from_it() -> None:
    """Relative errors, also where tanh x is nearly x and where a gate is nearly closed."""
    values = torch.cat([torch.logspace(-6, 1.9, 1000), -torch.logspace(-6, 1.9, 1000)])
    x = loop_inputs(2, 1000)
    gates = values.view(1, 2, 1000, 1).expand(STEPS, -1, -1, 4).permute(0, 1, 3, 2).reshape(STEPS, 2, 4000)
    found = forward(x._replace(gates=gates.contiguous()))[0].unflatten(-1, (4, 1000))
    exact = gates.double().unflatten(-1, (4, 1000))
    for place in range(4):
        expected = exact[:, :, place].tanh() if place == 2 else exact[:, :, place].sigmoid()
        torch.testing.assert_close(found[:, :, place].double(), expected, rtol=5e-7, atol=1e-37)


@needs_library
@each_formula
@pytest.mark.usefixtures("each_library")
def test_what_is_not_finite_or_huge_comes_out_as_from_torch(name: str) -> None:
    """In the same places; differences of infinities depend on the order of products."""
    for bad in (math.nan, math.inf, -math.inf, 200.0, -200.0):
        for field in ("first", "gates", "of_states", "p", "along"):
            x = loop_inputs(2, 21)
            getattr(x, field).view(-1)[17] = bad
            found = FORMULAS[name](x)
            with native.disabled():
                expected = FORMULAS[name](x)
            for one, other in zip(found, expected, strict=True):
                finite = other.isfinite()
                assert torch.equal(one.isfinite(), finite)
                torch.testing.assert_close(one[finite], other[finite], rtol=1e-5, atol=2e-6)


@each_formula
def test_steps_that_compiled_code_cannot_read_are_torchs(name: str) -> None:
    """Numbers that do not lie densely: the same, by operations."""
    x = loop_inputs(3, 5)
    apart = x._replace(first=torch.stack([x.first, x.first], -1)[..., 0])
    for one, other in zip(FORMULAS[name](apart), FORMULAS[name](x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def test_gradients_and_tangents_are_those_of_the_function_itself() -> None:
    """The steps written as one function of what goes in, differentiated by torch: no recurrence but through cells."""

    def cells_and_states(x: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        cells, states = [], []
        for a in x:
            i, f, g, o = a.chunk(4, -1)
            first = f.sigmoid() * first + i.sigmoid() * g.tanh()
            cells.append(first)
            states.append(o.sigmoid() * first.tanh())
        return torch.stack(cells), torch.stack(states)

    given = Loop(*(tensor.double() for tensor in loop_inputs(4, 6)))
    x, first = given.gates.clone().requires_grad_(), given.first.clone().requires_grad_()
    (cells, states), by = cells_and_states(x, first), (given.p + given.of_states)
    (expected,) = torch.autograd.grad([cells, states], [x], [given.of_cells, by])
    torch.testing.assert_close(backward(given, with_gates=False)[-1], expected, rtol=1e-10, atol=1e-10)
    moved = torch.func.jvp(cells_and_states, (given.gates, given.first), (given.along, given.first_moved))[1]
    for one, other in zip(tangents(given)[1:], moved, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@needs_library
def test_a_wide_lstm_is_that_of_double_precision(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled steps and convolved products together, in float32."""
    monkeypatch.setattr(products, "_CONVOLVES", True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.manual_seed(3)
    module, x = nn.LSTM(40, 50, num_layers=2, bidirectional=True), torch.randn(35, 32, 40)
    exact = nn.LSTM(40, 50, num_layers=2, bidirectional=True).double()
    exact.load_state_dict(module.state_dict())
    results = []
    for whole, own, inputs in ((lambda x: lstm_layers(module, x), module, x), (exact, exact, x.double())):
        output, (hidden, cells) = whole(inputs)
        loss = output.sin().sum() + (1.3 * hidden).cos().sum() + cells.square().sum()
        first = torch.autograd.grad(loss, list(own.parameters()), create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append([output, *first, *torch.autograd.grad(penalty, list(own.parameters()))])
    assert {"lstm_step", "lstm_step_backward", "lstm_step_tangents", "lstm_second_derivatives"} == {*calls}
    for one, other in zip(*results, strict=True):
        scale = float(other.detach().square().mean().sqrt())
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * scale)
