"""All noise comes from here, through explicit generators.

``generator=None`` means torch's global generator, as everywhere in torch. One call draws the noise of a
whole network: drawing it tensor by tensor costs more than the sampling itself.

torch's CPU generator (a Mersenne twister) is serial, and for the noise of half a million weights it takes about as long
as the network's own forward pass. Long float32 vectors on a CPU are therefore drawn from a counter-based generator that
every core and every vector lane can run: number i of a draw is a function of i and of one 64-bit key, which comes from
the given generator. So a draw is reproduced by the generator's seed, and a saved state goes on with the same noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from .native import available, normals, transformed

LEAST_COUNTED = 1 << 15
"""Draws of fewer numbers come from torch's own generator, which then takes less time than starting the operations."""

_LANES = 128
"""Numbers come in blocks: the cosines of so many pairs, then their sines."""

# SplitMix64 (Steele, Lea & Flood 2014) with the mixing of Stafford's variant 13; as signed numbers, which wrap alike.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIXING = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
_LAST_SHIFT = 31


def make_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own, seeded; draws on ``device``."""
    return torch.Generator(device=device).manual_seed(seed)


def seed_global_generator(seed: int) -> None:
    """``torch.manual_seed``, which takes a millisecond to note where each absent accelerator would have been seeded."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def derived_generator(generator: torch.Generator | None) -> torch.Generator:
    """A generator on the CPU, seeded by one number of another (None: torch's global one)."""
    device = "cpu" if generator is None else generator.device
    return make_generator(int(torch.randint(0, 2**62, (), generator=generator, device=device)))


def standard_normal(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Independent N(0, 1) numbers with the dtype and device of ``like``."""
    size = math.prod(shape)
    if not is_counted(size, like):
        return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)
    return normals_of_key(draw_key(generator), size).view(tuple(shape))


def is_counted(size: int, like: Tensor) -> bool:
    """Whether so many numbers come from a key: float32 on a CPU, and worth it."""
    return like.device.type == "cpu" and like.dtype == torch.float32 and size >= LEAST_COUNTED and not transformed()


def draw_key(generator: torch.Generator | None) -> int:
    """A 64-bit key, for ``normals_of_key``."""
    return int(draw_keys(1, generator)) % (1 << 64)


def draw_keys(count: int, generator: torch.Generator | None) -> Tensor:
    """(count,) int64: the bits of as many keys, the same as drawn one by one."""
    return torch.empty(count, dtype=torch.int64, device="cpu").random_(-(1 << 63), None, generator=generator)


def keys_from(keys: Tensor, start: int) -> Tensor:
    """Keys whose numbers are those of ``keys`` from number ``start`` on, which is a multiple of a block (256)."""
    if start % (2 * _LANES):
        raise ValueError(f"start = {start} is not the start of a block of {2 * _LANES}")
    return keys + _signed(start // 2 * _STEP % (1 << 64))


def normals_of_keys(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """(keys, size): the numbers ``start`` to ``start + size`` of the draw of each key."""
    skipped = start % (2 * _LANES)
    rows = [
        normals_of_key(key % (1 << 64), skipped + size)[skipped:] for key in keys_from(keys, start - skipped).tolist()
    ]
    return torch.stack(rows)


def normals_of_key(key: int, size: int) -> Tensor:
    """(size,) float32 N(0, 1) numbers on the CPU; compiled or not they are the same to rounding.

    Box and Muller: sqrt(-2 log u) cos a and sin a, with u and a the two halves of 64 random bits.
    """
    if available():
        return normals(key, size)
    blocks = -(-size // (2 * _LANES))
    words = _mixed((torch.arange(blocks * _LANES, device="cpu") * _STEP).add_(_signed(key)))
    # 31 bits and a half: u is never 0, and small u, which make the tails, are the exact ones.
    uniform = words.bitwise_and(0x7FFFFFFF).to(torch.float32).mul_(2.0**-31).add_(2.0**-32)
    radius = uniform.log_().mul_(-2).sqrt_().view(blocks, _LANES)
    angle = (words >> 32).to(torch.float32).mul_(math.pi * 2.0**-31).view(blocks, _LANES)
    pairs = uniform.new_empty(blocks, 2, _LANES)
    torch.mul(angle.cos(), radius, out=pairs[:, 0])
    torch.mul(angle.sin_(), radius, out=pairs[:, 1])
    return pairs.view(-1)[:size]


@dataclass(frozen=True)
class KeyedNoise:
    """(1, size) standard normal numbers that are known by their key, and made where they are needed."""

    key: int
    size: int

    def tensor(self) -> Tensor:
        """All of them."""
        return normals_of_key(self.key, self.size)[None]

    def block(self, start: int, stop: int) -> Tensor:
        """(stop - start,): those from ``start`` to ``stop``."""
        blocks, rest = divmod(start, 2 * _LANES)
        return normals_of_key((self.key + blocks * _LANES * _STEP) % (1 << 64), stop - start + rest)[rest:]


def _signed(word: int) -> int:
    """The 64 bits as a signed number, which torch has; sums and products wrap alike."""
    return word - (1 << 64) if word >> 63 else word


def _mixed(words: Tensor) -> Tensor:
    """SplitMix64's mixing function, in place: a bijection of 64-bit words; every bit comes to depend on every bit."""
    for shift, factor in _MIXING:
        words.bitwise_xor_(_shifted(words, shift)).mul_(factor)
    return words.bitwise_xor_(_shifted(words, _LAST_SHIFT))


def _shifted(words: Tensor, shift: int) -> Tensor:
    """To the right with zeros coming in (torch's own shift copies the sign)."""
    return (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)


def random_signs(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Independent fair signs (-1 or +1) with the dtype and device of ``like``."""
    size = math.prod(shape)
    # All 64-bit numbers but one, which is as good.
    low, high, count = -(1 << 63), (1 << 63) - 1, -(-size // 64)
    octets = torch.randint(low, high, (count,), generator=generator, device=like.device).view(torch.uint8)
    # One look-up gives eight signs: far cheaper than a random number for each.
    plain = not transformed() and type(octets) is Tensor
    table = (_kept_signs if plain else _signs_of_octets)(like.dtype, like.device)
    return table[octets.int()].view(-1)[:size].view(tuple(shape))


def _signs_of_octets(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(256, 8): the bits of each octet as signs."""
    octets, places = torch.arange(256, device=device)[:, None], torch.arange(8, device=device)
    return ((octets >> places) & 1).mul_(2).sub_(1).to(dtype)


_kept_signs = cache(_signs_of_octets)
"""Made once; not inside transforms, or of stand-ins for tensors, which must not be kept."""


@contextmanager
def replayable(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Leave the generator (and torch's global one on ``device``) as it was found.

    Two passes inside two such blocks see the same noise and the same dropout masks.
    """
    explicit = None if generator is None else generator.get_state()
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        if generator is not None and explicit is not None:
            generator.set_state(explicit)


def derive_seed(seed: int, *words: str | int) -> int:
    """A seed for one purpose: streams with different words are independent, each reproducible on its own."""
    digest = hashlib.sha256("/".join(map(str, (seed, *words))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
