"""Walking inputs and outputs, and finding what is not finite in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bayeswell.finite import all_finite, any_nan, first_not_finite
from bayeswell.nested import leaves, map_leaves, map_tensors, taken, tensors_in

A, B, C = torch.arange(6.0).view(3, 2), torch.arange(3), torch.ones(3)
NESTED: Any = {"a": A, "rest": (B, [C, None], "flag")}


def test_leaves_come_in_order_with_their_places() -> None:
    assert [place for place, _ in leaves(NESTED, "x")] == [
        "x['a']", "x['rest'][0]", "x['rest'][1][0]", "x['rest'][1][1]", "x['rest'][2]",
    ]  # fmt: skip
    assert [place for place, _ in leaves(NESTED, "x", deep=False)] == ["x['a']", "x['rest']"]
    assert list(leaves(A, "x")) == [("x", A)]
    assert list(tensors_in(NESTED)) == [A, B, C]
    assert list(tensors_in(NESTED, deep=False)) == [A]


def test_the_structure_stays() -> None:
    assert map_leaves(NESTED, lambda place, _: place) == {"a": "['a']", "rest": (
        "['rest'][0]", ["['rest'][1][0]", "['rest'][1][1]"], "['rest'][2]")}  # fmt: skip
    assert map_leaves((1, (2, 3)), lambda _, leaf: leaf, deep=False) == (1, (2, 3))
    shapes = map_tensors(NESTED, lambda tensor: tuple(tensor.shape))
    assert shapes == {"a": (3, 2), "rest": ((3,), [(3,), None], "flag")}
    assert isinstance(shapes["rest"], tuple)


def test_examples_are_taken_from_every_tensor() -> None:
    some = taken(NESTED, slice(1, 3))
    assert torch.equal(some["a"], A[1:])
    assert torch.equal(some["rest"][0], B[1:])
    assert torch.equal(some["rest"][1][0], C[1:])
    assert some["rest"][1][1] is None
    assert torch.equal(taken(A, torch.tensor([2, 0])), A[[2, 0]])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_the_first_place_that_is_not_finite(bad: float, dtype: torch.dtype) -> None:
    tensor = torch.full((4, 5), 30000.0, dtype=dtype)  # whose sum is no float16
    assert first_not_finite(tensor) is None
    if not dtype.is_complex:
        assert all_finite([tensor])
    tensor[2, 3] = tensor[3, 0] = bad
    assert first_not_finite(tensor) == (2, 3)
    assert first_not_finite(torch.arange(4)) is None
    assert first_not_finite(torch.tensor(bad)) == ()


def test_nan_among_outputs() -> None:
    assert not any_nan(NESTED)
    assert not any_nan({"a": torch.tensor([float("inf")]), "b": torch.tensor([1])})
    assert any_nan((A, [{"deep": torch.tensor([1.0, float("nan")])}]))
    seen = torch.vmap(lambda x: x + any_nan(x))(torch.tensor([[float("nan")], [1.0]]))
    assert seen[1].item() == 1.0, "values cannot be looked at in vmap, and are not"
