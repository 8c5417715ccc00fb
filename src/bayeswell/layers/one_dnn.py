"""Where oneDNN computes for torch, and on which kind of processor."""

from __future__ import annotations

import torch
from torch import Tensor

WITH_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
"""Its kernels and torch's others have other strengths there. Known beforehand and not tried: a run must give the same
bits again.
"""


def is_float32_on_cpu(x: Tensor) -> bool:
    """What oneDNN is used for."""
    one_dnn = torch.backends.mkldnn
    return x.device.type == "cpu" and x.dtype == torch.float32 and one_dnn.is_available() and bool(one_dnn.enabled)
