"""Memory for long vectors, in large pages where the system gives them on request.

Above 32 MB the C library returns memory to the system as soon as it is free, and asks for it anew at the next step. It
comes page by page, each filled with zeros: with pages of 4 KB that takes several times as long as writing the vector,
with 2 MB hardly longer. Many Linux systems give large pages only to memory for which they are asked (``madvise``).
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LEAST_BYTES = 2**25
"""The largest piece that glibc may keep for itself (DEFAULT_MMAP_THRESHOLD_MAX)."""


def empty_like(x: Tensor) -> Tensor:
    """``torch.empty_like``, in large pages if it is a long vector in the memory of the CPU."""
    result = torch.empty_like(x)
    size = result.numel() * result.element_size()
    advise = _advise()
    if size >= _LEAST_BYTES and result.device.type == "cpu" and advise is not None:
        page = mmap.PAGESIZE
        begin, end = -(-result.data_ptr() // page) * page, (result.data_ptr() + size) // page * page
        # Only advice: where the system does not take it the memory is as it was.
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
    return result


@cache
def _advise() -> Any:
    """The C library's ``madvise``; None where it has no large pages to give."""
    if sys.platform != "linux" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    return getattr(ctypes.CDLL(None), "madvise", None)
