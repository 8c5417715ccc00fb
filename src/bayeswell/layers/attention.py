"""torch's fused attention path: it reads weights and skips modules past their own forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_fused_attention() -> Iterator[None]:
    """Let transformer layers call their submodules one by one within the block."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
