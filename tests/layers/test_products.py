"""Products of many rows by convolutions: those of matrices, and their derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayeswell.layers import lstm_layers, products

ROWS, INPUTS, OUTPUTS = 300, 40, 50


@pytest.fixture
def convolved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Convolutions on every processor, and how many there were."""
    monkeypatch.setattr(products, "_CONVOLVES", True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    seen: list[int] = []
    as_image = products._as_image
    monkeypatch.setattr(products, "_as_image", lambda rows: seen.append(len(rows)) or as_image(rows))
    return seen


def derivatives(x: Tensor, weight: Tensor, bias: Tensor | None, by_hand: bool) -> list[Tensor]:
    """A product and a sum of outer products, their gradients, and the gradients of a penalty on those."""
    given = [one for one in (x, weight, bias) if one is not None]
    if by_hand:
        y = F.linear(x, weight, bias)
        z = y.T @ x
    else:
        y = products.linear(x, weight, bias)
        z = products.outer_sum(y, x)
    loss = y.sin().sum() + (z / ROWS).cos().sum()
    first = torch.autograd.grad(loss, given, create_graph=True)
    penalty = sum((gradient / (1 + number)).square().sum() for number, gradient in enumerate(first)) / ROWS
    return [y, z, *first, *torch.autograd.grad(penalty, given)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("laid", ["in rows", "in columns"])
def test_products_and_two_derivatives(bias: bool, laid: str, convolved: list[int]) -> None:
    """Errors of float32 against double precision, over sums of 300 products."""
    torch.manual_seed(2)
    x = torch.randn(ROWS, INPUTS) if laid == "in rows" else torch.randn(INPUTS, ROWS).T
    weight, constant = torch.randn(OUTPUTS, INPUTS) / 6, torch.randn(OUTPUTS) if bias else None
    given = [None if one is None else one.requires_grad_() for one in (x, weight, constant)]
    found = derivatives(*given, by_hand=False)
    assert len(convolved) > 10
    exact = [None if one is None else one.detach().double().requires_grad_() for one in given]
    for one, other in zip(found, derivatives(*exact, by_hand=True), strict=True):
        scale = float(other.detach().square().mean().sqrt())
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * scale)


def test_only_what_gains_is_convolved(convolved: list[int]) -> None:
    x, weight = torch.randn(ROWS, INPUTS), torch.randn(OUTPUTS, INPUTS)
    for rows, kernel in ((x[:100], weight), (x[:, :9], weight[:, :9]), (x, weight[:9]), (x.double(), weight.double())):
        torch.testing.assert_close(products.linear(rows, kernel, None), rows @ kernel.T)
        torch.testing.assert_close(products.outer_sum(rows, rows @ kernel.T), rows.T @ (rows @ kernel.T))
    assert products.linear(x.to("meta"), weight.to("meta"), None).shape == (ROWS, OUTPUTS)
    assert convolved == []


def test_a_wide_lstm_is_that_of_double_precision(convolved: list[int]) -> None:
    """Compiled steps and convolved products together, in float32."""
    torch.manual_seed(3)
    module, x = nn.LSTM(INPUTS, OUTPUTS, num_layers=2, bidirectional=True), torch.randn(10, 32, INPUTS)
    exact = nn.LSTM(INPUTS, OUTPUTS, num_layers=2, bidirectional=True).double()
    exact.load_state_dict(module.state_dict())
    results = []
    for forward, own, inputs in ((lambda x: lstm_layers(module, x), module, x), (exact, exact, x.double())):
        output, (hidden, cells) = forward(inputs)
        loss = output.sin().sum() + (1.3 * hidden).cos().sum() + cells.square().sum()
        first = torch.autograd.grad(loss, list(own.parameters()), create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in first)
        results.append([output, *first, *torch.autograd.grad(penalty, list(own.parameters()))])
    assert len(convolved) > 50
    for one, other in zip(*results, strict=True):
        scale = float(other.detach().square().mean().sqrt())
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * scale)
