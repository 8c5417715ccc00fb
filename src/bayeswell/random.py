"""All noise comes from here, through explicit generators.

``generator=None`` means torch's global generator, as everywhere in torch. One call draws the noise of a
whole network: drawing it tensor by tensor costs more than the sampling itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


def make_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own, seeded; draws on ``device``."""
    return torch.Generator(device=device).manual_seed(seed)


def standard_normal(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Independent N(0, 1) numbers with the dtype and device of ``like``."""
    return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)


def random_signs(shape: Sequence[int], *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Independent fair signs (-1 or +1) with the dtype and device of ``like``."""
    bits = torch.randint(0, 2, tuple(shape), generator=generator, device=like.device, dtype=torch.int8)
    return bits.to(like.dtype).mul_(2).sub_(1)


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
