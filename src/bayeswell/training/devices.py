"""Devices, precision and processes of a run; Lightning Fabric starts the processes and sums over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import SettingError, check_choice, check_integer
from ..core.pytree import tree_map


@dataclass(frozen=True)
class Devices:
    """Devices and precision of a run.

    With several devices the examples of each batch are divided among processes of the same script, and gradients are
    averaged before the step (data parallel).

    Args:
        accelerator: "auto" (CUDA if there is any, else CPU), "cpu", "cuda" or "mps".
        devices: number of devices.
        strategy: Fabric's way to start processes, such as "ddp" or "ddp_spawn".
        precision: "32" computes in the network's own dtype; "bf16-mixed" multiplies in bfloat16.
    """

    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32"

    def __post_init__(self) -> None:
        check_integer("Devices", "devices", self.devices)
        check_choice("Devices", "accelerator", self.accelerator, ("auto", "cpu", "cuda", "mps"))
        check_choice("Devices", "precision", self.precision, ("32", "bf16-mixed"))


class Engine:
    """The devices of one process, and sums over processes.

    ``rank`` counts the processes, ``ranks`` is their number, and ``precision`` the context of the forward pass.
    """

    def __init__(self, devices: Devices) -> None:
        kind = devices.accelerator
        if kind == "auto":
            kind = "cuda" if torch.cuda.is_available() else "cpu"
        self.fabric: Any = None
        self.rank, self.ranks = 0, 1
        try:
            self.device = torch.device(kind)
            if devices.devices > 1:
                self._launch(kind, devices)
            torch.empty(0, device=self.device)
        except (RuntimeError, ValueError, AssertionError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(f"devices: {devices.devices} x {kind} cannot be used here ({reason})") from error
        self.precision: AbstractContextManager[Any] = nullcontext()
        if devices.precision == "bf16-mixed":
            self.precision = torch.autocast(self.device.type, torch.bfloat16)

    def _launch(self, kind: str, devices: Devices) -> None:
        # Imported here: it takes longer than a small fit, which does not need it.
        from lightning_fabric import Fabric

        self.fabric = Fabric(accelerator=kind, devices=devices.devices, strategy=devices.strategy)
        self.fabric.launch()
        self.device = self.fabric.device
        self.rank, self.ranks = int(self.fabric.global_rank), int(self.fabric.world_size)

    def place(self, values: Any) -> Any:
        """Move the tensors of a batch to the device."""
        return values if self.device.type == "cpu" else tree_map(lambda tensor: tensor.to(self.device), values)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its mean over processes."""
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self.fabric.all_reduce(parameter.grad, reduce_op="mean"))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum numbers over processes."""
        if self.ranks == 1:
            return list(values)
        total: Tensor = self.fabric.all_reduce(torch.tensor(values, dtype=torch.float64), reduce_op="sum")
        return total.tolist()

    def broadcast(self, value: Any) -> Any:
        """Return the value of the first process."""
        return value if self.ranks == 1 else self.fabric.broadcast(value)

    def gather(self, tensor: Tensor) -> Tensor:
        """(processes, ...): the tensors of all processes."""
        return tensor[None] if self.ranks == 1 else self.fabric.all_gather(tensor).cpu()


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer."""
    return next(itertools.chain(module.parameters(), module.buffers())).device
