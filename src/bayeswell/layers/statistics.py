"""BatchNorm layers gather running statistics of all that they see in training mode; some passes should not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..guards import guarded


@contextmanager
def kept_statistics(net: nn.Module) -> Iterator[None]:
    """Let BatchNorm layers update copies of their running statistics, and throw the copies away."""
    layers = [module for module in net.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not layers:
        yield
        return
    with guarded(net):
        kept = [dict(layer._buffers) for layer in layers]
        try:
            # Copies, not a restored value: the backward pass may still need the tensors of this pass.
            for layer in layers:
                layer._buffers.update({name: None if b is None else b.clone() for name, b in layer._buffers.items()})
            yield
        finally:
            for layer, buffers in zip(layers, kept, strict=True):
                layer._buffers.update(buffers)
