"""The compiled formulas of k-tied stds against the product of the factors in double precision."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from bayeswell import native
from native.formulas import KEY, ROUNDING, TINY, assert_near, needs_library, numbers, precisions, spread, the_same
from native.tied import tied_draw_and_kl, tied_factors, tied_slopes

MATRICES = [(1, 1), (1, 257), (257, 1), (5, 256), (128, 128), (130, 300), (3, 9_000), (16_000, 2), (70, 1)]


@needs_library
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.usefixtures("each_library")
def test_tied_draw_and_kl_and_their_slopes(rank: int, of: str) -> None:
    for prior, shape in itertools.product(("scalar", "vector"), MATRICES):
        check_tied(prior, rank, shape, of)


def check_tied(prior: str, rank: int, shape: tuple[int, int], of: str) -> None:
    """Against the product of the factors in double precision, differentiated by torch."""
    rows, columns = shape
    size = rows * columns
    left, right = tied_factors(rows, columns, rank)
    mean, precision = numbers(size, 1, 0.7, 0.1), precisions(prior, size)
    h = spread(precision).double()
    noise = None if of == "kl without noise" else numbers(size, 2)
    of_weights = numbers(size, 3, 0.3, 0.05) if of in ("weights", "both") else None
    of_kl = None if of == "weights" else torch.tensor(-0.37)
    weights, kl = tied_draw_and_kl(left, right, mean, noise, precision)
    of_mean, of_left, of_right = tied_slopes(left, right, mean, noise, precision, of_weights, of_kl)

    m, u, v = (tensor.double().requires_grad_() for tensor in (mean, left, right))
    s = (u @ v).view(-1)
    square = h * (m.square() + s.square()) / 2
    total = m.new_zeros(())
    if weights is not None and noise is not None:
        draw = m + s * noise.double()
        assert_near(weights, draw.detach(), (m.abs() + (draw - m).abs()).detach())
        if of_weights is not None:
            total = total + (draw * of_weights.double()).sum()
    if of_kl is not None:
        total = total + of_kl.double() * (square - s.log()).sum()
    scale = ROUNDING * float((square + s.log().abs()).detach().sum())
    assert kl == pytest.approx(float((square - s.log()).detach().sum()), abs=scale)
    slopes = torch.autograd.grad(total, (m, u, v))

    with torch.no_grad():
        g = torch.zeros_like(m) if of_weights is None else of_weights.double().abs()
        eps = torch.zeros_like(m) if noise is None else noise.double().abs()
        c = 0.0 if of_kl is None else abs(float(of_kl))
        of_std = (g * eps + c * (h * s + 1 / s)).view(rows, columns)
        assert_near(of_mean, slopes[0], g + c * h * m.abs())
        assert_near(of_left, slopes[1], of_std @ v.T, rounding=2 * ROUNDING)
        # Added up row by row in single precision, up to 8,192 rows of a narrow matrix.
        assert_near(of_right, slopes[2], u.T @ of_std, rounding=(2 if rows < 1000 else 30) * ROUNDING)


SIDE_BY_SIDE = [(3, 0), (35, 7), (300, 0), (39_000, 300), (1, 0), (16, 4)]
"""Sizes of sites and their columns (0: not tied)."""
LONG = [(7, 0), (3000 * 701, 701), (5 * 40_000, 40_000), (3 * 16_384, 16_384), (20_000, 0), (1, 1)]
"""A thread has several stretches of rows, and rows that are longer than a chunk."""


State = tuple[torch.Tensor, int, torch.Tensor, torch.Tensor, torch.Tensor, native.Precision]


def side_by_side(prior: str, sites: list[tuple[int, int]] = SIDE_BY_SIDE) -> State:
    """Their table, rank, factors, log stds, means and precisions."""
    rank, rows, at, of_factors, of_free = 2, [], 0, 0, 0
    for size, columns in sites:
        right = of_factors + size // columns * rank if columns else 0
        rows.append([at, size, columns, of_factors if columns else of_free, right])
        at += size
        of_factors = right + columns * rank if columns else of_factors
        of_free += 0 if columns else size
    ends = torch.tensor([row[0] + row[1] for row in rows])
    h = numbers(len(rows) if prior == "by site" else at, 6, 0.8).exp()
    precision = native.Precision(h, ends if prior == "by site" else None)
    factors, log_std = numbers(of_factors, 11, 0.6, -1.3).exp(), numbers(of_free, 4, 0.5, -2.0)
    return torch.tensor(rows), rank, factors, log_std, numbers(at, 1, 0.7, 0.1), precision


@needs_library
@pytest.mark.parametrize("sites", [SIDE_BY_SIDE, LONG], ids=["short", "long"])
@pytest.mark.parametrize("prior", ["by site", "vector"])
@pytest.mark.usefixtures("each_library")
def test_noise_by_its_key_is_noise_by_its_numbers(prior: str, sites: list[tuple[int, int]]) -> None:
    """Draws and slopes to the last bit; the KL is added up in other groups of rows."""
    *state, precision = side_by_side(prior, sites)
    size = len(state[-1])
    numbers_of_key, c = native.normals(KEY, size), torch.tensor(-0.37)
    (weights, kl), (expected, its_kl) = (
        native.tied_draw_and_kl(*state, noise, precision) for noise in (KEY, numbers_of_key)
    )
    assert torch.equal(weights, expected)
    assert kl == pytest.approx(its_kl, rel=1e-12)
    of_mean = numbers(size, 3, 0.3, 0.05).clone()
    expected_slopes = native.tied_slopes(*state, numbers_of_key, precision, of_mean.clone(), c)
    found = native.tied_slopes(*state, KEY, precision, of_mean, c, of_mean)
    assert found[0] is of_mean
    for one, other in zip(found, expected_slopes, strict=True):
        assert torch.equal(one, other)


@needs_library
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.parametrize("prior", ["by site", "vector"])
@pytest.mark.usefixtures("each_library")
def test_several_sites_tied_and_not(prior: str, of: str) -> None:
    """Each with its own place for weights, factors and log stds, and with its own precision."""
    sites, rank, factors, log_std, mean, precision = side_by_side(prior)
    rows, at = sites.tolist(), len(mean)
    noise = None if of == "kl without noise" else numbers(at, 2)
    g = numbers(at, 3, 0.3, 0.05) if of in ("weights", "both") else None
    c = None if of == "weights" else torch.tensor(-0.37)
    state = (sites, rank, factors, log_std, mean, noise, precision)
    weights, kl = native.tied_draw_and_kl(*state)
    found = native.tied_slopes(*state, g, c)

    m, f, free = (tensor.double().requires_grad_() for tensor in (mean, factors, log_std))
    stds = []
    for _, size, columns, first, second in rows:
        if columns:
            left, right_factors = f[first:second].view(-1, rank), f[second : second + columns * rank].view(-1, rank)
            stds.append((left @ right_factors.T).view(-1))
        else:
            stds.append(free[first : first + size].exp())
    s = torch.cat(stds)
    terms = spread(precision).double() * (m.square() + s.square()) / 2 - s.log()
    assert kl == pytest.approx(float(terms.detach().sum()), abs=ROUNDING * float(terms.detach().abs().sum()))
    total = m.new_zeros(()) if c is None else c.double() * terms.sum()
    if weights is not None and noise is not None:
        draw = m + s * noise.double()
        assert_near(weights, draw.detach(), m.detach().abs() + (draw - m).detach().abs())
        total = total if g is None else total + (draw * g.double()).sum()
    for one, other in zip(found, torch.autograd.grad(total, (m, f, free)), strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@needs_library
@pytest.mark.usefixtures("each_library")
def test_tied_factors_that_underflow_or_are_none() -> None:
    """A row of zeros: its stds are 0 and their logarithms have no slope. A NaN shows wherever it has been."""
    rows, columns = 4, 300
    left, right = tied_factors(rows, columns, 2)
    left[1] = 0
    mean, h = numbers(rows * columns, 1), the_same(0.35, rows * columns)
    noise, g, of_kl = numbers(rows * columns, 2), numbers(rows * columns, 3), torch.tensor(0.37)
    weights, kl = tied_draw_and_kl(left, right, mean, noise, h)
    assert weights is not None
    std = (left.double() @ right.double()).clamp_min(TINY)
    expected = float((0.175 * (mean.double().square() + std.view(-1).square()) - std.log().view(-1)).sum())
    assert kl == pytest.approx(expected, rel=1e-6)
    assert torch.equal(weights.view(rows, columns)[1], mean.view(rows, columns)[1])
    _, of_left, of_right = tied_slopes(left, right, mean, noise, h, g, of_kl)
    torch.testing.assert_close(of_left[1], right @ (g * noise).view(rows, columns)[1], rtol=1e-5, atol=1e-5)
    assert bool(of_right.isfinite().all())
    right[1, 290] = math.nan
    weights, kl = tied_draw_and_kl(left, right, mean, noise, h)
    assert weights is not None
    assert math.isnan(kl)
    assert int(weights.isnan().sum()) == rows
    _, of_left, of_right = tied_slopes(left, right, mean, noise, h, g, of_kl)
    assert bool(of_left.isnan().all())
    assert int(of_right.isnan().sum()) == 2
