"""Is there a NaN or inf, and where?

A program runs ahead of an accelerator: it only waits where it reads a number. A step that looked at its numbers before
it is taken would wait for itself every time. There the answer stays on the device, where it keeps the step from being
taken, and is read one step later (``Answer``); on a CPU a step looks at once, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .nested import tensors_in


def looks_at_once(device: torch.device) -> bool:
    """Whether a step on this device reads its own numbers: where there is nothing to wait for."""
    return device.type == "cpu"


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether there is no NaN or inf in any of them; of accelerators' tensors one number is read.

    A sum is finite only if every term is, and takes one pass; finite terms may overflow it, so only where it is not
    finite are the numbers themselves looked at.
    """
    far = []
    for tensor in tensors:
        if not looks_at_once(tensor.device):
            far.append(tensor)
        elif not math.isfinite(tensor.detach().sum().item()) and not bool(tensor.isfinite().all()):
            return False
    return not far or bool(finite_flag(far))


def finite_flag(tensors: Sequence[Tensor]) -> Tensor:
    """The same as a boolean on the device of the tensors, of which nothing is read."""
    return torch.stack([tensor.detach().isfinite().all() for tensor in tensors]).all()


class Answer:
    """A boolean of a device, sent on its way to the CPU; ``read`` waits for this number and for no later work."""

    def __init__(self, flag: Tensor) -> None:
        self._flag, self._arrived = flag, None
        if flag.device.type == "cuda":
            self._flag = torch.empty_like(flag, device="cpu", pin_memory=True)
            self._flag.copy_(flag, non_blocking=True)
            self._arrived = torch.Event(device=flag.device)
            self._arrived.record()

    def read(self) -> bool:
        """The boolean."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return bool(self._flag)


def first_not_finite(tensor: Tensor) -> tuple[int, ...] | None:
    """The index of the first NaN or inf; None if there is none (whole numbers have none)."""
    if not tensor.is_complex() and (not tensor.is_floating_point() or all_finite([tensor])):
        return None
    wrong = ~tensor.isfinite()
    return tuple(wrong.nonzero()[0].tolist()) if bool(wrong.any()) else None


def any_nan(outputs: Any) -> bool:
    """Whether a tensor among them has a NaN; False where values cannot be looked at (vmap, compilation)."""
    if torch.compiler.is_compiling():
        return False
    real = (tensor for tensor in tensors_in(outputs) if tensor.is_floating_point())
    return any(not torch._C._functorch.is_batchedtensor(tensor) and bool(tensor.isnan().any()) for tensor in real)
