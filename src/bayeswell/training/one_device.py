"""One device in the network's own precision, without Fabric, whose import takes longer than torch's own."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayeswellWarning
from ..nested import map_tensors


def can_do_without_fabric(devices: int, strategy: str, precision: str) -> bool:
    """Whether nothing is asked for that Fabric is there for: several processes, or another precision.

    Under ``fabric run`` (which sets LT_CLI_USED) processes have been started already: Fabric is asked, and refuses.
    """
    return devices == 1 and strategy == "auto" and precision == "32" and "LT_CLI_USED" not in os.environ


def warn_if_one_of_several() -> None:
    """Say that processes which torchrun has started know nothing of each other here."""
    processes = os.environ.get("WORLD_SIZE", "")
    if "TORCHELASTIC_RUN_ID" in os.environ and processes.isdecimal() and int(processes) > 1:
        note = f"devices = 1, but torchrun has started {processes} processes: each trains the whole run by itself"
        remedy = f"on one machine give devices={processes}, and they share each step"
        warnings.warn(BayeswellWarning(f"{note}; {remedy}"), stacklevel=3)


class OneDevice:
    """What an ``Engine`` asks of a Fabric, where there is one process and nothing to convert.

    Modules and optimizers stay what they are; a Fabric of one device wraps them and computes the same, bit for bit.
    """

    global_rank = 0
    world_size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @classmethod
    def of(cls, accelerator: str) -> OneDevice:
        """The first device of that kind; a RuntimeError where there is none."""
        if accelerator == "cpu":
            return cls(torch.device("cpu"))
        backend: Any = torch.cuda if accelerator == "cuda" else torch.backends.mps
        if not backend.is_available():
            raise RuntimeError(f"torch finds no {accelerator} device")
        if accelerator == "cuda":
            torch.cuda.set_device(0)
        return cls(torch.device(accelerator, 0))

    def setup_module(self, module: nn.Module, move_to_device: bool = False) -> nn.Module:
        """The module: it is on its device already."""
        return module

    def setup_optimizers(self, optimizer: Any) -> Any:
        """The optimizer."""
        return optimizer

    def backward(self, total: Tensor) -> None:
        """Add the gradient to the parameters'."""
        total.backward()

    def to_device(self, values: Any) -> Any:
        """Tensors, or tuples, lists and mappings of them, on this device."""
        return map_tensors(values, lambda tensor: tensor.to(self.device))

    def no_backward_sync(self, module: nn.Module, enabled: bool = True) -> AbstractContextManager[None]:
        """There is nobody to exchange gradients with."""
        return nullcontext()
