"""Flat vectors and named tensors."""

from __future__ import annotations

import pytest
import torch

from bayeswell.core.layout import Layout, Site

SITES = (
    Site(("0.weight",), (3, 2), "Linear", 2, 3),
    Site(("0.bias",), (3,), "Linear", 2, 3),
    Site(("up.weight", "tied.weight"), (4, 2, 5), "ConvTranspose1d", 20, 10, output_dim=1),
)
LAYOUT = Layout(SITES)


def test_unflatten_inverts_flatten() -> None:
    tensors = {site.name: torch.randn(site.shape) for site in SITES}
    flat = LAYOUT.flatten(tensors)
    assert flat.shape == (LAYOUT.size,) == (49,)
    named = LAYOUT.unflatten(flat)
    assert all(torch.equal(named[name], tensor) for name, tensor in tensors.items())
    assert named["tied.weight"] is named["up.weight"]


def test_unflatten_keeps_leading_axes() -> None:
    flat = torch.randn(7, LAYOUT.size)
    named = LAYOUT.unflatten(flat)
    for row in range(7):
        for name, tensor in LAYOUT.unflatten(flat[row]).items():
            assert torch.equal(named[name][row], tensor)


def test_slices_and_ends_agree_with_the_pieces() -> None:
    flat = torch.randn(LAYOUT.size)
    for site, tensor in zip(SITES, LAYOUT.unflatten(flat).values(), strict=False):
        assert torch.equal(flat[LAYOUT.slices[site.name]], tensor.reshape(-1))
    assert LAYOUT.ends.tolist() == [6, 9, 49]


def test_repeat_by_site() -> None:
    repeated = LAYOUT.repeat_by_site(torch.tensor([1.0, 2.0, 3.0]))
    assert repeated.tolist() == [1.0] * 6 + [2.0] * 3 + [3.0] * 40


@pytest.mark.parametrize("site", [SITES[0], SITES[2]])
def test_from_matrix_inverts_to_matrix(site: Site) -> None:
    tensor = torch.randn(2, *site.shape)
    matrix = site.to_matrix(tensor)
    assert site.matrix_shape is not None
    assert matrix.shape == (2, *site.matrix_shape)
    assert torch.equal(site.from_matrix(matrix), tensor)
    unit = tensor.select(1 + site.output_dim, 1).reshape(2, -1)
    assert torch.equal(matrix[:, 1], unit)


def test_patterns_match_own_name() -> None:
    assert SITES[0].matches("0.*")
    assert SITES[0].matches(["x", "*.weight"])
    assert not SITES[1].matches("*.weight")
