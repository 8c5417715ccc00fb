"""SHA-256 of numbers: whether two networks or two data sets are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def sha256_of(value: Any) -> str:
    """SHA-256 of nested tensors, arrays and plain data; type and shape count, the device does not."""
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[Any], None], value: Any) -> None:
    if isinstance(value, Mapping):
        value = sorted(value.items())
    if isinstance(value, tuple | list):
        for part in value:
            _feed(update, part)
    elif isinstance(value, Tensor | np.ndarray):
        tensor = torch.as_tensor(value).detach().cpu().contiguous()
        update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor.numel():
            update(tensor.reshape(-1).view(torch.uint8).numpy())
    else:
        update(repr(value).encode())
