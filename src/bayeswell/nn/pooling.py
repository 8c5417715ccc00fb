"""2 x 2 max pooling by slices: torch's kernel also writes indices, which predictions do not need."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops import in_transform


class SlicedMaxPool2d(nn.MaxPool2d):
    """Same values as ``nn.MaxPool2d(2)``; on a CPU and without gradients several times faster."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or x.device.type != "cpu" or x.dtype == torch.bfloat16 or in_transform():
            pooled: Tensor = super().forward(x)
            return pooled
        height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


def use_sliced_pooling(net: nn.Module) -> None:
    """Let the 2 x 2 poolings of a network compute by slices."""
    for module in net.modules():
        if type(module) is nn.MaxPool2d and not module._forward_hooks:
            sizes = (module.kernel_size, module.stride, module.padding, module.dilation)
            pairs = tuple(size if isinstance(size, tuple) else (size, size) for size in sizes)
            plain = not (module.ceil_mode or module.return_indices)
            if plain and pairs == ((2, 2), (2, 2), (0, 0), (1, 1)):
                module.__class__ = SlicedMaxPool2d
