"""The counter-based generator behind long float32 draws: what it computes, how it is distributed, what repeats it.

A perfect generator would fail a statistical test at one seed in 10^4 or fewer; the seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from bayeswell import native
from bayeswell.random import (
    LEAST_COUNTED,
    draw_key,
    draw_keys,
    keys_from,
    make_generator,
    normals_of_key,
    normals_of_keys,
    random_signs,
    replayable,
    standard_normal,
)
from bayeswell.types import Step
from nets import lift

LIKE = torch.zeros((), dtype=torch.float32)
WORD = 1 << 64
STEP = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
LANES = 128
BLOCK = 2 * LANES
FAILURE_RATE = 1e-4
FAR_OUT = 4.5
"""Standard errors: a normal statistic is beyond them once in 150,000 times."""

PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
"""SplitMix64's first outputs for the seed 1234567, as they stand in many libraries' tests."""

LARGEST = math.sqrt(64 * math.log(2))
"""sqrt(-2 log 2^-32): no number is further from zero than the one of the smallest u."""

Normals = Callable[[int, int], Tensor]


def eager(key: int, size: int) -> Tensor:
    """By torch's operations."""
    with native.disabled():
        return normals_of_key(key, size)


needs_library = pytest.mark.skipif(not native.available(), reason="the compiled library is not there, or turned off")
each_way = pytest.mark.parametrize(
    "normals", [pytest.param(eager, id="eager"), pytest.param(normals_of_key, id="native", marks=needs_library)]
)


def long_draw(size: int, seed: int) -> Tensor:
    """As the library draws noise."""
    return standard_normal((size,), like=LIKE, generator=make_generator(seed))


def in_pairs(values: Tensor) -> tuple[Tensor, Tensor]:
    """The cosines and the sines of whole blocks, in the order of their counters."""
    blocks = values.view(-1, 2, LANES)
    return blocks[:, 0].reshape(-1), blocks[:, 1].reshape(-1)


# ---------------------------------------------------------------------------------------------------------
# The same numbers by another road: plain Python's integers, and numpy's unsigned ones.


def splitmix(state: int) -> int:
    """SplitMix64's output for one state, as in Vigna's splitmix64.c after its increment."""
    word = state
    word = ((word ^ (word >> 30)) * FACTORS[0]) % WORD
    word = ((word ^ (word >> 27)) * FACTORS[1]) % WORD
    return word ^ (word >> 31)


