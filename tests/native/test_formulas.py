"""Every compiled formula against the same in double precision, differentiated by torch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from bayeswell import native
from bayeswell.errors import BufferMismatch
from native.formulas import (
    KEY,
    PRIORS,
    ROUNDING,
    SIZES,
    assert_near,
    each_form,
    each_prior,
    needs_library,
    numbers,
    precisions,
    spread,
    states,
    the_same,
)
from native.steps import DECAY, STEPS, step_vectors


def std_of(form: int, state: Tensor) -> Tensor:
    """By its definition."""
    return state.exp() if form == 0 else state


# Every formula in double precision.


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_fresh_draws(form: int) -> None:
    for size in SIZES:
        mean, state = numbers(size, 1, 0.7, 0.1), states(form, size)
        noise = torch.stack([native.normals(key, size) for key in (KEY, KEY + 1, 2**64 - 5)]).double()
        std = std_of(form, state.double())
        drawn = native.fresh_draws(form, torch.tensor([KEY - 2**64, KEY + 1 - 2**64, -5]), mean, state)
        assert drawn.shape == (3, size)
        assert_near(drawn, mean.double() + std * noise, mean.double().abs() + (std * noise).abs())


APART = [[0, 20, 48, 9], [9_000, 30, 64, 9], [40_000, 3, 37, 9], [48_000, 100, 128, 9], [170_000, 7, 32, 4]]
"""Kernels among 300,001 weights whose filters do and do not begin and end with lines of the caches."""


@needs_library
@pytest.mark.parametrize(("rank", "kernels"), [(0, []), (0, APART), (3, [])], ids=["rows", "laid out", "low rank"])
@pytest.mark.usefixtures("each_library")
def test_draws_that_are_more_than_caches_hold(rank: int, kernels: list[list[int]]) -> None:
    """They are written in another way, where rows are aligned: to the bit what is drawn alone."""
    size, draws = 300_001, 30
    mean, std, keys = numbers(size, 1, 0.7, 0.1), states(1, size), torch.arange(draws)
    loading, columns = numbers(size * rank, 2).view(size, rank), numbers(draws * rank, 3).view(draws, rank)

    def drawn(of: Tensor, columns: Tensor, rows: Tensor | None = None) -> Tensor:
        if rank:
            return native.low_rank_fresh_draws(of, mean, std, loading, columns, rows)
        return native.fresh_draws(1, of, mean, std, rows, torch.tensor(kernels, dtype=torch.int64).view(-1, 4))

    alone = [drawn(keys[i : i + 1], columns[i : i + 1])[0] for i in range(draws)]
    unaligned = torch.full((draws * (size + 15) + 1,), math.nan)[1:].as_strided((draws, size), (size + 15, 1))
    for rows in None, unaligned:
        for found, expected in zip(drawn(keys, columns, rows), alone, strict=True):
            assert torch.equal(found, expected)


KERNELS = [
    [[0, 3, 5, 4]],
    [[7, 2, 3, 9], [61, 1, 1, 6], [67, 4, 2, 1]],
    [[100, 31, 65, 9], [20_000, 2, 9_000, 3]],
    [[16_380, 1, 2, 3], [16_386, 40_000, 1, 1]],
    [[16_375, 1, 2, 20_000], [56_380, 3, 24, 9], [57_100, 2, 19, 25]],
]
"""Places, filters, channels, positions: at the start, side by side, with gaps, over borders of chunks, and longer."""


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
@pytest.mark.parametrize("kernels", KERNELS, ids=str)
def test_fresh_draws_of_kernels_with_channels_last(form: int, kernels: list[list[int]]) -> None:
    """The same numbers, those of a kernel in another order."""
    size = kernels[-1][0] + math.prod(kernels[-1][1:]) + 13
    keys = torch.tensor([KEY - 2**64, -5])
    given = form, keys, numbers(size, 1, 0.7, 0.1), states(form, size)
    expected = native.fresh_draws(*given)
    for place, *shape in kernels:
        piece = slice(place, place + math.prod(shape))
        expected[:, piece] = expected[:, piece].reshape(2, *shape).transpose(2, 3).reshape(2, -1)
    before = native.fresh_draws(*given)
    assert torch.equal(native.fresh_draws(*given, before, torch.tensor(kernels)), expected)
    torch.set_num_threads(2)
    assert torch.equal(native.fresh_draws(*given, None, torch.tensor(kernels)), expected)


@needs_library
@pytest.mark.parametrize(
    "kernels",
    [
        [[1, 2, 5, 5]], [[-1, 1, 1, 1]], [[0, 0, 5, 5]], [[0, 1, -5, 5]], [[51, 1, 1, 1]],
        [[0, 2, 3, 4], [23, 1, 1, 1]], [[24, 1, 1, 1], [0, 2, 3, 4]], [[0, 2**62, 2**62, 2**62]],
        [[0, 2**32, 2**31, 2]],
    ],
    ids=str,
)  # fmt: skip
def test_kernels_that_lie_elsewhere_are_refused(kernels: list[list[int]]) -> None:
    with pytest.raises(BufferMismatch, match=r"a table of \d kernels does not fit 50 weights"):
        native.fresh_draws(0, torch.tensor([1]), numbers(50, 1), states(0, 50), None, torch.tensor(kernels))


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_draw_and_kl(form: int) -> None:
    for prior, size, drawn in itertools.product(PRIORS, SIZES, (True, False)):
        check_draw_and_kl(form, prior, size, drawn)


def check_draw_and_kl(form: int, prior: str, size: int, drawn: bool) -> None:
    mean, state, precision = numbers(size, 1, 0.7, 0.1), states(form, size), precisions(prior, size)
    noise = numbers(size, 2)[None] if drawn else None
    weights, kl = native.draw_and_kl(form, mean, state, noise, precision)
    m, s = mean.double(), std_of(form, state.double())
    square = spread(precision).double() * (m.square() + s.square()) / 2
    assert kl == pytest.approx(float((square - s.log()).sum()), abs=ROUNDING * float((square + s.log().abs()).sum()))
    if noise is None:
        assert weights is None
    else:
        offset = s * noise[0].double()
        assert weights is not None
        assert_near(weights, m + offset, m.abs() + offset.abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_noise_by_its_key_is_noise_by_its_numbers(form: int) -> None:
    """To the last bit, also where the gradient of the mean takes the place of that of the weights."""
    for prior, size in itertools.product(PRIORS, SIZES):
        state = (form, numbers(size, 1, 0.7, 0.1), states(form, size))
        precision, slopes = precisions(prior, size), (numbers(size, 3, 0.3, 0.05), torch.tensor(-0.37))
        (weights, kl), (expected, its_kl) = (
            native.draw_and_kl(*state, noise, precision) for noise in (KEY, native.normals(KEY, size))
        )
        assert torch.equal(weights, expected)
        assert kl == its_kl
        of_mean = slopes[0].clone()
        found = native.slopes(*state, KEY, precision, of_mean, slopes[1], of_mean)
        assert found[0] is of_mean
        for one, other in zip(found, native.slopes(*state, native.normals(KEY, size), precision, *slopes), strict=True):
            assert torch.equal(one, other)


@needs_library
@each_form
@pytest.mark.parametrize("of", ["weights", "kl", "both", "kl without noise"])
@pytest.mark.usefixtures("each_library")
def test_slopes(form: int, of: str) -> None:
    for prior, size in itertools.product(PRIORS, SIZES):
        check_slopes(form, prior, size, of)


def check_slopes(form: int, prior: str, size: int, of: str) -> None:
    """Against torch's own differentiation of the formulas."""
    mean, state, precision = numbers(size, 1, 0.7, 0.1), states(form, size), precisions(prior, size)
    h = spread(precision).double()
    noise = None if of == "kl without noise" else numbers(size, 2)[None]
    of_weights = numbers(size, 3, 0.3, 0.05)[None] if of in ("weights", "both") else None
    of_kl = None if of == "weights" else torch.tensor(-0.37)
    found = native.slopes(form, mean, state, noise, precision, of_weights, of_kl)

    m, start = mean.double().requires_grad_(), state.double().requires_grad_()
    s = std_of(form, start)
    total = m.new_zeros(())
    if of_weights is not None and noise is not None:
        total = total + ((m + s * noise.double()) * of_weights.double()).sum()
    if of_kl is not None:
        total = total + of_kl.double() * (h * (m.square() + s.square()) / 2 - s.log()).sum()
    expected = torch.autograd.grad(total, (m, start))

    with torch.no_grad():
        g = torch.zeros_like(m) if of_weights is None else of_weights[0].double().abs()
        eps = torch.zeros_like(m) if noise is None else noise[0].double().abs()
        c = 0.0 if of_kl is None else abs(float(of_kl))
        slope, log_slope = (s, torch.ones_like(s)) if form == 0 else (torch.ones_like(s), 1 / s)
        assert_near(found[0], expected[0], g + c * h * m.abs())
        assert_near(found[1], expected[1], (g * eps + c * h * s) * slope + c * log_slope)


