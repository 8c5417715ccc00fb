"""Named tensors to one flat vector and back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bayeswell.layers import wiring_of
from bayeswell.tree import Layout, Site

shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def site(name: str, shape: tuple[int, ...], output_dim: int = 0, also: tuple[str, ...] = ()) -> Site:
    return Site((name, *also), shape, "Linear", fan_in=1, fan_out=1, output_dim=output_dim)


@given(st.lists(shapes, min_size=1, max_size=5))
def test_flat_vector_and_named_tensors_are_one_thing(all_shapes: list[tuple[int, ...]]) -> None:
    layout = Layout(tuple(site(f"p{i}", shape) for i, shape in enumerate(all_shapes)))
    assert layout.size == sum(math.prod(shape) for shape in all_shapes)
    flat = torch.arange(layout.size, dtype=torch.float64)
    tensors = layout.unflatten(flat)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        f"p{i}": shape for i, shape in enumerate(all_shapes)
    }
    assert torch.equal(layout.flatten(tensors), flat)
    for name, piece in layout.slices.items():
        assert torch.equal(flat[piece], tensors[name].flatten())
    values = torch.arange(len(all_shapes), dtype=torch.float64) + 0.5
    for index, piece in enumerate(layout.slices.values()):
        assert bool((layout.spread(values)[piece] == index + 0.5).all())


def test_unflattened_tensors_are_views_and_a_shared_parameter_is_one_of_them() -> None:
    layout = Layout((site("a", (2, 2), also=("b.a", "c.a")), site("d", ())))
    flat = torch.zeros(layout.size)
    tensors = layout.unflatten(flat)
    assert list(tensors) == ["a", "b.a", "c.a", "d"]
    flat += 3.0
    assert all(bool((tensor == 3).all()) for tensor in tensors.values())


@pytest.mark.parametrize("stride", [1, 3])
def test_views_are_what_unflattening_gives(stride: int) -> None:
    layout = Layout((site("a", (2, 3), also=("b.a",)), site("c", ()), site("d", (4,))))
    flat = torch.arange(100.0)[5::stride][: layout.size]
    found = layout.views(flat)
    torch.testing.assert_close(found, layout.unflatten(flat), rtol=0, atol=0)
    assert found["a"] is found["b.a"]
    if stride == 1:
        flat += 3.0
        torch.testing.assert_close(found, layout.unflatten(flat), rtol=0, atol=0)


def test_gradients_of_the_pieces_land_in_their_places() -> None:
    layout = Layout((site("a", (2, 3), also=("b",)), site("c", (4,))))
    flat = torch.randn(10, requires_grad=True)
    tensors = layout.unflatten(flat)
    (2 * tensors["a"].sum() + 5 * tensors["b"].sum() + 11 * tensors["c"].sum()).backward()
    assert flat.grad is not None
    assert flat.grad.tolist() == [7.0] * 6 + [11.0] * 4


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple),
    st.integers(0, 1),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
)
def test_matrix_form_has_output_units_as_rows(shape: tuple[int, ...], output_dim: int, lead: tuple[int, ...]) -> None:
    """Row o of the matrix holds all that feeds output unit o, in the order of the remaining axes."""
    chosen = site("w", shape, output_dim)
    tensor = torch.arange(math.prod((*lead, *shape)), dtype=torch.float64).view(*lead, *shape)
    matrix = chosen.to_matrix(tensor)
    assert chosen.matrix_shape == tuple(matrix.shape[-2:])
    for unit in range(shape[output_dim]):
        fed = tensor.select(len(lead) + output_dim, unit)
        assert torch.equal(matrix[..., unit, :], fed.reshape(*lead, -1))
    assert torch.equal(chosen.from_matrix(matrix), tensor)


def test_vectors_and_scalars_are_no_matrices() -> None:
    assert site("b", (5,)).matrix_shape is None
    assert site("s", ()).matrix_shape is None
    assert site("s", ()).size == 1


def test_patterns() -> None:
    weight = site("block.0.weight", (2, 2), also=("head.weight",))
    assert weight.fits("*")
    assert weight.fits("block.*")
    assert weight.fits(("no", "*.weight"))
    assert weight.fits("block.[01].weight")
    assert not weight.fits("block")
    assert not weight.fits(("BLOCK.*", "head.*"))
    assert not weight.fits(())


# (layer, parameter): inputs of a unit, units fed by an input, axis of output units; counted by hand.
WIRING = {
    "dense": (nn.Linear(5, 3), "weight", (5, 3, 0)),
    "dense bias": (nn.Linear(5, 3), "bias", (5, 3, 0)),
    "convolution": (nn.Conv2d(4, 6, (3, 2)), "weight", (4 * 6, 6 * 6, 0)),
    "grouped convolution": (nn.Conv2d(4, 6, (3, 2), groups=2), "weight", (2 * 6, 3 * 6, 0)),
    "grouped convolution bias": (nn.Conv2d(4, 6, (3, 2), groups=2), "bias", (2 * 6, 3 * 6, 0)),
    "transposed": (nn.ConvTranspose1d(4, 6, 3), "weight", (4 * 3, 6 * 3, 1)),
    "grouped transposed": (nn.ConvTranspose1d(4, 6, 3, groups=2), "weight", (2 * 3, 3 * 3, 1)),
    "transposed bias": (nn.ConvTranspose1d(4, 6, 3), "bias", (4 * 3, 6 * 3, 0)),
    "embedding": (nn.Embedding(9, 4), "weight", (1, 4, 0)),
    "recurrent": (nn.LSTM(5, 3), "weight_ih_l0", (5, 12, 0)),
    "recurrent bias": (nn.LSTM(5, 3), "bias_hh_l0", (3, 12, 0)),
    "attention": (nn.MultiheadAttention(4, 2), "in_proj_weight", (4, 12, 0)),
    "normalisation": (nn.LayerNorm(4), "weight", (1, 1, 0)),
}


@pytest.mark.parametrize("name", WIRING)
def test_wiring_by_hand(name: str) -> None:
    layer, parameter, (fan_in, fan_out, output_dim) = WIRING[name]
    wiring = wiring_of(layer, parameter, tuple(getattr(layer, parameter).shape))
    assert (wiring.fan_in, wiring.fan_out, wiring.output_dim) == (fan_in, fan_out, output_dim)


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv2d(4, 6, (3, 2), groups=2), torch.ones(1, 4, 3, 2)),
        (nn.Linear(5, 3), torch.ones(1, 5)),
        (nn.ConvTranspose1d(4, 6, 3, groups=2), torch.ones(1, 4, 7)),
    ],
    ids=["grouped convolution", "dense", "grouped transposed convolution"],
)
def test_fan_in_is_the_number_of_products_in_one_output(layer: nn.Module, x: torch.Tensor) -> None:
    """All inputs and weights 1: the output away from the borders counts the products."""
    wiring = wiring_of(layer, "weight", tuple(layer.weight.shape))
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.zero_()
        assert float(layer(x).max()) == wiring.fan_in
