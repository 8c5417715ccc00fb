"""In which precision draws are summed, and in which results are given."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(outputs: Tensor) -> Tensor:
    """Outputs in float64, so that sums over many draws and differences of entropies keep their digits."""
    return outputs.float() if outputs.device.type == "mps" else outputs.double()


def result_dtype(outputs: Tensor) -> torch.dtype:
    """The dtype of results: that of the network's outputs, float32 at least."""
    return torch.promote_types(outputs.dtype, torch.float32)