@needs_library
@each_prior
@pytest.mark.usefixtures("each_library")
def test_half_squares_and_their_slope(prior: str) -> None:
    of_sum = torch.tensor(-0.37)
    for size in SIZES:
        mean, precision, g = numbers(size, 1, 0.7, 0.1), precisions(prior, size), numbers(size, 3, 0.3, 0.05)
        m, h = mean.double(), spread(precision).double()
        assert native.half_squares(mean, precision) == pytest.approx(float((h * m.square()).sum()) / 2, rel=ROUNDING)
        flow = float(of_sum) * h * m
        assert_near(native.half_squares_slope(mean, precision, None, of_sum), flow, flow.abs())
        found = native.half_squares_slope(mean, precision, g, of_sum)
        assert_near(found, g.double() + flow, g.double().abs() + flow.abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_variance_and_its_slope(form: int) -> None:
    for size in SIZES:
        state, of_variance = states(form, size), numbers(size, 3, 0.3, 0.05)
        start = state.double().requires_grad_()
        variance = std_of(form, start).square()
        (expected,) = torch.autograd.grad(variance, start, of_variance.double())
        assert_near(native.variance(form, state), variance.detach(), variance.detach())
        assert_near(native.variance_slope(form, of_variance, state), expected, expected.abs())


@needs_library
@each_form
@pytest.mark.usefixtures("each_library")
def test_weighted_squares_and_their_slopes(form: int) -> None:
    """Stds from 1e-4 on: the squares of much smaller ones are below float32's numbers."""
    for size in SIZES:
        state, values = states(form, size).clamp_min(-9 if form == 0 else 1e-4), numbers(size, 1, 0.7, 0.1)
        start, v = state.double().requires_grad_(), values.double().requires_grad_()
        total = (std_of(form, start) * v).square().sum()
        assert native.weighted_squares(form, state, values) == pytest.approx(total.item(), rel=ROUNDING)
        expected = torch.autograd.grad(total, (start, v), torch.tensor(-0.37).double())
        for found, slope in zip(
            native.weighted_squares_slopes(form, state, values, torch.tensor(-0.37)), expected, strict=True
        ):
            assert_near(found, slope, slope.abs())


# Steps of samplers and optimizers: each as it is called, and by its equations in double precision.


@needs_library
def test_first_steps_keep_all_digits_of_small_differences() -> None:
    """v = (1 - b2) g^2: 1 - 0.999 in single precision would have only five right digits."""
    vectors = step_vectors(300)
    vectors["squares"].zero_()
    g = vectors["grads"].double() + DECAY * vectors["weights"].double()
    STEPS["bounded_step"].run(vectors)
    assert_near(vectors["squares"], 0.001 * g.square(), 0.001 * (vectors["grads"].double().abs() + 0.1).square())


@needs_library
def test_sums_lose_nothing_to_their_length() -> None:
    """A million equal numbers, of which float32 alone would lose a part."""
    values = torch.full((1_000_003,), 0.1)
    assert native.magnitude(values) == pytest.approx(1_000_003 * float(values[0].double()), rel=1e-6)
    zeros = torch.zeros_like(values)
    _, kl = native.draw_and_kl(0, zeros, zeros - 3.3, None, the_same(0.0, len(values)))
    assert kl == pytest.approx(1_000_003 * 3.3, rel=1e-6)
