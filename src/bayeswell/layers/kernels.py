"""torch's fused kernels: they read weights past their layer's forward, skip modules, or lack a derivative.

torch can turn them off for the whole process only. Each block here therefore has the process for itself
(``guards.alone``): no other thread computes with other kernels than it would have otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..guards import alone
from ..modes import HasModes

_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
_attends: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def without_fused_attention(net: nn.Module) -> AbstractContextManager[None]:
    """Let the transformer layers of this network, if it has any, call their submodules one by one within the block."""
    if torch.compiler.is_compiling():
        return _without_fused_attention()
    attends = _attends.get(net)
    if attends is None:
        attends = _attends[net] = any(isinstance(module, _FUSED) for module in net.modules())
    return _without_fused_attention() if attends else nullcontext()


@contextmanager
def _without_fused_attention() -> Iterator[None]:
    with alone():
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Scaled dot products made of torch's elementary operations, which can be differentiated twice."""
    with alone(), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def plain_kernels(net: HasModes) -> Iterator[None]:
    """None of torch's fused paths within the block.

    They have no derivative in forward mode or of single examples, cuDNN's recurrent layers none in evaluation mode.
    """
    # Only recurrent layers need all of it; convolutions are faster with them.
    fused = not any(isinstance(module, nn.RNNBase) for module in net.modules())
    switches: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.cudnn)
    with alone(), _without_fused_attention(), sdpa_kernel(SDPBackend.MATH):
        before = [switch.enabled for switch in switches]
        try:
            for switch, enabled in zip(switches, before, strict=True):
                switch.enabled = enabled and fused
            yield
        finally:
            for switch, enabled in zip(switches, before, strict=True):
                switch.enabled = enabled
