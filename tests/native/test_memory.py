"""Long vectors ask for large pages, within their own memory; others do not."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import pytest
import torch

from bayeswell.native import memory

LONG = 2**23  # float32 numbers of 32 MB


@pytest.mark.skipif(sys.platform != "linux", reason="madvise of large pages is Linux's")
def test_long_vectors_ask_for_large_pages_of_their_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    own = memory._advise()

    def noted(begin: Any, length: Any, advice: int) -> int:
        asked.append((begin.value, length.value, advice))
        result: int = own(begin, length, advice)
        return result

    monkeypatch.setattr(memory, "_advise", lambda: noted)
    memory.empty_like(torch.empty(LONG - 1))
    memory.empty_like(torch.empty(LONG, device="meta"))
    assert not asked
    found = memory.empty_like(torch.empty(LONG))
    ((begin, length, advice),) = asked
    assert advice == mmap.MADV_HUGEPAGE
    assert begin % mmap.PAGESIZE == length % mmap.PAGESIZE == 0
    first, end = found.data_ptr(), found.data_ptr() + 4 * LONG
    assert first <= begin < first + mmap.PAGESIZE
    assert end - mmap.PAGESIZE < begin + length <= end
    assert found.fill_(2.5).sum() == 2.5 * LONG


def test_without_advice_it_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_advise", lambda: None)
    found = memory.empty_like(torch.empty(LONG))
    assert found.shape == (LONG,)
    assert found.dtype == torch.float32
