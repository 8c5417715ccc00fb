"""Memory for long vectors, in large pages, and the same again in the next step.

Above 32 MB the C library returns memory to the system as soon as it is free, and asks for it anew at the next step. It
comes page by page, each filled with zeros: with pages of 4 KB that takes several times as long as writing the vector.
Many Linux systems give large pages, of 2 MB, only to memory for which they are asked (``madvise``). On virtual machines
that report what they do not use to their host even a large page comes slowly, from there.

So what a long vector was in is kept when nobody has it any more, for the next of the same size: a few of them, and the
system may take their pages back meanwhile if it runs short (``MADV_FREE``). A tensor has its memory to itself for as
long as anything refers to it, as any other.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from .library import transformed

_LEAST_BYTES = 2**25
"""The largest piece that glibc may keep for itself (DEFAULT_MMAP_THRESHOLD_MAX)."""
_MOST_KEPT = 3
"""The drawn weights, and the gradients of means and log stds: what a step asks for."""
_kept: list[mmap.mmap] = []


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """``like.new_empty(shape)``; if it is long and in the memory of the CPU, then in kept memory and large pages."""
    size = math.prod(shape) * like.element_size()
    if size < _LEAST_BYTES or not like.is_cpu or sys.platform != "linux" or transformed():
        return like.new_empty(shape)
    try:
        piece = _piece(size)
    except OSError:  # torch says in its own words that there is no memory
        return like.new_empty(shape)
    block = (ctypes.c_char * size).from_buffer(piece)
    weakref.finalize(block, _keep, piece).atexit = False
    return torch.frombuffer(block, dtype=like.dtype).view(tuple(shape))


def empty_like(x: Tensor) -> Tensor:
    """``torch.empty_like``, of a long vector as in ``empty``."""
    return empty(x.shape, x) if x.is_contiguous() else torch.empty_like(x)


def _piece(size: int) -> mmap.mmap:
    """So many bytes: kept ones, or new ones; then those of other sizes are not needed again."""
    for at, piece in enumerate(_kept):
        if len(piece) == size:
            return _kept.pop(at)
    _kept.clear()
    piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(piece, "MADV_HUGEPAGE")
    return piece


def _keep(piece: mmap.mmap) -> None:
    if len(_kept) < _MOST_KEPT and all(len(other) == len(piece) for other in _kept):
        _advise(piece, "MADV_FREE")
        _kept.append(piece)


def _advise(piece: mmap.mmap, advice: str) -> None:
    """Only advice: where the system does not know it or take it the memory is as it was."""
    known = getattr(mmap, advice, None)
    if known is not None:
        with suppress(OSError):
            piece.madvise(known)


def split(vector: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """``vector.split(sizes)``; the gradient of a long vector, joined of those of its pieces, is as in ``empty``."""
    long = vector.numel() * vector.element_size() >= _LEAST_BYTES
    joined = long and vector.is_cpu and vector.requires_grad and type(vector) is Tensor and not transformed()
    pieces: tuple[Tensor, ...] = _Split.apply(vector, tuple(sizes)) if joined else vector.split(list(sizes))
    return pieces


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.sizes = sizes
        return tuple(vector.split(sizes))

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, sizes: None) -> tuple[Tensor, ...]:
        return tuple(tangent.split(ctx.sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Neither a gradient that is itself differentiated nor a batch of them, which has no memory of its own.
        if torch.is_grad_enabled() or transformed() or not all(map(torch._C._has_storage, gradients)):
            return torch.cat(gradients), None
        return torch.cat(gradients, out=empty((sum(ctx.sizes),), gradients[0])), None
