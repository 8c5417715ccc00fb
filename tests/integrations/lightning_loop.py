"""A Trainer of Lightning as a user writes it; apart from the tests, as importing Lightning takes seconds."""

from __future__ import annotations

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.integrations.lightning import Collect, progress_of

from .tiny_data import EPOCHS, EXAMPLES

__all__ = ["Collect", "Means", "module", "trainer"]

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(LightningModule):
    """What a user writes."""

    def __init__(self, net: nn.Module, examples: int) -> None:
        super().__init__()
        self.model, self.objective = bw.bayesian(net), bw.ELBO("categorical", examples)
        self.seen: list[bw.Progress] = []

    def training_step(self, batch: Any, index: int) -> Tensor:
        self.seen.append(progress_of(self.trainer))
        noise = bw.make_generator(self.seen[-1].step)  # decided by the step: a run that goes on meets the same
        return self.objective(self.model, *batch, at=self.seen[-1], generator=noise).total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), 0.05)


class Means(Callback):
    """The means after each step, before a collector that stands behind it has seen them."""

    def __init__(self) -> None:
        self.means: list[Tensor] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any) -> None:
        assert isinstance(pl_module, Module)
        self.means.append(pl_module.model.posterior.mean_vector().detach().double().clone())


def module() -> Module:
    torch.manual_seed(5)
    return Module(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)), EXAMPLES)


def trainer(*callbacks: Callback, **settings: Any) -> Trainer:
    usual = {"max_epochs": EPOCHS, "enable_checkpointing": False, **settings}
    return Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=list(callbacks), **usual,
    )  # fmt: skip