def state_of(output: int) -> int:
    """The state with this output: the mixing is a bijection."""
    word = output
    for shift, factor in ((31, FACTORS[1]), (27, FACTORS[0]), (30, 1)):
        known = word
        for _ in range(64 // shift):
            known = word ^ (known >> shift)
        word = known * pow(factor, -1, WORD) % WORD
    return word


def normals_of_word(word: int) -> tuple[float, float, float]:
    """cosine, sine and radius of Box and Muller in double precision; u as far as float32 resolves it."""
    uniform = np.float32(word & 0x7FFFFFFF) * np.float32(2.0**-31) + np.float32(2.0**-32)
    radius = math.sqrt(-2 * math.log(float(uniform)))
    turn = word >> 32
    angle = math.pi * (turn - (1 << 32) if turn >> 31 else turn) / 2**31
    return radius * math.cos(angle), radius * math.sin(angle), radius


def reference(key: int, size: int) -> tuple[Tensor, Tensor]:
    """(size,) normals in double precision, in blocks, and their radii."""
    blocks = -(-size // BLOCK)
    words = np.uint64(key % WORD) + np.arange(blocks * LANES, dtype=np.uint64) * np.uint64(STEP)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(FACTORS[0])
    words = (words ^ (words >> np.uint64(27))) * np.uint64(FACTORS[1])
    words = words ^ (words >> np.uint64(31))
    low = (words & np.uint64(0x7FFFFFFF)).astype(np.float32)
    radius = np.sqrt(-2 * np.log((low * np.float32(2.0**-31) + np.float32(2.0**-32)).astype(np.float64)))
    angle = (words >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.float64) * (np.pi / 2**31)
    radius = radius.reshape(blocks, LANES)
    angle = angle.reshape(blocks, LANES)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    radii = np.stack([radius, radius], axis=1).reshape(-1)
    return torch.from_numpy(pairs)[:size], torch.from_numpy(radii)[:size]


def assert_near(found: Tensor, expected: Tensor, radius: Tensor) -> None:
    """To 1e-6 of the radius: an angle near a zero of the cosine leaves no more."""
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    beyond = (found.double() - expected.double()).abs() > 1e-6 * radius
    assert not bool(beyond.any()), (
        f"{int(beyond.sum())} of {len(found)} are off, first number {int(beyond.byte().argmax())}"
    )


def test_the_reference_is_splitmix64() -> None:
    assert [splitmix((1234567 + (i + 1) * STEP) % WORD) for i in range(5)] == PUBLISHED
    for word in [*PUBLISHED, 0, 1, WORD - 1, 1 << 63]:
        assert splitmix(state_of(word)) == word


@each_way
def test_known_answers(normals: Normals) -> None:
    """Counters from 0: the key one step after 1234567 begins with the published outputs."""
    drawn = normals((1234567 + STEP) % WORD, BLOCK)
    for i, word in enumerate(PUBLISHED):
        cosine, sine, radius = normals_of_word(word)
        assert float(drawn[i]) == pytest.approx(cosine, abs=1e-6 * radius)
        assert float(drawn[LANES + i]) == pytest.approx(sine, abs=1e-6 * radius)


@each_way
@pytest.mark.parametrize("low", [0, 1, 2, 0x40000000, 0x5A827999, 0x5A82799A, 0x7FFFFF00, 0x7FFFFFBF, 0x7FFFFFFF])
def test_extreme_words(normals: Normals, low: int) -> None:
    """Keys made so that their first word is at an edge: of the logarithm, and of every eighth of a turn."""
    for eighth in range(8):
        for near in (-1, 0, 1, 77):
            high = (eighth * 0x20000000 + near) % (1 << 32)
            # Bit 31 is used by neither half.
            word = high << 32 | (eighth & 1) << 31 | low
            cosine, sine, radius = normals_of_word(word)
            drawn = normals(state_of(word), BLOCK)
            assert float(drawn[0]) == pytest.approx(cosine, abs=1e-6 * radius)
            assert float(drawn[LANES]) == pytest.approx(sine, abs=1e-6 * radius)


@each_way
def test_the_largest_number_and_the_smallest(normals: Normals) -> None:
    assert float(normals(state_of(0), BLOCK)[0]) == pytest.approx(LARGEST, rel=1e-6)
    assert pytest.approx(6.66, abs=0.001) == LARGEST
    # u rounds to 1 here: a radius of 0, not the root of something below it.
    assert float(normals(state_of(0x7FFFFFFF), BLOCK)[0]) == 0


SIZES = (0, 1, 127, 128, 129, 255, 256, 257, 16384, 16385, 32767, 32768, 32769, (1 << 17) - 1, 1 << 17, (1 << 17) + 1)


@each_way
@pytest.mark.parametrize("key", [0x0123456789ABCDEF, 0xFEDCBA9876543210])
def test_every_number_of_every_size(normals: Normals, key: int) -> None:
    """All of them against double precision; a draw's length does not change its numbers."""
    for size in SIZES:
        drawn = normals(key, size)
        expected, radius = reference(key, size)
        assert_near(drawn, expected, radius)
        assert drawn.is_contiguous()


@needs_library
def test_native_and_eager_are_the_same_to_rounding() -> None:
    key = 0xC0FFEE1234567890
    for size in SIZES[1:]:
        assert_near(normals_of_key(key, size), eager(key, size), reference(key, size)[1])


@each_way
def test_bits_do_not_depend_on_the_number_of_threads(normals: Normals) -> None:
    key, size = 0x5DEECE66D5DEECE6, (1 << 18) + 77
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = normals(key, size)
        torch.set_num_threads(2)
        both = normals(key, size)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, both)


@each_way
def test_numbers_are_float32_on_the_cpu_whatever_torch_makes_by_default(normals: Normals) -> None:
    expected = normals(77, 1000)
    torch.set_default_dtype(torch.float64)
    assert_near(normals(77, 1000), expected, torch.ones(1000))
    torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        drawn = normals(77, 1000)
        key = draw_key(make_generator(3))
    assert torch.equal(drawn, expected)
    assert key == draw_key(make_generator(3))


# ---------------------------------------------------------------------------------------------------------
# The distribution.


@pytest.fixture(scope="module")
def millions() -> Tensor:
    """2^22 numbers of one key."""
    return long_draw(1 << 22, seed=1)


def assert_uniform(values: Tensor) -> None:
    """By the test of Kolmogorov and Smirnov: scipy.stats.kstest, in a fraction of its time for millions."""
    count, ordered = len(values), np.sort(values.numpy())
    steps = np.arange(count + 1) / count
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    assert scipy.stats.kstwo.sf(distance, count) > FAILURE_RATE


@pytest.fixture(scope="module")
def places(millions: Tensor) -> Tensor:
    """Where in (0, 1) they are by their distribution function."""
    return torch.special.ndtr(millions.double())


def test_kolmogorov_and_smirnov(places: Tensor) -> None:
    """One long draw, and many short ones from one generator."""
    generator = make_generator(2)
    short = torch.cat([standard_normal((LEAST_COUNTED,), like=LIKE, generator=generator) for _ in range(32)])
    for values in (places, torch.special.ndtr(short.double())):
        assert_uniform(values)


def test_moments(millions: Tensor) -> None:
    """The first six: 0, 1, 0, 3, 0, 15, with standard errors from the moments of twice the order."""

    def moment(order: int) -> float:
        return 0.0 if order % 2 else float(math.prod(range(1, order, 2)))

    values = millions.double()
    powers = torch.ones_like(values)
    for order in range(1, 7):
        powers *= values
        error = math.sqrt((moment(2 * order) - moment(order) ** 2) / len(values))
        assert float(powers.mean()) == pytest.approx(moment(order), abs=FAR_OUT * error)


def test_tails() -> None:
    """Counts beyond 3, 4 and 5 standard deviations on either side are Poisson's."""
    generator = make_generator(3)
    beyond = {bound: [0, 0] for bound in (3.0, 4.0, 5.0)}
    largest, count, size = 0.0, 16, 1 << 21
    for _ in range(count):
        values = standard_normal((size,), like=LIKE, generator=generator)
        largest = max(largest, float(values.abs().max()))
        outside = values[values.abs() > 3]
        for bound, found in beyond.items():
            found[0] += int((outside > bound).sum())
            found[1] += int((outside < -bound).sum())
    for bound, found in beyond.items():
        expected = count * size * scipy.stats.norm.sf(bound)
        low, high = scipy.stats.poisson.interval(1 - FAILURE_RATE / 6, expected)
        for side in found:
            assert low <= side <= high, f"{side} beyond {bound:g}, expected {expected:.1f}"
    assert 5 < largest <= LARGEST * (1 + 1e-6)


def test_radius_and_angle(millions: Tensor) -> None:
    """Half the squared radius is exponential, the angle uniform, and neither says anything about the other."""
    cosine, sine = (half.double() for half in in_pairs(millions))
    energy = (cosine.square() + sine.square()) / 2
    angle = torch.atan2(sine, cosine) / (2 * math.pi) + 0.5
    assert_uniform(-torch.expm1(-energy[: 1 << 20]))
    assert_uniform(angle[: 1 << 20])
    assert_uniform_cells(torch.exp(-energy), angle)


# ---------------------------------------------------------------------------------------------------------
# Independence.


def assert_uniform_cells(first: Tensor, second: Tensor, cells: int = 64) -> None:
    """Pearson's chi-square of the pairs over cells x cells equal squares; too even is as bad as too uneven."""
    place = (first * cells).long().clamp_(0, cells - 1) * cells + (second * cells).long().clamp_(0, cells - 1)
    found = torch.bincount(place, minlength=cells * cells).double()
    expected = len(first) / cells**2
    chance = scipy.stats.chi2.cdf(float((found - expected).square().sum()) / expected, cells**2 - 1)
    assert FAILURE_RATE / 2 < chance < 1 - FAILURE_RATE / 2


def assert_unrelated(first: Tensor, second: Tensor, bound: float = FAR_OUT) -> None:
    """The numbers, their squares, and the numbers of one with the squares of the other are uncorrelated."""
    for left in (first, (first.square() - 1) / math.sqrt(2)):
        for right in (second, (second.square() - 1) / math.sqrt(2)):
            errors = float((left.double() @ right.double()) / math.sqrt(len(left)))
            assert abs(errors) < bound


@pytest.mark.parametrize("lag", [1, 2, 127, 128, 129, 255, 256, 257, 16384, 32768])
def test_neighbours_are_unrelated(millions: Tensor, lag: int) -> None:
    values = millions[: 1 << 21]
    assert_unrelated(values[:-lag], values[lag:])


def test_cosine_and_sine_are_unrelated(millions: Tensor) -> None:
    cosine, sine = in_pairs(millions)
    assert_unrelated(cosine, sine)
    # ... nor is either related to the other's neighbour.
    assert_unrelated(cosine[1:], sine[:-1])
    assert_unrelated(cosine[:-1], sine[1:])


@pytest.mark.parametrize("lag", [1, 128, 256])
def test_pairs_fill_the_plane_evenly(places: Tensor, lag: int) -> None:
    """Each number is in one pair only."""
    rows = places.view(-1, lag)
    assert_uniform_cells(rows[0::2].reshape(-1), rows[1::2].reshape(-1))


def gram_errors(rows: Tensor) -> Tensor:
    """Correlations of every two rows, in standard errors."""
    rows = rows.double()
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    return (rows @ rows.T)[first, second] / math.sqrt(rows.shape[1])


def assert_rows_unrelated(rows: Tensor) -> None:
    """The largest of k correlations is within Bonferroni's bound, and their mean square is 1 +- sqrt(2/k)."""
    for values in (rows, (rows.square() - 1) / math.sqrt(2)):
        errors = gram_errors(values)
        assert float(errors.abs().max()) < scipy.stats.norm.isf(FAILURE_RATE / 2 / len(errors))
        assert float(errors.square().mean()) == pytest.approx(1, abs=FAR_OUT * math.sqrt(2 / len(errors)))


def test_successive_draws_are_unrelated() -> None:
    """As the steps of a training run draw them."""
    generator = make_generator(4)
    draws = [standard_normal((LEAST_COUNTED,), like=LIKE, generator=generator) for _ in range(100)]
    assert_rows_unrelated(torch.stack(draws))


def test_successive_seeds_are_unrelated() -> None:
    """As the members of an ensemble draw them."""
    assert_rows_unrelated(torch.stack([long_draw(LEAST_COUNTED, seed) for seed in range(64)]))


def test_keys_that_differ_by_one_or_by_one_bit_are_unrelated() -> None:
    key, size = 0x9A7B330155E0D1C4, 1 << 17
    drawn = normals_of_key(key, size)
    for other in [key + 1, key - 1, *(key ^ (1 << bit) for bit in range(64))]:
        assert_unrelated(drawn, normals_of_key(other, size), bound=5.2)  # of 264 statistics
    assert_rows_unrelated(torch.stack([normals_of_key(small, LEAST_COUNTED) for small in range(48)]))


def test_two_bits_that_are_thirty_apart_may_cancel() -> None:
    """What SplitMix64 does not promise, and why keys are drawn and never computed from one another.

    Its first step adds bit b + 30 to bit b: keys that differ in both differ afterwards in one high bit only, of which
    the rest makes too little. Two random keys are like that with a chance of about 2^-58.
    """
    key, size = 0x9A7B330155E0D1C4, 1 << 18
    drawn, other = (normals_of_key(k, size).double() for k in (key ^ 1 << 59, key ^ 1 << 29))
    assert float(drawn @ other) / size == pytest.approx(0.049, abs=FAR_OUT / math.sqrt(size))


def test_a_key_some_steps_on_is_the_same_sequence_moved() -> None:
    """What the generator is not: keys that differ by j steps, j small, share all but j of their pairs."""
    key, size = 0x13198A2E03707344, 1 << 15
    cosine, sine = in_pairs(normals_of_key(key, size))
    for moved in (1, 5, 128):
        later = in_pairs(normals_of_key((key + moved * STEP) % WORD, size))
        torch.testing.assert_close(later[0][:-moved], cosine[moved:], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(later[1][:-moved], sine[moved:], rtol=1e-6, atol=1e-6)


def places_in_the_cycle(keys: list[int]) -> list[int]:
    """How many steps each key is from 0: all states lie on one cycle of 2^64 steps."""
    inverse = pow(STEP, -1, WORD)
    return sorted(key * inverse % WORD for key in keys)


def smallest_gap(places: list[int]) -> int:
    """Between any two, around the cycle."""
    return min((after - before) % WORD for before, after in zip(places, [*places[1:], places[0]], strict=True))


@pytest.mark.parametrize("origin", ["one generator", "successive seeds"])
def test_drawn_keys_do_not_overlap(origin: str) -> None:
    """Keys are uniform on the cycle: of k draws with n pairs two overlap with probability below k^2 n / 2^64.

    That is 1e-4 for the 10^4 draws and 2^24 pairs here. (A run of 10^5 steps with half a million weights: 2e-4.)
    """
    generator = make_generator(6)
    if origin == "one generator":
        keys = [draw_key(generator) for _ in range(10_000)]
    else:
        keys = [draw_key(make_generator(seed)) for seed in range(2_000)]
    places = places_in_the_cycle(keys)
    assert smallest_gap(places) > 1 << 24
    assert scipy.stats.kstest([place / WORD for place in places], "uniform").pvalue > FAILURE_RATE
    for bit in range(64):
        ones = sum(key >> bit & 1 for key in keys)
        assert abs(ones - len(keys) / 2) < FAR_OUT * math.sqrt(len(keys)) / 2


def test_planted_overlap_is_seen() -> None:
    keys = [draw_key(make_generator(seed)) for seed in range(100)]
    keys.append((keys[17] + 1000 * STEP) % WORD)
    assert smallest_gap(places_in_the_cycle(keys)) == 1000


# ---------------------------------------------------------------------------------------------------------
# Seeds, states and shapes.


def test_a_seed_repeats_the_draws() -> None:
    first, second = make_generator(11), make_generator(11)
    drawn = [standard_normal((40_000,), like=LIKE, generator=first) for _ in range(3)]
    again = [standard_normal((40_000,), like=LIKE, generator=second) for _ in range(3)]
    for one, other in zip(drawn, again, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], standard_normal((40_000,), like=LIKE, generator=make_generator(12)))


def test_a_draw_moves_the_generator_by_one_key_whatever_its_size() -> None:
    one, long, longer = (make_generator(11) for _ in range(3))
    draw_key(one)
    standard_normal((LEAST_COUNTED,), like=LIKE, generator=long)
    standard_normal((3, LEAST_COUNTED), like=LIKE, generator=longer)
    assert torch.equal(one.get_state(), long.get_state())
    assert torch.equal(one.get_state(), longer.get_state())
    assert not torch.equal(one.get_state(), make_generator(11).get_state())


def test_a_saved_state_goes_on_identically() -> None:
    generator = make_generator(13)
    standard_normal((50_000,), like=LIKE, generator=generator)
    saved = generator.get_state()
    following = [standard_normal((size,), like=LIKE, generator=generator) for size in (50_000, 10, 40_000)]
    fresh = torch.Generator()
    fresh.set_state(saved)
    for expected in following:
        assert torch.equal(standard_normal((len(expected),), like=LIKE, generator=fresh), expected)


def test_without_a_generator_the_global_one_draws() -> None:
    torch.manual_seed(17)
    drawn = [standard_normal((40_000,), like=LIKE) for _ in range(2)]
    own = make_generator(17)
    for expected in drawn:
        assert torch.equal(standard_normal((40_000,), like=LIKE, generator=own), expected)
    before = torch.get_rng_state()
    standard_normal((40_000,), like=LIKE, generator=make_generator(18))
    assert torch.equal(torch.get_rng_state(), before), "a generator of its own leaves the global one alone"


def test_replayable_blocks_see_the_same_long_draws() -> None:
    generator = make_generator(19)
    drawn = []
    for _ in range(2):
        with replayable(generator, LIKE.device):
            given = standard_normal((40_000,), like=LIKE, generator=generator)
            drawn.append((given, standard_normal((40_000,), like=LIKE)))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert torch.equal(drawn[0][1], drawn[1][1])


def test_shapes_share_the_flat_numbers() -> None:
    flat = long_draw(120_000, seed=23)
    for shape in [(1, 120_000), (3, 40_000), (2, 3, 20_000), torch.Size([120_000, 1])]:
        drawn = standard_normal(shape, like=LIKE, generator=make_generator(23))
        assert drawn.shape == tuple(shape)
        assert torch.equal(drawn.reshape(-1), flat)


def test_short_draws_and_other_dtypes_are_torchs_own() -> None:
    cases: list[tuple[tuple[int, ...], torch.dtype]] = [
        ((LEAST_COUNTED - 1,), torch.float32),
        ((5, 7), torch.float32),
        ((LEAST_COUNTED + 1,), torch.float64),
        ((LEAST_COUNTED + 1,), torch.bfloat16),
    ]
    for shape, dtype in cases:
        drawn = standard_normal(shape, like=torch.zeros((), dtype=dtype), generator=make_generator(29))
        assert torch.equal(drawn, torch.randn(shape, generator=make_generator(29), dtype=dtype))
    counted = long_draw(LEAST_COUNTED, seed=29)
    assert not torch.equal(counted, torch.randn(LEAST_COUNTED, generator=make_generator(29)))
    assert torch.equal(counted, normals_of_key(draw_key(make_generator(29)), LEAST_COUNTED))
    assert standard_normal((LEAST_COUNTED,), like=torch.zeros(1, device="meta")).device.type == "meta"


def test_inside_vmap_every_row_has_noise_of_its_own() -> None:
    def draw(_: Tensor) -> Tensor:
        return standard_normal((LEAST_COUNTED,), like=LIKE)

    different = torch.vmap(draw, randomness="different")(torch.zeros(3))
    assert_rows_unrelated_briefly(different)
    same = torch.vmap(draw, randomness="same")(torch.zeros(2))
    assert torch.equal(same[0], same[1])


def assert_rows_unrelated_briefly(rows: Tensor) -> None:
    """For few rows: no two alike, and each of variance 1."""
    assert float(gram_errors(rows).abs().max()) < FAR_OUT
    variances = rows.double().square().mean(1)
    torch.testing.assert_close(
        variances, torch.ones_like(variances), rtol=0, atol=FAR_OUT * math.sqrt(2 / rows.shape[1])
    )


def test_antithetic_draws_are_pairs_of_long_draws() -> None:
    """(draws, weights): the second half is minus the first, which is one draw from the generator."""
    model = lift(nn.Linear(200, 100), estimator={"name": "weight_sampling", "draws": 4, "antithetic": True})
    noise = model.estimator.noise(model, Step(None, generator=make_generator(31)))
    assert noise is not None
    size = 200 * 100 + 100
    assert torch.equal(noise[2:], -noise[:2])
    assert torch.equal(noise[:2], standard_normal((2, size), like=LIKE, generator=make_generator(31)))
    assert_rows_unrelated_briefly(noise[:2])


def test_signs_are_fair_and_unrelated() -> None:
    """Every place within 64, and neighbours near and far."""
    signs = random_signs((1 << 14, 64), like=LIKE, generator=make_generator(37))
    assert signs.dtype == LIKE.dtype
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert float(signs.sum(0).abs().max()) < 5.2 * math.sqrt(1 << 14)  # of 64 statistics
    flat = signs.reshape(-1).double()
    for lag in (1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 128, 4096):
        assert abs(float(flat[:-lag] @ flat[lag:])) < FAR_OUT * math.sqrt(len(flat))
    again = random_signs((1 << 14, 64), like=LIKE, generator=make_generator(37))
    assert torch.equal(signs, again)
    assert not torch.equal(signs, random_signs((1 << 14, 64), like=LIKE, generator=make_generator(38)))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (63,), (3, 43), (2, 64)])
def test_signs_of_every_shape(shape: tuple[int, ...]) -> None:
    signs = random_signs(shape, like=LIKE.double(), generator=make_generator(41))
    assert signs.shape == shape
    assert signs.dtype == torch.float64
    assert bool((signs.abs() == 1).all())


@pytest.mark.parametrize("start", [0, 256, 1000, 123_457])
def test_a_piece_of_a_draw_is_that_piece(start: int) -> None:
    """Numbers from any place on, without those before; keys near both ends of 64 bits wrap round."""
    keys = torch.tensor([0, -1, (1 << 63) - 1, -(1 << 63), int(draw_keys(1, make_generator(4)))])
    found = normals_of_keys(keys, 37, start)
    for key, row in zip(keys.tolist(), found, strict=True):
        torch.testing.assert_close(row, normals_of_key(key % WORD, start + 37)[start:], rtol=0, atol=0)
    with pytest.raises(ValueError, match="start = 100 "):
        keys_from(keys, 100)
