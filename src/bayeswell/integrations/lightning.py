"""Averagers as callbacks of Lightning's Trainer, and its progress for the ELBO.

``training_step`` of a LightningModule returns ``elbo(...).total``. Under DDP each process has the total of its share of
the batch and gradients are averaged, so the KL counts once if ``dataset_size`` is the size of the whole data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..averaging import AVERAGERS
from ..core.errors import MissingExtra, SettingError
from ..core.protocols import AveragerPart, Progress
from ..nn import BayesianModule
from .collecting import Collector

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError as error:
    raise MissingExtra(
        "bayeswell.integrations.lightning needs Lightning: pip install 'bayeswell[lightning]'"
    ) from error

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class Collect(Callback):
    """An averager in the Trainer: ``Trainer(callbacks=[Collect("swag", start=0.5)])``.

    The LightningModule holds one Bayesian network, trained by one optimizer. After ``trainer.fit``, ``model`` is that
    network under the collected posterior; the network in the LightningModule is the last iterate. Checkpoints of
    Lightning hold the state, so that ``fit(ckpt_path=...)`` continues. BatchNorm statistics are estimated again by
    passes over the training data (of each process its own share).

    Args:
        averaging: a name with ``settings``, or a part.
        seed: of draws whose BatchNorm statistics are estimated.
        settings: of the averager.
    """

    def __init__(self, averaging: str | AveragerPart = "swag", *, seed: int = 0, **settings: Any) -> None:
        super().__init__()
        self.part = AVERAGERS.resolve({"name": averaging, **settings} if isinstance(averaging, str) else averaging)
        self.seed = seed
        self.model: BayesianModule | None = None
        self._collector: Collector | None = None
        self._restored: Mapping[str, Any] | None = None

    @property
    def state_key(self) -> str:
        return f"{type(self).__qualname__}[{self.part.name}]"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise SettingError(f"Collect counts the steps of one optimizer, but there are {len(trainer.optimizers)}")
        planned, batches = trainer.estimated_stepping_batches, trainer.num_training_batches
        if not (math.isfinite(planned) and math.isfinite(batches)):
            raise SettingError(
                f"averaging '{self.part.name}' plans its snapshots before the first step: give the Trainer max_epochs "
                "or max_steps, and data of a known length"
            )
        steps = math.ceil(batches / trainer.accumulate_grad_batches)
        self._collector = Collector(pl_module, self.part, total_steps=int(planned), batches=steps)
        if self._restored is not None:
            self._collector.load_state_dict(self._restored)
            self._restored = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any) -> None:
        if self._collector is not None and trainer.global_step > self._collector.step:
            self._collector.after_step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._collector is not None:
            self.model = self._collector.finalize(trainer.train_dataloader, seed=self.seed)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._collector is None else self._collector.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict or None


def progress_of(trainer: Trainer) -> Progress:
    """Return the progress of a Trainer: ``elbo(model, x, y, progress=progress_of(self.trainer))``.

    For KL weights that change along training, and for a last batch that is smaller than the others.
    """
    batches = int(trainer.num_training_batches)
    planned = trainer.estimated_stepping_batches
    total = int(planned) * int(trainer.accumulate_grad_batches) if math.isfinite(planned) else None
    batch = trainer.fit_loop.batch_idx
    return Progress(trainer.current_epoch * batches + batch, total, batch, batches)
