"""Modes of a network and torch's kernels, changed for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards each submodule has the mode it had before.

    The lock of a ``BayesianModule`` is held, so that no other thread sees it in the wrong mode.
    """
    with getattr(model, "lock", nullcontext()):
        training = [module for module in model.modules() if module.training]
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True


class _PlainKernels:
    """Counts the blocks that need plain kernels; the first one switches and the last one switches back."""

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.before: Any = None

    def enter(self) -> None:
        with self.lock:
            self.blocks += 1
            if self.blocks == 1:
                self.before = torch.backends.mha.get_fastpath_enabled(), sdpa_kernel(SDPBackend.MATH)
                torch.backends.mha.set_fastpath_enabled(False)
                self.before[1].__enter__()

    def leave(self) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                fast, attention = self.before
                attention.__exit__(None, None, None)
                torch.backends.mha.set_fastpath_enabled(fast)


_plain = _PlainKernels()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention made of elementary operations inside the block.

    torch's fused kernels lack second derivatives, forward-mode derivatives and derivatives of single examples. torch
    switches them for the whole process: other threads meanwhile compute the same with plain kernels.
    """
    _plain.enter()
    try:
        yield
    finally:
        _plain.leave()
