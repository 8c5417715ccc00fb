"""Counter noise: its formula, its distribution, and what reproduces it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bayeswell.ops import available, normals, plain

WORD = 1 << 64
STEP = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
LANES = 128
BLOCK = 2 * LANES
FAILURE_RATE = 1e-4
PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
"""First outputs of SplitMix64 for the seed 1234567, as in the tests of many libraries."""

Normals = Callable[[int, int], Tensor]
compiled = pytest.mark.skipif(not available(), reason="the library is not compiled")
each = pytest.mark.parametrize(
    "draw", [plain.normals, pytest.param(normals, marks=compiled)], ids=["plain", "compiled"]
)


def state_of(output: int) -> int:
    """Invert the mixing function of SplitMix64."""
    word = output
    for shift, factor in ((31, FACTORS[1]), (27, FACTORS[0]), (30, 1)):
        known = word
        for _ in range(64 // shift):
            known = word ^ (known >> shift)
        word = known * pow(factor, -1, WORD) % WORD
    return word


def box_muller(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosines, sines and radii in double precision; u as far as float32 resolves it."""
    low = (words & np.uint64(0x7FFFFFFF)).astype(np.float32)
    radius = np.sqrt(-2 * np.log((low * np.float32(2.0**-31) + np.float32(2.0**-32)).astype(np.float64)))
    angle = (words >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.float64) * (np.pi / 2**31)
    return radius * np.cos(angle), radius * np.sin(angle), radius


def reference(key: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(size,) normals in double precision, and their radii."""
    blocks = -(-size // BLOCK)
    words = np.uint64(key % WORD) + np.arange(blocks * LANES, dtype=np.uint64) * np.uint64(STEP)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(FACTORS[0])
    words = (words ^ (words >> np.uint64(27))) * np.uint64(FACTORS[1])
    cosines, sines, radii = (part.reshape(blocks, LANES) for part in box_muller(words ^ (words >> np.uint64(31))))
    return np.stack([cosines, sines], 1).reshape(-1)[:size], np.stack([radii, radii], 1).reshape(-1)[:size]


@each
def test_first_numbers_are_those_of_the_published_splitmix64(draw: Normals) -> None:
    drawn = draw((1234567 + STEP) % WORD, BLOCK).double().numpy()
    cosines, sines, radii = box_muller(np.array(PUBLISHED, dtype=np.uint64))
    np.testing.assert_array_less(np.abs(drawn[:5] - cosines), 1e-6 * radii)
    np.testing.assert_array_less(np.abs(drawn[LANES : LANES + 5] - sines), 1e-6 * radii)


@each
@pytest.mark.parametrize("low", [0, 1, 0x40000000, 0x5A827999, 0x5A82799A, 0x7FFFFF00, 0x7FFFFFBF, 0x7FFFFFFF])
def test_words_at_the_edges_of_logarithm_and_octants(draw: Normals, low: int) -> None:
    for eighth in range(8):
        for near in (-1, 0, 1):
            word = (eighth * 0x20000000 + near) % (1 << 32) << 32 | low
            cosine, sine, radius = (float(part[0]) for part in box_muller(np.array([word], dtype=np.uint64)))
            drawn = draw(state_of(word), BLOCK)
            assert float(drawn[0]) == pytest.approx(cosine, abs=1e-6 * radius)
            assert float(drawn[LANES]) == pytest.approx(sine, abs=1e-6 * radius)


@each
@pytest.mark.parametrize("size", [1, 127, 128, 129, 255, 256, 257, 16385, 32769, (1 << 17) + 1])
def test_every_number_matches_double_precision(draw: Normals, size: int) -> None:
    """To 1e-6 of the radius, for signed and unsigned keys; a draw's length does not change its numbers."""
    for key in (0x0123456789ABCDEF, 0xFEDCBA9876543210, -5):
        drawn, (expected, radius) = draw(key, size), reference(key, size)
        assert drawn.dtype == torch.float32
        assert (np.abs(drawn.double().numpy() - expected) <= 1e-6 * radius).all()


@compiled
def test_numbers_do_not_depend_on_the_number_of_threads() -> None:
    one = normals(77, (1 << 18) + 77)
    torch.set_num_threads(2)
    try:
        assert torch.equal(normals(77, (1 << 18) + 77), one)
    finally:
        torch.set_num_threads(1)


def test_default_dtype_and_device_do_not_matter() -> None:
    expected = normals(77, 1000)
    torch.set_default_dtype(torch.float64)
    with torch.device("meta"):
        assert torch.equal(normals(77, 1000), expected)


@pytest.fixture(scope="module")
def million() -> np.ndarray:
    return normals(0x5DEECE66D5DEECE6, 1 << 20).double().numpy()


def test_distribution_is_normal(million: np.ndarray) -> None:
    """Kolmogorov and Smirnov on a quarter of the numbers; failure rate 1e-4."""
    assert stats.kstest(million[::4], "norm").pvalue > FAILURE_RATE


def test_first_six_moments(million: np.ndarray) -> None:
    """0, 1, 0, 3, 0, 15; each beyond 4.9 standard errors at a rate of 1e-6."""
    for order in range(1, 7):
        truth, square = (0.0 if k % 2 else float(math.prod(range(1, k, 2))) for k in (order, 2 * order))
        error = math.sqrt((square - truth**2) / len(million))
        assert abs((million**order).mean() - truth) < 4.9 * error, order


def test_neighbors_and_streams_are_uncorrelated(million: np.ndarray) -> None:
    """Numbers at several lags, their squares, and draws of neighboring keys; 4.9 standard errors, rate 1e-6 each."""
    others = [normals(0x5DEECE66D5DEECE6 + k, 1 << 20).double().numpy() for k in (1, 2)]
    pairs = [(million[:-lag], million[lag:]) for lag in (1, 2, 127, 128, 129, 256)]
    for left, right in [*pairs, *((million, other) for other in others)]:
        assert abs((left * right).mean()) < 4.9 / math.sqrt(len(left))
        assert abs(((left**2 - 1) * (right**2 - 1)).mean()) < 4.9 * 2 / math.sqrt(len(left))
