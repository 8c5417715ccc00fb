"""Memory for long vectors, in large pages, and the same again in the next step.

Above 32 MB the C library returns memory to the system as soon as it is free, and asks for it anew at the next step. It
comes page by page, each filled with zeros: with pages of 4 KB that takes several times as long as writing the vector.
Many Linux systems give large pages, of 2 MB, only to memory for which they are asked (``madvise``). On virtual machines
that report what they do not use to their host even a large page comes slowly, from there.

So what a long vector was in is kept when nobody has it any more, for the next of the same size: a few pieces, for as
long as they are asked for. They are looked after when the next long vector is made, not before; from then on the system
may take their pages back if it runs short (``MADV_FREE``). ``release`` gives all of them back at once. A tensor has its
memory to itself while anything refers to it, as any other; but it cannot be resized.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .library import available, transformed

_LEAST_BYTES = 2**25
"""The largest piece that glibc may keep for itself (DEFAULT_MMAP_THRESHOLD_MAX)."""
_MOST_KEPT = 4
"""A step asks for as many: drawn weights, and gradients of means, log stds and, in low-rank posteriors, loadings."""
_PATIENCE = 16
"""What has not been asked for while so many other pieces were is given back."""


class _Kept(NamedTuple):
    piece: mmap.mmap
    since: int


# Lists and queues change in single operations, which threads may call at any time: a piece is in one place only.
_kept: list[_Kept] = []
_in_use: dict[int, tuple[weakref.ref[Any], mmap.mmap]] = {}
_ended: deque[weakref.ref[Any]] = deque()
_requests = itertools.count()


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """``like.new_empty(shape)``; if it is long and in the memory of the CPU, then in kept memory and large pages."""
    size = math.prod(shape) * like.element_size()
    if size < _LEAST_BYTES or not _ours(like):
        return like.new_empty(shape)
    try:
        piece = _piece(size)
    except (OSError, OverflowError):  # torch says in its own words that there is no memory
        return like.new_empty(shape)
    block = (ctypes.c_char * size).from_buffer(piece)
    # The end of a tensor is noted without any code in Python: it often comes inside of `backward`, where an interrupt
    # that Python would raise in such code is lost.
    reference = weakref.ref(block, _ended.append)
    _in_use[id(reference)] = reference, piece
    # Not a view, which some functions of autograd would not let be changed in place.
    return torch.frombuffer(block, dtype=like.dtype).view(tuple(shape)).detach()


def empty_like(x: Tensor) -> Tensor:
    """``torch.empty_like``, of a long vector as in ``empty``."""
    return empty(x.shape, x) if x.is_contiguous() else torch.empty_like(x)


def release() -> None:
    """Give kept memory back to the system."""
    _collect(next(_requests))
    _kept.clear()


def _ours(like: Tensor) -> bool:
    """Whether memory in the place of such a tensor's may come from here."""
    plain = like.is_cpu and type(like) in (Tensor, nn.Parameter)
    return plain and sys.platform == "linux" and available() and not transformed()


def _piece(size: int) -> mmap.mmap:
    """So many bytes: kept ones, or new ones."""
    request = next(_requests)
    _collect(request)
    found, others = None, []
    while _kept:
        with suppress(IndexError):  # another thread was faster
            one = _kept.pop()
            if found is None and len(one.piece) == size:
                found = one.piece
            elif request - one.since <= _PATIENCE:
                others.append(one)
    _kept.extend(reversed(others))
    if found is None:
        found = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _advise(found, "MADV_HUGEPAGE")
    return found


def _collect(request: int) -> None:
    """Keep what has come free since; of too much the oldest goes."""
    while _ended:
        with suppress(IndexError):
            piece = _in_use.pop(id(_ended.popleft()))[1]
            _advise(piece, "MADV_FREE")
            _kept.append(_Kept(piece, request))
    del _kept[:-_MOST_KEPT]


def _advise(piece: mmap.mmap, advice: str) -> None:
    """Only advice: where the system does not know it or take it the memory is as it was."""
    known = getattr(mmap, advice, None)
    if known is not None:
        with suppress(OSError):
            piece.madvise(known)


def split(vector: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """``vector.split(sizes)``; the gradient of a long vector, joined of those of its pieces, is as in ``empty``."""
    long = vector.numel() * vector.element_size() >= _LEAST_BYTES
    joined = long and vector.requires_grad and _ours(vector)
    pieces: tuple[Tensor, ...] = _Split.apply(vector, tuple(sizes)) if joined else vector.split(list(sizes))
    return pieces


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.sizes = sizes
        return tuple(vector.split(sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Neither a gradient that is itself differentiated nor a batch of them, which has no memory of its own.
        if torch.is_grad_enabled() or transformed() or not all(map(torch._C._has_storage, gradients)):
            return torch.cat(gradients), None
        return torch.cat(gradients, out=empty((sum(ctx.sizes),), gradients[0])), None
