"""Random numbers from explicit generators; ``generator=None`` means torch's global one.

Long float32 vectors on a CPU come from a counter-based generator: number i of a draw is a function of i and of one
64-bit key, which is drawn from the given generator. All cores can compute it, and a seed reproduces it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..ops import in_transform, normals

COUNTER_SIZE = 1 << 15
"""Shorter draws come from torch's own generator, which is faster for them."""


def make_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a new generator with this seed."""
    return torch.Generator(device=device).manual_seed(seed)


def derived_generator(generator: torch.Generator | None) -> torch.Generator:
    """Return a CPU generator seeded by one number of another."""
    device = "cpu" if generator is None else generator.device
    return make_generator(int(torch.randint(0, 2**62, (), generator=generator, device=device)))


def standard_normal(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return independent N(0, 1) numbers with the dtype and device of ``like``."""
    size = math.prod(shape)
    counted = like.device.type == "cpu" and like.dtype == torch.float32 and size >= COUNTER_SIZE and not in_transform()
    if not counted:
        return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)
    key = torch.empty(1, dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    return normals(int(key), size).view(tuple(shape))


def random_signs(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return independent fair signs (-1 or 1) with the dtype and device of ``like``."""
    bits = torch.randint(0, 2, tuple(shape), generator=generator, dtype=torch.int8, device=like.device)
    return bits.to(like.dtype).mul_(2).sub_(1)


@contextmanager
def replayable(generator: torch.Generator | None, device: torch.device | str = "cpu") -> Iterator[None]:
    """Restore the generator and torch's global one afterwards: two passes inside two such blocks see the same noise."""
    state = None if generator is None else generator.get_state()
    kind = torch.device(device).type
    try:
        with torch.random.fork_rng(
            devices=[] if kind == "cpu" else [device], device_type="cuda" if kind == "cpu" else kind
        ):
            yield
    finally:
        if generator is not None and state is not None:
            generator.set_state(state)


def derive_seed(seed: int, *names: object) -> int:
    """Return a seed of 63 bits that depends on ``seed`` and the names alone."""
    digest = hashlib.sha256(repr((int(seed), *names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
