"""Where training runs: device, precision and processes; by Lightning Fabric where there are several, or a mixed one."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import BayeswellError, RankLostError, SettingError, nearest, require_count, require_positive
from ..lazy import version_alone
from ..methods import Assembly
from ..objectives import Loss
from ..types import Inputs, Progress, Terms
from .data import Batches
from .examples import part_of
from .heartbeats import Heartbeats, open_store
from .one_device import OneDevice, can_do_without_fabric, warn_if_one_of_several

PRECISIONS = ("32", "bf16-mixed", "16-mixed")
STRATEGIES = ("auto", "ddp")
ACCELERATORS = ("auto", "cpu", "cuda", "mps")
_START_SECONDS = 300.0
"""How long ranks wait for one that is still starting, at least."""
_BROKEN = re.compile("(?i)connection|peer|socket|timed out|timeout|nccl|gloo")
_WAITED = re.compile("(?i)timed out|timeout")


@dataclass(frozen=True)
class Devices:
    """What to train on.

    ``accelerator`` "auto" takes CUDA if there is any, else the CPU. With more than one device each step's batch is
    shared out among the ranks (DDP), which start as processes of the same script. ``precision`` "32" computes in the
    network's own dtype; the mixed ones keep the posterior in it and multiply in the lower one. FSDP is not
    offered here (checkpoints and checks read plain tensors); in a loop of one's own ``fully_shard`` takes a ``Loss``.
    ``timeout`` is how many seconds ranks wait for one that does not answer before they end.
    """

    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32"
    timeout: float = 600.0

    def __post_init__(self) -> None:
        require_count("devices", "devices", self.devices)
        require_positive("devices", "timeout", self.timeout)
        for setting, allowed in (("accelerator", ACCELERATORS), ("strategy", STRATEGIES), ("precision", PRECISIONS)):
            value = getattr(self, setting)
            if value not in allowed:
                raise SettingError(f"devices: {setting} = {value!r}; {nearest(str(value), allowed)}")


class Engine:
    """One Fabric, started, or one device without it; every rank has one."""

    def __init__(self, devices: Devices) -> None:
        accelerator = devices.accelerator
        if accelerator == "auto":
            accelerator = "cuda" if torch.cuda.is_available() else "cpu"
        if devices.precision == "16-mixed" and accelerator == "cpu":
            raise SettingError("devices: precision = '16-mixed' needs an accelerator; on a CPU use 'bf16-mixed'")
        self.timeout = devices.timeout
        try:
            alone = can_do_without_fabric(devices.devices, devices.strategy, devices.precision)
            if alone:
                warn_if_one_of_several()
            self.fabric: Any = OneDevice.of(accelerator) if alone else _started_fabric(accelerator, devices)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(f"devices: {devices.devices} x {accelerator} cannot be used here ({reason})") from error

    @property
    def rank(self) -> int:
        """Which of the processes this is."""
        return int(self.fabric.global_rank)

    @property
    def ranks(self) -> int:
        """How many processes share each step."""
        return int(self.fabric.world_size)

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return cast(torch.device, self.fabric.device)

    def prepare(self, assembly: Assembly) -> Step:
        """The assembly's step on these devices."""
        return Step(self.fabric, assembly)

    def pieces(
        self,
        inputs: Inputs,
        targets: Tensor,
        at: Progress,
        batches: Batches,
        accumulate: int,
        weights: Tensor | None = None,
        least: int = 1,
    ) -> Iterator[Piece]:
        """This rank's share of a batch, cut into at most ``accumulate`` pieces.

        With n_p of the examples in a piece, R ranks that DDP averages over and A pieces on this rank, the total of a
        piece is (R n_p M / N) mean NLL + (1 / A) KL term: summed over pieces and averaged over ranks this is the
        objective of the batch, whatever the sizes. A rank without an example looks at one that counts for nothing, so
        that its KL, and every exchange between ranks, still takes place.

        With ``least`` 2 (BatchNorm) no piece has fewer examples, as far as the batch has enough: fewer ranks share it,
        in fewer pieces.
        """
        size = len(targets)
        ranks = self.ranks if least == 1 else max(1, min(self.ranks, size // least))
        first, last = size * self.rank // ranks, size * (self.rank + 1) // ranks
        counts = self.rank < ranks and first < last
        if not counts:
            first, last = 0, min(least, size)
        number = min(accumulate, max(1, (last - first) // least))
        for index in range(number):
            start = first + (last - first) * index // number
            stop = first + (last - first) * (index + 1) // number
            share = self.ranks * (stop - start) * batches.count / batches.shown if counts else 0.0
            here = Progress(at.step, at.total_steps, at.batch, at.batches, at.examples, share, 1 / number)
            chosen = self.placed(part_of(inputs, targets, start, stop))
            own = None if weights is None else self.on_device(weights[start:stop])
            yield Piece(*chosen, here, index + 1 == number, own)

    def placed(self, batch: tuple[Inputs, Tensor]) -> tuple[Inputs, Tensor]:
        """The batch on this rank's device."""
        moved: tuple[Inputs, Tensor] = self.on_device(batch)
        return moved

    def on_device(self, values: Any) -> Any:
        """Tensors, or a tuple or mapping of them, on this rank's device."""
        return values if self.device.type == "cpu" else self.fabric.to_device(values)

    def summed(self, numbers: Tensor) -> Tensor:
        """The sum over ranks."""
        if self.ranks == 1:
            return numbers
        total = cast(Tensor, self.fabric.all_reduce(numbers.to(self.device), reduce_op="sum"))
        return total.to(numbers.device)

    def first(self, numbers: dict[str, float]) -> dict[str, float]:
        """The first rank's numbers: ranks may differ (in BatchNorm statistics) but must decide alike."""
        return numbers if self.ranks == 1 else cast(dict[str, float], self.fabric.broadcast(numbers))

    def gathered(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One state for all ranks: each tensor with the ranks on a new first axis."""
        if self.ranks == 1:
            return {name: tensor[None] for name, tensor in state.items()}
        return {n: cast(Tensor, self.fabric.all_gather(t.to(self.device))).cpu() for n, t in state.items()}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Say what has happened if another rank is gone: its peers learn it from a broken connection, or by waiting."""
        if self.ranks == 1:
            yield
            return
        store = open_store(self.rank, self.fabric.broadcast)
        heartbeats = Heartbeats(self.rank, self.ranks, store, self.timeout)
        try:
            yield
        except RuntimeError as error:
            text = " ".join(str(error).split())
            if isinstance(error, BayeswellError) or not _BROKEN.search(text):
                raise
            which = heartbeats.described() if _WAITED.search(text) else "it has gone"
            note = f"rank {self.rank} has lost another rank: {which} ({text:.150})"
            raise RankLostError(f"{note}; the last checkpoint is as it was: start again to go on from it") from error
        finally:
            heartbeats.stop()

    def wait(self) -> None:
        """Until every rank is here."""
        if self.ranks > 1:
            self.fabric.barrier()


def _started_fabric(accelerator: str, devices: Devices) -> Any:
    """Every rank's Fabric, once all ranks are there."""
    # Imported here: it takes seconds, and most people train on one device. Most of them would go to torchmetrics, which
    # brings packages for text and sound where they are installed, and of which Fabric wants to know its version.
    with version_alone("torchmetrics"):
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy

    class OwnFabric(Fabric):
        @staticmethod
        def _configure_callbacks(callbacks: Any) -> list[Any]:
            """None: Fabric would look for other packages' in all installed distributions, half of a fit's start."""
            return []

    logger = logging.getLogger("lightning_fabric")
    if logger.level < logging.WARNING:  # setting it empties the caches of all loggers
        logger.setLevel(logging.WARNING)
    # A strategy is left to Fabric unless it is asked for; one device needs none.
    strategy: Any = "auto"
    if devices.devices > 1 or devices.strategy != "auto":
        strategy = DDPStrategy(timeout=timedelta(seconds=max(devices.timeout, _START_SECONDS)))
    precision: Any = "32-true" if devices.precision == "32" else devices.precision
    fabric = OwnFabric(accelerator=accelerator, devices=devices.devices, strategy=strategy, precision=precision)
    fabric.launch()
    if fabric.world_size > 1 and devices.timeout < _START_SECONDS:
        torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=devices.timeout))
    return fabric


@dataclass(frozen=True)
class Piece:
    """Part of a batch on its device, what it counts for, whether it is the last of its step, and example weights."""

    inputs: Inputs
    targets: Tensor
    at: Progress
    last: bool
    weights: Tensor | None = None


class Step:
    """One evaluation of the objective and its gradient, under the precision and strategy of a Fabric."""

    def __init__(self, fabric: Any, assembly: Assembly) -> None:
        self.fabric = fabric
        self.module = Loss(assembly.objective, assembly.model)
        with warnings.catch_warnings():
            # Fabric tells that the module is in evaluation mode, or that it has parameters it will not train.
            warnings.simplefilter("ignore", UserWarning)
            self.wrapped = fabric.setup_module(self.module, move_to_device=False)
        self.optimizer = fabric.setup_optimizers(assembly.optimizer)
        self.precision: Any = None if isinstance(fabric, OneDevice) else fabric.strategy.precision

    def gradient(self, piece: Piece, generator: torch.Generator | None) -> Terms:
        """Add the piece's gradient to the parameters'; ranks average theirs after the last piece."""
        if self.precision is None:  # one device: nothing wraps the objective, nobody waits for the gradient
            terms: Terms = self.module.objective(
                self.module.model, piece.inputs, piece.targets, at=piece.at, generator=generator, weights=piece.weights
            )
            self.fabric.backward(terms.total)
            return terms
        self.module.at, self.module.generator, self.module.weights = piece.at, generator, piece.weights
        with self._synchronised(piece.last):
            total = self.wrapped(piece.inputs, piece.targets)
            self.fabric.backward(total)
        assert self.module.terms is not None
        return self.module.terms

    @property
    def scales_loss(self) -> bool:
        """Whether gradients are those of a scaled loss until ``unscale`` (16-mixed)."""
        return getattr(self.precision, "scaler", None) is not None

    def unscale(self) -> bool:
        """Undo the loss scaling of 16-mixed; whether a gradient that overflowed is skipped by the step itself."""
        if not self.scales_loss:
            return False
        self.precision.unscale_gradients(self.optimizer.optimizer)
        return True

    def _synchronised(self, last: bool) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.fabric.no_backward_sync(self.wrapped, enabled=not last)
        return context

    def state_dict(self) -> dict[str, Any]:
        """The loss scale of 16-mixed; else nothing."""
        return {} if self.precision is None else dict(self.precision.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        if self.precision is not None:
            self.precision.load_state_dict(dict(state))
