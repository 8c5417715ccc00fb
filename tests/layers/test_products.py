"""Products of many rows by convolutions: those of matrices, and their derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bayeswell.layers import products

ROWS, INPUTS, OUTPUTS = 1100, 40, 50


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
    few, narrow, wide = (x[:1000], weight), (x[:, :9], weight[:, :9]), (x.repeat(1, 20), torch.randn(800, INPUTS * 20))

    def multiplied(rows: Tensor, kernel: Tensor) -> int:
        """How many of the operands became images."""
        before = len(convolved)
        torch.testing.assert_close(products.linear(rows, kernel, None), rows @ kernel.T, rtol=1e-4, atol=1e-4)
        found = products.outer_sum(rows, rows @ kernel.T)
        torch.testing.assert_close(found, rows.T @ (rows @ kernel.T), rtol=1e-4, atol=1e-2)
        return len(convolved) - before

    assert multiplied(x, weight) == 3
    for rows, kernel in (few, narrow, (x, weight[:9]), wide, (x.double(), weight.double())):
        assert multiplied(rows, kernel) == 0
    assert products.linear(x.to("meta"), weight.to("meta"), None).shape == (ROWS, OUTPUTS)
    for change in (
        lambda patch: patch.setattr(torch, "get_num_threads", lambda: 1),
        lambda patch: patch.setattr(products, "_CONVOLVES", False),
        lambda patch: patch.setattr(torch.backends.mkldnn, "enabled", False),
    ):
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            assert multiplied(x, weight) == 0
    assert multiplied(x, weight) == 3
