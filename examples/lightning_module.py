"""Train a Bayesian network with Lightning: a module of a few lines around the ELBO, and HWA as a callback.

On two processes, ``DEVICES=2 python examples/lightning_module.py``, the KL still counts once: each process has the mean
NLL of its share of the batch plus KL / N, with N the size of the whole data set, and Lightning averages the gradients.
``bayeswell.integrations.Collector`` does the same in a loop of accelerate or plain torch.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.integrations.lightning import Collect, progress_of
from bayeswell.lab.data import load_data

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, DRAWS = (2, 5) if SMOKE else (20, 50)
DEVICES = int(os.environ.get("DEVICES", "1"))


class BayesianDigits(LightningModule):
    def __init__(self, net: nn.Module, examples: int) -> None:
        super().__init__()
        self.model = bw.bayesian(net)
        self.elbo = bw.ELBO("categorical", dataset_size=examples, temperature=0.1)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.elbo(self.model, *batch, progress=progress_of(self.trainer)).total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), 1e-2)


def main() -> None:
    seed_everything(0)
    data = load_data("digits", ood="noise")
    x, y = (torch.as_tensor(part) for part in data.train)
    module = BayesianDigits(nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10)), len(y))
    hwa = Collect("hwa", start=0.0 if SMOKE else 0.5)
    trainer = Trainer(
        accelerator="cpu", devices=DEVICES, strategy="ddp" if DEVICES > 1 else "auto", max_epochs=EPOCHS,
        callbacks=[hwa], logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=50 // DEVICES, shuffle=True))
    if not trainer.is_global_zero:
        return
    for name, model in (("last iterate", module.model), ("HWA", hwa.model)):
        predictor = bw.Predictor(model, module.elbo.likelihood)
        scores = predictor.evaluate(*data.test, draws=DRAWS)
        noise = predictor.predict(data.ood["noise"], draws=DRAWS)
        print(
            f"{name:14} NLL {scores['nll'].value:.3f} ± {scores['nll'].se:.3f}, epistemic uncertainty "
            f"{scores.predicted.epistemic.mean():.3f} on digits, {noise.epistemic.mean():.3f} nats on noise"
        )


if __name__ == "__main__":
    main()
