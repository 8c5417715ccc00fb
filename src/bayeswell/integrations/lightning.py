"""Collectors as callbacks of Lightning's Trainer, and its progress as ours.

A LightningModule is a loop's body: ``training_step`` returns ``ELBO``'s total, and everything else is Lightning's.
Under DDP each process has the total of its share of the batch, and gradients are averaged: the KL counts once
(``objectives.loss`` has the equation), as long as ``dataset_size`` is that of all data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any

from ..averaging import AVERAGING
from ..errors import SettingError
from ..extras import needs_extra
from ..lifting import BayesianModule
from ..types import CollectorPart, Progress
from .collecting import Collecting

with needs_extra("lightning", "bayeswell.integrations.lightning"):
    from lightning.pytorch import Callback

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class Collect(Callback):
    """A collector in the Trainer: ``Trainer(callbacks=[Collect("swag", start=0.5)])``.

    The LightningModule holds one lifted network, trained by one optimizer; the collector sees it after each step. After
    ``trainer.fit`` ``model`` is that network under the collected posterior, and ``bayeswell.predict`` draws from it;
    the network in the LightningModule is the last iterate. Lightning's checkpoints hold what was collected, so that
    ``fit(ckpt_path=...)`` goes on. Where the network has BatchNorm statistics, these are estimated anew by passes over
    the training data (each process over its own share).
    """

    def __init__(self, collector: str | CollectorPart = "swag", *, seed: int = 0, **settings: Any) -> None:
        self.part = AVERAGING.resolve({"name": collector, **settings} if isinstance(collector, str) else collector)
        if settings and not isinstance(collector, str):
            raise SettingError(f"Collect: {', '.join(settings)} are settings of a name, and a part has its own")
        self.seed = seed
        self.model: BayesianModule | None = None
        self._collecting: Collecting | None = None
        self._restored: Mapping[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """By the collector's name: several may watch one run."""
        return f"{type(self).__qualname__}[{self.part.name}]"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plan the snapshots."""
        if len(trainer.optimizers) != 1:
            raise SettingError(f"Collect counts the steps of one optimizer; the module has {len(trainer.optimizers)}")
        planned, shown = trainer.estimated_stepping_batches, trainer.num_training_batches
        if not (math.isfinite(planned) and math.isfinite(shown)):
            raise SettingError(
                f"collector '{self.part.name}' plans its snapshots before the first step: give the Trainer max_epochs "
                "or max_steps, and data of a known length"
            )
        batches = math.ceil(shown / trainer.accumulate_grad_batches)
        self._collecting = Collecting(pl_module, self.part, total_steps=int(planned), batches=batches)
        if self._restored is not None:
            self._collecting.load_state_dict(self._restored)
            self._restored = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any) -> None:
        """Look at the network, if the optimizer has taken a step."""
        assert self._collecting is not None
        if trainer.global_step > self._collecting.step:
            self._collecting.after_step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the posterior."""
        assert self._collecting is not None
        self.model = self._collecting.finished(trainer.train_dataloader, seed=self.seed)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning's checkpoint keeps of it."""
        return {} if self._collecting is None else self._collecting.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until the network is known."""
        self._restored = state_dict or None


def progress_of(trainer: Trainer) -> Progress:
    """Where a Trainer stands: ``objective(model, x, y, at=progress_of(self.trainer))`` in a ``training_step``.

    For KL weights that change, and for a last batch that is smaller than the others: it then counts by its size, so
    that the mean over an epoch is the objective of the whole data set.
    """
    batches = int(trainer.num_training_batches)
    accumulated = int(trainer.accumulate_grad_batches)
    planned = trainer.estimated_stepping_batches
    batch = trainer.fit_loop.batch_idx
    sampler = getattr(trainer.train_dataloader, "sampler", None)
    return Progress(
        step=trainer.current_epoch * batches + batch,
        total_steps=int(planned) * accumulated if math.isfinite(planned) else None,
        batch=batch,
        batches=batches,
        # Of this process: a distributed sampler shares the data out.
        examples=len(sampler) if isinstance(sampler, Sized) else None,
    )
